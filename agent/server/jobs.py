"""Turns and passes on threads: how many run at once, who waits, who is told to come back.

Read next: `desk.py`, which keeps the conversations that they run on.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import AsyncGenerator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Generic, TypeVar, cast

from agent.base.cancel import CancelToken
from agent.base.events import ErrorRaised, Event, Notice, TurnFinished, TurnStarted, Usage
from agent.base.record import dataclass
from agent.server.faults import SERVER, Fault, busy
from agent.server.stream import Mailbox

T = TypeVar("T")
_SHOWS_NOTHING = (TurnStarted, Notice, Usage, ErrorRaised, TurnFinished)


class Feed:
    """The events of one conversation, for whoever reads them.

    Concurrency: any thread. A reader is called in the thread that publishes.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._readers: list[Callable[[Event], None]] = []

    def publish(self, event: Event) -> None:
        """Hand an event to every reader."""
        with self._lock:
            readers = list(self._readers)
        for reader in readers:
            reader(event)

    @contextlib.contextmanager
    def read(self, reader: Callable[[Event], None]) -> Iterator[None]:
        """Hand events to `reader` for the length of a `with` block."""
        with self._lock:
            self._readers.append(reader)
        try:
            yield
        finally:
            with self._lock:
                self._readers.remove(reader)


@dataclass(frozen=True)
class Ended(Generic[T]):
    """How a job ended: with a value, or with what it raised."""

    value: T | None = None
    error: BaseException | None = None


class Job(Generic[T]):
    """One turn or pass that a request waits for.

    `cancel` stops it; `is_handed_back` says that the server stopped it because it is ending.
    """

    def __init__(self, feed: Feed, work: Callable[[CancelToken], T]) -> None:
        self.cancel = CancelToken()
        self.is_handed_back = False
        self.is_running = False
        self._feed = feed
        self._work = work
        self._said: Mailbox[Event | Ended[T]] = Mailbox()
        self._shown = Mailbox[None]()
        self._ended: Ended[T] | None = None

    def run(self) -> Ended[T]:
        """Do the work in this thread; its events go to the one who waits."""
        try:
            with self._feed.read(self._hear):
                return Ended(value=self._work(self.cancel))
        except BaseException as error:  # raised again in the loop, for the one who waits
            return Ended(error=error)

    def _hear(self, event: Event) -> None:
        self._said.put(event)
        if not isinstance(event, _SHOWS_NOTHING):
            self._shown.put(None)

    def end(self, ended: Ended[T]) -> None:
        """Tell the one who waits how it ended."""
        self._said.put(ended)
        self._shown.put(None)

    async def begin(self, timeout_s: float) -> None:
        """Wait until there is something to show, the end, or nothing for `timeout_s`.

        Raises: what the job raised when nothing came before, so that such a request is answered
        with a status and not within a stream.
        """
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._shown.take(), timeout_s)
        waiting = self._said.peek()
        if all(isinstance(said, (Ended, *_SHOWS_NOTHING)) for said in waiting):
            for said in waiting:
                if isinstance(said, Ended):
                    self._check(said)

    async def events(self) -> AsyncGenerator[Event, None]:
        """Yield what happens until the job has ended; `result` says how."""
        while self._ended is None:
            said = await self._said.take()
            if isinstance(said, Ended):
                self._ended = said
            else:
                yield said

    async def result(self) -> T:
        """Wait for the end and return the value. Raises: what the job raised; Fault 503 when the
        server stopped it."""
        async for _event in self.events():
            pass
        assert self._ended is not None
        return self._check(self._ended)

    def _check(self, ended: Ended[T]) -> T:
        if ended.error is not None:
            raise ended.error
        if self.is_handed_back:
            raise stopping("the turn was stopped and what it was sent is stored")
        return cast("T", ended.value)


class Jobs:
    """Runs jobs, at most `most_running` at once; at most `most_waiting` more wait.

    Jobs of one conversation take turns in the order in which they came; one that waits for its
    conversation takes no place from others. `is_ending` says that nothing new is taken, `has_ended`
    is set when nothing runs any more either. Concurrency: the loop it was made in.
    """

    def __init__(self, most_running: int, most_waiting: int) -> None:
        self._threads = ThreadPoolExecutor(most_running, thread_name_prefix="turn")
        self._places = asyncio.Semaphore(most_running)
        self._most = most_running + most_waiting
        self._tasks: dict[asyncio.Task[None], Job[Any]] = {}
        self._kept = 0
        self.is_ending = False
        self.has_ended = asyncio.Event()
        self.running = 0

    @property
    def waiting(self) -> int:
        """How many jobs wait."""
        return len(self._tasks) - self.running

    @contextlib.contextmanager
    def place(self) -> Iterator[None]:
        """Keep a place for a job that is started directly after the `with` block.

        Raises: Fault with 429 or 503 when there is none.
        """
        self._require_place()
        self._kept += 1
        try:
            yield
        finally:
            self._kept -= 1

    def _require_place(self) -> None:
        if self.is_ending:
            raise stopping("nothing was stored")
        if len(self._tasks) + self._kept >= self._most:
            raise busy(
                f"{self.running} turns run and {self.waiting} wait already "
                "(server.max_turns, server.max_waiting); nothing was stored, try again"
            )

    def start(self, job: Job[T], order: asyncio.Lock) -> None:
        """Take a job on. Raises: Fault with 429 or 503 when there is no place."""
        self._require_place()
        task = asyncio.create_task(self._drive(job, order))
        self._tasks[task] = job
        task.add_done_callback(self._tasks.pop)
        loop = asyncio.get_running_loop()

        def drop() -> None:
            with contextlib.suppress(RuntimeError):  # the loop has ended, and the task with it
                loop.call_soon_threadsafe(_drop_waiting, task, job)

        job.cancel.on_cancel(drop)

    async def _drive(self, job: Job[T], order: asyncio.Lock) -> None:
        ended: Ended[T] = Ended(error=stopping("nothing was stored"))
        try:
            async with order, self._places:
                job.is_running = True
                self.running += 1
                try:
                    loop = asyncio.get_running_loop()
                    ended = await loop.run_in_executor(self._threads, job.run)
                finally:
                    self.running -= 1
        finally:
            job.end(ended)

    async def drain(self, grace_s: float) -> None:
        """Take nothing new, wait up to `grace_s`, then stop what runs and give it back."""
        self.is_ending = True
        if self._tasks:
            await asyncio.wait(list(self._tasks), timeout=grace_s)
        for job in list(self._tasks.values()):
            job.is_handed_back = True
            job.cancel.cancel()
        if self._tasks:
            await asyncio.wait(list(self._tasks))
        self.has_ended.set()

    async def close(self) -> None:
        """Stop everything and wait until the threads have ended."""
        await self.drain(0.0)
        await asyncio.to_thread(self._threads.shutdown)


def _drop_waiting(task: asyncio.Task[None], job: Job[Any]) -> None:
    """End a job that has not begun; one that runs ends by itself."""
    if not job.is_running:
        task.cancel()


def stopping(what: str) -> Fault:
    """Return the fault of a server that is ending: status 503."""
    return Fault(
        503,
        f"the server is stopping; {what}, send the request again",
        code="server_stopping",
        type=SERVER,
        headers={"Retry-After": "2"},
    )
