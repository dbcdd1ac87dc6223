"""One conversation at a terminal: the agent, the thread that runs its turns and passes, and the
screen that shows them. Typing never waits: a message is stored at once and answered in order.

Read next: `slash.py` (commands), `lines.py` and `interactive.py` (the two screens).
"""

from __future__ import annotations

import contextlib
import queue
import threading
from collections.abc import Callable, Sequence
from typing import Protocol

from agent.base.errors import StoreError, UsageError
from agent.base.events import Event
from agent.sessions.protocol import SessionStore
from agent.sessions.records import PassRecord
from agent.tui.failures import Failure, describe
from agent.tui.render import Line
from run_agent import AIAgent, TurnResult

Job = Callable[[], None]
CLOSE_WAIT_S = 5.0


class Screen(Protocol):
    """Where a conversation is shown. Every method may be called from any thread."""

    @property
    def width(self) -> int:
        """Cells of a line; 0 when lines are never cut."""
        ...

    def show(self, lines: Sequence[Line]) -> None:
        """Show the output of a command."""
        ...

    def event(self, event: Event) -> None:
        """Take one event of the agent."""
        ...

    def ended(self, result: TurnResult) -> None:
        """Take the outcome of a turn."""
        ...

    def failed(self, failure: Failure) -> None:
        """Show why a turn, a pass or a command failed."""
        ...

    def settled(self) -> None:
        """A job ended; called once for each, after everything it showed."""
        ...

    def ask(self, question: str) -> str | None:
        """Return a person's answer in lower case, or None when nobody can be asked."""
        ...

    @property
    def confirm(self) -> Callable[[str, str], bool] | None:
        """Asks for a tool call (call id, what would be done); None when nobody can be asked."""
        ...


class OpenAgent(Protocol):
    """Makes an agent on a stored session, or on a new one when `session_id` is None.

    Its events and its questions (call id, what would be done) go to `screen`.
    """

    def __call__(self, session_id: str | None, screen: Screen) -> AIAgent: ...


def find_pass(store: SessionStore, pass_id: str) -> PassRecord | None:
    """Return a ledger row, or None when it cannot be read: a receipt is then shown without it."""
    with contextlib.suppress(StoreError):
        return store.pass_record(pass_id)
    return None


class Chat:
    """Runs one agent's turns and passes on a thread of its own, in the order they were asked for.

    Concurrency: the public methods are called by one thread, the screen's; jobs, and with them
    the screen's methods, run on the worker. The store is the caller's to close.
    """

    def __init__(self, open_agent: OpenAgent, screen: Screen, store: SessionStore) -> None:
        self.store = store
        self.screen = screen
        self.leaving = False
        """Set by /quit; the screen closes when it sees it."""
        self._open_agent = open_agent
        self._agent: AIAgent | None = None
        self._jobs: queue.SimpleQueue[Job | None] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self.jobs_started = 0
        """Jobs handed over so far, whether they wait, run or have ended."""
        self._jobs_ended = 0
        self._closing = False
        self._worker = threading.Thread(target=self._work, name="hermes-turns", daemon=True)
        self._worker.start()

    @property
    def agent(self) -> AIAgent:
        """The agent of the open session."""
        if self._agent is None:
            raise UsageError("no session is open; open one with switch()")
        return self._agent

    @property
    def busy(self) -> bool:
        """Whether a job runs or waits."""
        with self._lock:
            return self.jobs_started > self._jobs_ended

    def switch(self, session_id: str | None) -> None:
        """Open a stored session or a new one, and close the one before unless that fails."""
        before = self._agent
        self._agent = self._open_agent(session_id, self.screen)
        if before is not None:
            before.close()

    def say(self, text: str, stored: Callable[[], None] | None = None) -> None:
        """Store a user's message at once and have it answered after what runs now.

        `stored` is called between the two, so that it comes before everything of the answer.
        """
        self.agent.submit(text)
        if stored is not None:
            stored()
        self.start(self._answer)

    def start(self, job: Job) -> None:
        """Run `job` on the worker thread after those before it; its failure goes to the screen."""
        with self._lock:
            self.jobs_started += 1
        self._jobs.put(job)

    def interrupt(self) -> None:
        """Stop the running pass or turn; returns at once."""
        self.agent.interrupt()

    def close(self) -> None:
        """Stop what runs, drop what waits (messages stay stored), close the agent. Idempotent."""
        self._closing = True
        self._jobs.put(None)
        if self._agent is not None:
            if self.busy:
                self._agent.interrupt()
            self._worker.join(CLOSE_WAIT_S)
            self._agent.close()
            self._agent = None

    def _answer(self) -> None:
        result = self.agent.run_pending()
        if result is not None:
            self.screen.ended(result)

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None and not self._closing:
            try:
                job()
            except Exception as error:
                self.screen.failed(describe(error))
            finally:
                with self._lock:
                    self._jobs_ended += 1
                self.screen.settled()
