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
_SETTLE_S = 1.0


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
        self._items: deque[Start | Whole | Sign | bytes] = deque()
        self._has_some = asyncio.Event()
        self._is_woken = False
        self._is_sent = threading.Event()
        self._ahead = threading.BoundedSemaphore(_AHEAD)
        self._is_open = True
        self._is_started = False

    def put(self, item: Start | Whole | Sign | bytes) -> None:
        """Hand an item over; a piece waits while the client is far behind, and nothing goes to one
        that has left."""
        while self._is_open and isinstance(item, bytes):
            if self._ahead.acquire(timeout=_SLICE_S):
                break
        if not self._is_open:
            return
        self._is_sent.clear()
        self._items.append(item)
        if self._is_woken:
            return
        self._is_woken = True
        with contextlib.suppress(RuntimeError):  # the loop has ended
            self._loop.call_soon_threadsafe(self._wake)

    def settle(self) -> None:
        """Return when the client has been sent what was put, has left, or takes nothing for a
        while: a thread that goes on to compute would hold it up."""
        if self._is_open:
            self._is_sent.wait(_SETTLE_S)

    def _wake(self) -> None:
        self._is_woken = False  # first, so that nothing which comes from now on is left lying
        self._has_some.set()

    def leave(self) -> None:
        """Say that the client has left."""
        self._is_open = False
        self._items.append(Sign.GONE)
        self._has_some.set()
        self._is_sent.set()

    async def pass_on(self, send: Send) -> bool:
        """Send what comes until the end; return whether the client stayed."""
        wait_s: float | None = None
        while True:
            if not await self._wait(wait_s):
                await self._start(send, Start(200, _COMPANY_HEAD))
                await self._piece(send, COMPANY)
                continue
            item = self._items.popleft()
            if item is Sign.WAITING:
                wait_s = self._company_s if self.streams else None
            elif item is Sign.READY:
                wait_s = self._company_s if self.streams and self._is_started else None
            elif isinstance(item, Sign):
                if item is Sign.END:
                    await self._end(send)
                return item is Sign.END
            elif isinstance(item, bytes):
                await self._piece(send, self._joined(item))
            else:
                wait_s = None
                await self._begin(send, item)

    async def _wait(self, wait_s: float | None) -> bool:
        """Return when there is an item, or False when none has come for a while."""
        while not self._items:
            self._is_sent.set()
            self._has_some.clear()
            if wait_s is None:
                await self._has_some.wait()
                continue
            try:
                async with asyncio.timeout(wait_s):
                    await self._has_some.wait()
            except TimeoutError:
                return False
        return True

    def _joined(self, piece: bytes) -> bytes:
        """Return a piece and those that came behind it meanwhile as one."""
        pieces = [piece]
        while self._items and isinstance(self._items[0], bytes):
            pieces.append(self._items.popleft())  # type: ignore[arg-type]  # bytes, as was seen
        self._ahead.release(len(pieces))
        return b"".join(pieces)

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
