"""The way of an answer from the thread that gets it to the loop that sends it, in order."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections import deque
from collections.abc import Sequence
from enum import Enum

from starlette.types import Send

from agent.base.record import dataclass
from agent.server.stream import frame

Headers = Sequence[tuple[bytes, bytes]]
COMPANY = b": one moment\n\n"
_COMPANY_HEAD = ((b"content-type", b"text/event-stream"), (b"cache-control", b"no-store"))
_AHEAD = 64
"""How many pieces the upstream may be ahead of a slow client."""
_SLICE_S = 0.1


@dataclass(frozen=True)
class Start:
    """The head of an answer that comes in pieces, and the first of them."""

    status: int
    headers: Headers
    piece: bytes = b""


@dataclass(frozen=True)
class Whole:
    """An answer in one piece; `parsed` is what an event stream that has begun sends for it."""

    status: int
    headers: Headers
    body: bytes
    parsed: object


class Sign(Enum):
    """What is told beside the pieces of an answer."""

    WAITING = "waiting"
    """Nothing will come for a while: a client that streams is kept company."""
    READY = "ready"
    """The wait is over."""
    END = "end"
    GONE = "gone"
    """The client has left."""


class Outlet:
    """Made in the loop.

    `streams` is whether the client asked for a stream, as soon as that is known; `company_s` is how
    long it waits for the first comment and for each further one.
    Concurrency: `put` from the request's thread, the rest in the loop.
    """

    def __init__(self, *, company_s: float) -> None:
        self.streams = False
        self._company_s = company_s
        self._loop = asyncio.get_running_loop()
        self._items: asyncio.Queue[Start | Whole | Sign | bytes] = asyncio.Queue()
        self._handed: deque[Start | Whole | Sign | bytes] = deque()
        self._is_woken = False
        self._ahead = threading.BoundedSemaphore(_AHEAD)
        self._is_open = True
        self._is_started = False

    def put(self, item: Start | Whole | Sign | bytes) -> None:
        """Hand an item over; a piece waits while the client is far behind."""
        while isinstance(item, bytes) and not self._ahead.acquire(timeout=_SLICE_S):
            if not self._is_open:
                return
        self._handed.append(item)
        if self._is_woken:
            return
        self._is_woken = True
        with contextlib.suppress(RuntimeError):  # the loop has ended
            self._loop.call_soon_threadsafe(self._take_in)

    def _take_in(self) -> None:
        self._is_woken = False  # first, so that nothing which comes from now on is left lying
        while self._handed:
            self._items.put_nowait(self._handed.popleft())

    def leave(self) -> None:
        """Say that the client has left."""
        self._is_open = False
        self._items.put_nowait(Sign.GONE)

    async def pass_on(self, send: Send) -> bool:
        """Send what comes until the end; return whether the client stayed."""
        wait_s: float | None = None
        while True:
            try:
                async with asyncio.timeout(wait_s):
                    item = await self._items.get()
            except TimeoutError:
                await self._start(send, Start(200, _COMPANY_HEAD))
                await self._piece(send, COMPANY)
                continue
            if item is Sign.WAITING:
                wait_s = self._company_s if self.streams else None
            elif item is Sign.READY:
                wait_s = self._company_s if self.streams and self._is_started else None
            elif isinstance(item, Sign):
                if item is Sign.END:
                    await self._end(send)
                return item is Sign.END
            elif isinstance(item, bytes):
                self._ahead.release()
                await self._piece(send, item)
            else:
                wait_s = None
                await self._begin(send, item)

    async def _begin(self, send: Send, item: Start | Whole) -> None:
        """Send a head, and of a whole answer the body; one that comes late is an event."""
        if isinstance(item, Start):
            await self._start(send, item)
            if item.piece:
                await self._piece(send, item.piece)
        elif self._is_started:
            await self._piece(send, frame(item.parsed))
        else:
            length = (b"content-length", str(len(item.body)).encode())
            await self._start(send, Start(item.status, [*item.headers, length]))
            await self._piece(send, item.body)

    async def _start(self, send: Send, head: Start) -> None:
        if not self._is_started:
            self._is_started = True
            message = {"type": "http.response.start", "status": head.status}
            await send({**message, "headers": list(head.headers)})

    async def _piece(self, send: Send, piece: bytes) -> None:
        await send({"type": "http.response.body", "body": piece, "more_body": True})

    async def _end(self, send: Send) -> None:
        if self._is_started:
            await send({"type": "http.response.body", "body": b"", "more_body": False})
