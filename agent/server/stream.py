"""Server-sent events: frames, a response that keeps them alive, and the way from thread to loop."""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import AsyncGenerator, Mapping
from typing import Any, Generic, TypeVar

import orjson
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

KEEP_ALIVE_S = 15.0
KEEP_ALIVE = b": still here\n\n"
DONE = b"data: [DONE]\n\n"
T = TypeVar("T")


def frame(value: Any, *, event: str = "") -> bytes:
    """Return one event whose data is a JSON value."""
    name = f"event: {event}\n".encode() if event else b""
    return b"%sdata: %s\n\n" % (name, orjson.dumps(value))


class Mailbox(Generic[T]):
    """What a thread hands to a coroutine, in order.

    Concurrency: `put` from any thread, `take` from the loop it was made in.
    """

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._items: deque[T] = deque()
        self._has_some = asyncio.Event()

    def put(self, item: T) -> None:
        """Hand an item over; it is dropped when the loop has ended."""
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._add, item)

    def _add(self, item: T) -> None:
        self._items.append(item)
        self._has_some.set()

    async def take(self) -> T:
        """Wait for the next item and return it; for one coroutine at a time."""
        await self._has_some.wait()
        item = self._items.popleft()
        if not self._items:
            self._has_some.clear()
        return item

    def peek(self) -> list[T]:
        """Return the items that were not taken yet, and take them later."""
        return list(self._items)


class EventStream(Response):
    """A response of frames, with a comment whenever nothing was sent for `keep_alive_s`.

    When the client goes away the generator of frames is closed at once, wherever it waits.
    """

    media_type = "text/event-stream"

    def __init__(
        self,
        frames: AsyncGenerator[bytes, None],
        headers: Mapping[str, str] | None = None,
        *,
        keep_alive_s: float = KEEP_ALIVE_S,
    ) -> None:
        self._frames = frames
        self._keep_alive_s = keep_alive_s
        self.status_code = 200
        self.background = None
        self.init_headers(
            {"cache-control": "no-store", "x-accel-buffering": "no", **(headers or {})}
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        start = {"type": "http.response.start", "status": 200, "headers": self.raw_headers}
        sending = asyncio.ensure_future(self._send(start, send))
        leaving = asyncio.ensure_future(wait_until_gone(receive))
        try:
            await asyncio.wait((sending, leaving), return_when=asyncio.FIRST_COMPLETED)
        finally:
            await end_tasks(sending, leaving)
        if not sending.cancelled() and (error := sending.exception()) is not None:
            raise error

    async def _send(self, start: dict[str, Any], send: Send) -> None:
        following: asyncio.Task[bytes | None] | None = None
        try:
            await send(start)
            while True:
                following = following or asyncio.ensure_future(_next(self._frames))
                await asyncio.wait((following,), timeout=self._keep_alive_s)
                if following.done():
                    data, following = following.result(), None
                else:
                    data = KEEP_ALIVE
                if data is None:
                    break
                await send({"type": "http.response.body", "body": data, "more_body": True})
            await send({"type": "http.response.body", "body": b"", "more_body": False})
        finally:
            if following is not None:
                await end_tasks(following)
            await self._frames.aclose()


async def _next(frames: AsyncGenerator[bytes, None]) -> bytes | None:
    return await anext(frames, None)


async def wait_until_gone(receive: Receive) -> None:
    """Return when the client has gone away; what it still sends is dropped."""
    while (await receive())["type"] != "http.disconnect":
        pass


async def end_tasks(*tasks: asyncio.Future[Any]) -> None:
    """Cancel tasks and wait until they have ended; what they raise is theirs to tell."""
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
