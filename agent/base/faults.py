"""Faults of side channels, which never stop what they watch: logged once, counted, kept in a file.

The file lets another process, such as `hermes doctor`, see what failed in this one.
"""

from __future__ import annotations

import json
import logging
import os
import threading
import time
from collections.abc import Mapping
from pathlib import Path

from agent.base.record import dataclass
from agent.base.redact import redact, redacted_trace

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class FaultCount:
    """How often one channel failed, and what its newest fault was.

    Units: `last_at` is Unix epoch seconds.
    """

    count: int
    last_error: str
    last_at: float


Faults = dict[str, FaultCount]
"""Channel to its faults."""


class FaultCounter:
    """Counts faults by channel. The first of a channel is a warning with its traceback.

    Concurrency: any thread.
    """

    def __init__(self) -> None:
        self._counted: Faults = {}
        self._unsaved: Faults = {}
        self._lock = threading.Lock()

    def note(self, channel: str, error: BaseException | str) -> None:
        """Count one fault of `channel`; of an error only the type is kept."""
        name = error if isinstance(error, str) else type(error).__name__
        new = {channel: FaultCount(1, name, time.time())}
        with self._lock:
            level = logging.DEBUG if channel in self._counted else logging.WARNING
            self._counted = merge_faults(self._counted, new)
            self._unsaved = merge_faults(self._unsaved, new)
        told = redact(error) if isinstance(error, str) else redacted_trace(error)
        _log.log(level, "%s failed; nothing waits for it: %s", channel, told)

    def counts(self) -> Faults:
        """Return what this process counted."""
        return dict(self._counted)

    def unsaved(self) -> Faults:
        """Return what no file holds yet."""
        return dict(self._unsaved)

    def save(self, path: Path) -> None:
        """Add what is unsaved to a file; where it cannot be written, it is left for the next time.

        A count that another process adds in the same moment may be lost: this is a hint.
        """
        with self._lock:
            if not self._unsaved:
                return
            merged = merge_faults(read_faults(path), self._unsaved)
            scratch = path.with_name(f"{path.name}.{os.getpid()}")
            try:
                path.parent.mkdir(parents=True, exist_ok=True)
                scratch.write_text(json.dumps({key: vars(f) for key, f in merged.items()}), "utf-8")
                scratch.replace(path)
            except OSError as error:
                _log.debug("cannot write %s (%s)", path, error)
                return
            self._unsaved = {}


def read_faults(path: Path) -> Faults:
    """Return what a file holds; nothing when there is none, or it is no such file."""
    try:
        stored = json.loads(path.read_text("utf-8"))
        return {channel: FaultCount(**facts) for channel, facts in stored.items()}
    except (OSError, ValueError, TypeError, AttributeError):
        return {}


def merge_faults(earlier: Mapping[str, FaultCount], later: Mapping[str, FaultCount]) -> Faults:
    """Return the sum; the newest fault is the later one's."""
    merged = dict(earlier)
    for channel, new in later.items():
        before = merged[channel].count if channel in merged else 0
        merged[channel] = FaultCount(before + new.count, new.last_error, new.last_at)
    return merged


FAULTS = FaultCounter()
"""The faults of this process."""
