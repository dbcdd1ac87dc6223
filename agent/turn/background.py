"""Passes that are prepared while the conversation goes on, so that a turn waits for a commit only.

Nothing is committed here but what stands in the ledger as prepared, by whatever process. Read next:
`agent/conversation_compression.py` (`run_attempt`), `preflight.py` (when).
"""

from __future__ import annotations

import dataclasses
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from agent.base.cancel import CancelToken
from agent.base.errors import CallCancelled
from agent.base.events import CompactionProgress, Event, Notice
from agent.base.later import later
from agent.compaction.admit import may_ask_model
from agent.compaction.attempt import SummaryClient
from agent.compaction.budget import PREPARE_SHARE, Budget
from agent.compaction.context_compressor import ContextCompressor
from agent.compaction.cooldown import Health
from agent.compaction.fence import CompressionCommitFence
from agent.compaction.host import Attempted, AttemptRequest, CompressionHost
from agent.providers.protocol import Provider
from agent.sessions.live import LiveView
from agent.sessions.protocol import SessionStore
from agent.sessions.records import PassRecord
from agent.turn.host import Turn, TurnHost

if TYPE_CHECKING:
    from agent import conversation_compression
    from agent.turn import timing
else:
    [conversation_compression] = later("agent", "conversation_compression")
    [timing] = later("agent.turn", "timing")

TRIGGER = "between_turns"
GROWTH_SHARE = 0.10
"""Part of the trigger by which a view grows after a pass that left it near the trigger."""
AGAIN_SHARE = 0.02
"""Part of the trigger by which a view must have grown since it was last looked at."""
_TICK_S = 0.25
_STOP_S = 5.0


class Background:
    """Prepares at most one pass at a time, in a daemon thread of its own.

    What that thread has to say (notices, rows for the trace) is kept and handed over by `deliver`,
    in the order it happened and in the thread that runs the turn: before each request, before the
    end of a turn, before a pass by hand and when the agent is closed. So a sink is never called
    from two threads and nothing is lost or out of order; `at` is when it happened.
    Concurrency: `cancel` and `stop` from any thread, the rest under the agent's turn lock.
    """

    def __init__(self, host: TurnHost) -> None:
        self._host = host
        self._lock = threading.Lock()
        self._job: _Job | None = None
        self._is_closed = False
        self._kept: deque[Event | PassRecord] = deque()
        self._looked_at_tokens = 0

    @property
    def running(self) -> bool:
        """Whether a pass is being prepared now."""
        job = self._job
        return job is not None and not job.done.is_set()

    def consider(self, used_tokens: int) -> None:
        """Begin to prepare a pass when a request of `used_tokens` has come near the trigger.

        Where a warm cache makes passes wait, what were prepared so early would be out of date by
        the time it is committed: then only from the trigger on.
        """
        self.deliver()
        host, trigger = self._host, self._host.trigger_tokens
        is_near = used_tokens >= PREPARE_SHARE * trigger
        if not is_near or (used_tokens < trigger and timing.waits(host, used_tokens)):
            self._looked_at_tokens = 0
            return
        looked_at = self._looked_at_tokens
        is_news = not looked_at <= used_tokens < looked_at + AGAIN_SHARE * trigger
        if self.running or not is_news or not host.prepares_in_background:
            return
        floor = Health.from_dict(host.store.health(host.session_id)).floor_tokens
        if floor and used_tokens < floor + GROWTH_SHARE * trigger:
            return
        self._looked_at_tokens = used_tokens
        with self._lock:
            if not self._is_closed:
                self._job = _Job(host, self._kept)
                self._job.thread.start()

    def commit(self, turn: Turn) -> bool:
        """Commit the prepared pass, if there is one and it still fits; a preview waits.

        Returns whether the view has changed.
        """
        host = self._host
        if not host.prepares_in_background:
            return False
        record = host.store.prepared_pass(host.session_id)
        if record is None or record.plan.get("preview"):
            return False
        return self._run(turn, AttemptRequest(trigger=TRIGGER, adopt_only=True)).committed

    def attempt(
        self, turn: Turn, *, trigger: str, needed: Callable[[], bool] | None = None
    ) -> Attempted:
        """Run one attempt on a turn's behalf; one that is being prepared is waited for and used.

        Another agent that compacts the same conversation is waited for as long as `needed` says
        that the turn cannot go on without a smaller view; without it nobody is waited for.
        Raises: CallCancelled when the turn was stopped while it waited.
        """
        started, waited_ms = time.monotonic(), self._wait(turn.cancel)
        outcome = self._run(turn, AttemptRequest(trigger=trigger, waited_ms=waited_ms))
        told = False
        while outcome.ledger.failure_class == "lock_contended" and needed and needed():
            if not told:
                told = True
                self._tell_wait("another agent runs on this conversation")
            if turn.cancel.wait(_TICK_S):
                raise _stopped()
            waited_ms = int((time.monotonic() - started) * 1000)
            outcome = self._run(turn, AttemptRequest(trigger=trigger, waited_ms=waited_ms))
        turn.waited_ms += waited_ms
        return outcome

    def cancel(self) -> None:
        """End the preparation without waiting for it."""
        job = self._job
        if job is not None:
            job.fence.try_cancel_before_commit()

    def stop(self) -> None:
        """End the preparation and wait until its thread is gone, which takes 250 ms at most."""
        job = self._job
        if job is not None:
            job.fence.try_cancel_before_commit()
            job.thread.join(_STOP_S)

    def close(self) -> None:
        """Stop, and prepare nothing any more."""
        with self._lock:
            self._is_closed = True
        self.stop()
        self.deliver()

    def deliver(self) -> None:
        """Hand over what the preparations had to say since the last call."""
        while self._kept:
            said = self._kept.popleft()
            if isinstance(said, PassRecord):
                self._host.publish_pass(said)
            else:
                self._host.emit(said)

    def _run(self, turn: Turn, request: AttemptRequest) -> Attempted:
        request = dataclasses.replace(request, cancel=turn.cancel)
        outcome = conversation_compression.run_attempt(self._host, [], request)
        if outcome.committed:
            turn.passes.append(outcome.ledger.id)
        return outcome

    def _wait(self, cancel: CancelToken) -> int:
        """Wait for the running preparation and return for how many milliseconds; after a stop it
        gets one tick to end."""
        job = self._job
        if job is None or job.done.is_set():
            return 0
        started = time.monotonic()
        self._tell_wait(f"has been prepared for {started - job.started_at:.0f} s")
        told = None
        while not job.done.wait(_TICK_S):
            if cancel.cancelled and not job.done.wait(_TICK_S):
                break
            progress = job.progress
            if progress is not None and progress is not told:
                told = progress
                self._host.emit(progress)
        self.deliver()
        if cancel.cancelled:
            raise _stopped()
        return max(1, int((time.monotonic() - started) * 1000))

    def _tell_wait(self, what: str) -> None:
        text = f"the window is full: the turn waits for the compaction that {what}"
        self._host.emit(Notice(level="warning", text=text))


def _stopped() -> CallCancelled:
    return CallCancelled("the turn was stopped while it waited for a compaction")


class _Job:
    """One preparation; to its attempt it is the agent, as it was when the preparation began."""

    def __init__(self, host: TurnHost, kept: deque[Event | PassRecord]) -> None:
        self.session_id = host.session_id
        self.settings = host.settings
        self.clock = host.clock
        self.calibration = host.calibration
        self.context_compressor: Any = host.context_compressor
        self.fences: list[CompressionCommitFence] = []
        self.fence = CompressionCommitFence(clock=host.clock)
        self.started_at = time.monotonic()
        self.progress: CompactionProgress | None = None
        self.done = threading.Event()
        self.thread = threading.Thread(target=self._work, name="hermes-background", daemon=True)
        self._store, self._provider = host.store, host.provider
        self.live = LiveView(host.store, host.session_id, host.live.view())
        self._budget, self._client = host.budget(), host.summary_client()
        self._kept = kept

    @property
    def store(self) -> SessionStore:
        return self._store

    @property
    def provider(self) -> Provider:
        return self._provider

    def budget(self) -> Budget:
        return self._budget

    def summary_client(self) -> SummaryClient:
        return self._client

    def emit(self, event: Event) -> None:
        """Keep notices and the newest progress; a started and a finished event come with the
        commit, which is what the reader of events sees happen."""
        if isinstance(event, CompactionProgress):
            self.progress = event
        elif isinstance(event, Notice):
            self._kept.append(event)

    def move_to(self, session_id: str) -> None:
        """Follow a rotation; a preparation commits nothing, so it never sees one."""
        self.session_id = session_id

    def publish_pass(self, ledger: PassRecord, *, focused: bool = False) -> None:
        """Keep a row for the trace."""
        self._kept.append(ledger)

    def _work(self) -> None:
        try:
            prepare_pass(self, self.fence)
        except BaseException as error:
            text = f"a compaction in the background broke down: {type(error).__name__}: {error}"
            self._kept.append(Notice(level="warning", text=text))
        finally:
            del self.live  # The rows that a commit covers need not stay in memory.
            self.done.set()


def prepare_pass(agent: CompressionHost, fence: CompressionCommitFence) -> None:
    """Prepare a pass that a later attempt commits, if one would ask for a summary.

    Nothing is noted when a guard refuses, one is prepared already or masking alone would do.
    Raises: as `run_attempt`.
    """
    store, engine = agent.store, agent.context_compressor
    if not may_ask_model(agent) or store.prepared_pass(agent.session_id) is not None:
        return
    if isinstance(engine, ContextCompressor):
        if not engine.needs_model(agent.live.view().messages, agent.budget()):
            return
    conversation_compression.run_attempt(
        agent, [], AttemptRequest(trigger=TRIGGER, fence=fence, background=True)
    )
