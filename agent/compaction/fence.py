"""Who wins when a stop and a commit meet: one lock, one flag, and a clock that the stop freezes."""

from __future__ import annotations

import threading

from agent.base.cancel import CancelToken
from agent.base.clock import SYSTEM_CLOCK, Clock
from agent.base.errors import UsageError


class CompressionCommitFence:
    """Decides between the cancel and the commit of one attempt, and holds its clock of progress.

    `token` is cancelled with the fence, so that sockets close. `_last_progress` is monotonic and
    read anew each time; once the fence is cancelled or revoked idle time stands still, so a stop
    that is handled late is judged by the moment it was given.
    Units: `total_ceiling_seconds` counts from construction; None means no deadline.
    Concurrency: every member may be used from any thread; `begin_commit` keeps the lock that
    `finish_commit` gives back.
    """

    def __init__(
        self, total_ceiling_seconds: float | None = None, *, clock: Clock = SYSTEM_CLOCK
    ) -> None:
        self.token = CancelToken()
        self._clock = clock
        self._lock = threading.Lock()
        self._committing = threading.Event()
        self._cancelled = False
        self._revoked = False
        self._published = False
        self._frozen_at: float | None = None
        self._deadline: float | None = None
        self._last_progress = clock.monotonic()
        if total_ceiling_seconds is not None:
            self.set_total_ceiling_seconds(total_ceiling_seconds)

    # -- progress -----------------------------------------------------------------------------
    def touch_progress(self) -> None:
        """Note a sign of life: a byte or a token arrived."""
        self._last_progress = self._clock.monotonic()

    def seconds_since_progress(self) -> float:
        """Return how long nothing has arrived, up to the cancel if there was one."""
        until = self._clock.monotonic() if self._frozen_at is None else self._frozen_at
        return max(0.0, until - self._last_progress)

    # -- deadline -----------------------------------------------------------------------------
    def set_total_ceiling_seconds(self, seconds: float) -> None:
        """Refuse a commit from `seconds` after now on. Raises: UsageError when not positive."""
        if not seconds > 0:
            raise UsageError(f"the total ceiling must be above 0 seconds, not {seconds!r}")
        self._deadline = self._clock.monotonic() + seconds

    @property
    def deadline_exceeded(self) -> bool:
        """Whether the total ceiling has passed."""
        return self._deadline is not None and self._clock.monotonic() >= self._deadline

    # -- cancel against commit -----------------------------------------------------------------
    @property
    def is_cancelled(self) -> bool:
        """Whether a commit would be refused: cancelled, revoked or past the deadline."""
        return self._cancelled or self._revoked or self.deadline_exceeded

    def cancel_before_commit(self, cancel_event: threading.Event | None = None) -> bool:
        """Cancel unless a commit was published; wait for one that is running.

        Returns True when the cancel won, False when the commit did. Sets `cancel_event` in both
        cases: the stop was given, whatever became of the pass.
        """
        asked_at = self._clock.monotonic()
        if cancel_event is not None:
            cancel_event.set()
        with self._lock:
            won = self._mark_cancelled(asked_at)
        if won:
            self.token.cancel()
        return won

    def try_cancel_before_commit(self) -> bool | None:
        """Cancel without waiting; None while a commit holds the lock."""
        asked_at = self._clock.monotonic()
        if not self._lock.acquire(blocking=False):
            return None
        won = self._mark_cancelled(asked_at)
        self._lock.release()
        if won:
            self.token.cancel()
        return won

    def stop(self) -> None:
        """Cancel without waiting, unless a commit runs: what a stop signal calls."""
        self.try_cancel_before_commit()

    def revoke_commit_admission(self) -> None:
        """Refuse every later commit without waiting for the lock; for a host that unwinds."""
        self._freeze(self._clock.monotonic())
        self._revoked = True
        self.token.cancel()

    def begin_commit(self, cancel_event: threading.Event | None = None) -> bool:
        """Take the lock and keep it, or return False when the commit may not happen any more."""
        self._lock.acquire()
        if self.is_cancelled or (cancel_event is not None and cancel_event.is_set()):
            self._lock.release()
            return False
        self._committing.set()
        return True

    def finish_commit(self, *, published: bool = True) -> None:
        """Give the lock back; `published=False` when the commit changed nothing after all.

        Does nothing when no commit was begun.
        """
        if not self._committing.is_set():
            return
        self._published = self._published or published
        self._committing.clear()
        self._lock.release()

    def _mark_cancelled(self, asked_at: float) -> bool:
        if self._published:
            return False
        self._freeze(asked_at)
        self._cancelled = True
        return True

    def _freeze(self, at: float) -> None:
        if self._frozen_at is None:
            self._frozen_at = at
