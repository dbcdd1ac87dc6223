"""Wall and monotonic time behind one seam, so that tests drive it instead of sleeping."""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    """Two clocks: `now()` for instants that are stored, `monotonic()` for durations."""

    def now(self) -> float:
        """Return Unix epoch seconds."""
        ...

    def monotonic(self) -> float:
        """Return seconds of a clock that never goes back; meaningless outside this process."""
        ...


class SystemClock:
    """The machine's clocks."""

    def now(self) -> float:
        return time.time()

    def monotonic(self) -> float:
        return time.monotonic()


SYSTEM_CLOCK: Clock = SystemClock()
