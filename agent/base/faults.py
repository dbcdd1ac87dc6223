"""Faults of side channels, which never stop what they watch: counted, and logged once each."""

from __future__ import annotations

import logging
import threading
import time

from agent.base.record import dataclass

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class FaultCount:
    """How often one channel failed, and what its newest fault was.

    Units: `last_at` is Unix epoch seconds.
    """

    count: int
    last_error: str
    last_at: float


class FaultCounter:
    """Counts faults by channel. The first of a channel is a warning with its traceback.

    Concurrency: any thread.
    """

    def __init__(self) -> None:
        self._counts: dict[str, FaultCount] = {}
        self._lock = threading.Lock()

    def note(self, channel: str, error: BaseException | str) -> None:
        """Count one fault of `channel`; of an error only the type is kept."""
        name = error if isinstance(error, str) else type(error).__name__
        with self._lock:
            earlier = self._counts.get(channel)
            count = earlier.count if earlier else 0
            self._counts[channel] = FaultCount(count + 1, name, time.time())
        level = logging.DEBUG if count else logging.WARNING
        trace = error if isinstance(error, BaseException) else None
        _log.log(level, "%s failed (%s); nothing waits for it", channel, error, exc_info=trace)

    def counts(self) -> dict[str, FaultCount]:
        """Return what was counted, by channel."""
        with self._lock:
            return dict(self._counts)


FAULTS = FaultCounter()
"""The faults of this process."""
