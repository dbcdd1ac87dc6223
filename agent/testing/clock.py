"""A clock that only moves when a test says so."""

from __future__ import annotations

import threading


class FakeClock:
    """`agent.base.clock.Clock` for tests.

    Units: `now()` starts at `started_at` (Unix epoch seconds), `monotonic()` at 1,000.
    Concurrency: any thread may read and advance.
    """

    def __init__(self, started_at: float = 1_800_000_000.0) -> None:
        self._lock = threading.Lock()
        self._now = started_at
        self._monotonic = 1_000.0

    def now(self) -> float:
        with self._lock:
            return self._now

    def monotonic(self) -> float:
        with self._lock:
            return self._monotonic

    def advance(self, seconds: float) -> None:
        """Move both clocks forward. Raises: ValueError for a negative step."""
        if seconds < 0:
            raise ValueError(f"time goes forward only, not by {seconds!r} s")
        with self._lock:
            self._now += seconds
            self._monotonic += seconds

    def set_back(self, seconds: float) -> None:
        """Set the wall clock back, as an operator or a time service may; monotonic time stays."""
        with self._lock:
            self._now -= seconds
