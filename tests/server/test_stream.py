"""Event streams: kept alive, closed when the reader leaves, in the order of the threads."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncGenerator
from typing import Any

from agent.server.stream import KEEP_ALIVE, EventStream, Mailbox, frame

SCOPE = {"type": "http"}


class Reader:
    """A client at the other end of a response: what it got, and when it leaves."""

    def __init__(self) -> None:
        self.got: list[bytes] = []
        self.was_kept_alive = asyncio.Event()
        self.leave = asyncio.Event()

    async def send(self, message: Any) -> None:
        """Take what the response sends."""
        body = message.get("body", b"")
        if body == KEEP_ALIVE:
            self.was_kept_alive.set()
        elif body:
            self.got.append(body)

    async def receive(self) -> Any:
        """Say that the client left, once it did."""
        await self.leave.wait()
        return {"type": "http.disconnect"}


def test_silence_is_filled_with_comments_and_nothing_is_lost() -> None:
    async def talk() -> list[bytes]:
        reader = Reader()

        async def frames() -> AsyncGenerator[bytes, None]:
            yield frame({"n": 1})
            await reader.was_kept_alive.wait()
            yield frame({"n": 2}, event="end")

        await EventStream(frames(), keep_alive_s=0.01)(SCOPE, reader.receive, reader.send)
        return reader.got

    assert asyncio.run(talk()) == [b'data: {"n":1}\n\n', b'event: end\ndata: {"n":2}\n\n']


def test_a_reader_that_leaves_closes_what_it_reads() -> None:
    async def talk() -> bool:
        reader, closed = Reader(), asyncio.Event()

        async def frames() -> AsyncGenerator[bytes, None]:
            try:
                yield frame({"n": 1})
                reader.leave.set()
                await asyncio.Event().wait()
            finally:
                closed.set()

        await EventStream(frames())(SCOPE, reader.receive, reader.send)
        return closed.is_set()

    assert asyncio.run(talk())


def test_what_a_thread_hands_over_arrives_in_order() -> None:
    async def talk() -> list[int]:
        mailbox: Mailbox[int] = Mailbox()

        def write() -> None:
            for number in range(1_000):
                mailbox.put(number)

        thread = threading.Thread(target=write)
        thread.start()
        got = [await mailbox.take() for _ in range(1_000)]
        thread.join()
        return got

    assert asyncio.run(talk()) == list(range(1_000))


def test_what_comes_after_the_loop_has_ended_is_dropped() -> None:
    async def make() -> Mailbox[int]:
        return Mailbox()

    asyncio.run(make()).put(1)
