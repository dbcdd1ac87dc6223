"""The boundary of the terminal surface: every failure becomes one line and an exit code.

What this project raises on purpose says what to do; anything else goes to the log with its
traceback, and the line names the log.
"""

from __future__ import annotations

import errno
import time
from pathlib import Path

from agent.base.errors import HermesError
from agent.base.paths import hermes_home
from agent.base.record import dataclass
from agent.base.redact import redact, redacted_trace
from agent.tui.figures import one_line

INTERRUPTED = 130
_FULL = frozenset({errno.ENOSPC, errno.EDQUOT})


@dataclass(frozen=True)
class Failure:
    """What a person reads and what the command ends with."""

    text: str
    exit_code: int
    failure_class: str = HermesError.failure_class


def log_file() -> Path:
    """Return the path of the log that unexpected failures are written to."""
    return hermes_home() / "logs" / "hermes.log"


def describe(error: BaseException) -> Failure:
    """Return the line and the exit code for a failure; writes the log for an unexpected one."""
    if isinstance(error, HermesError):
        return Failure(one_line(str(error)), error.exit_code, error.failure_class)
    if isinstance(error, KeyboardInterrupt):
        return Failure("interrupted", INTERRUPTED)
    if isinstance(error, OSError) and error.errno in _FULL:
        where = f" at {error.filename!r}" if error.filename else ""
        return Failure(f"no space is left{where}; free some and try again", 1)
    what = one_line(redact(f"{type(error).__name__}: {error}"))
    path = log_file()
    try:
        _write(path, error)
    except OSError as fault:
        return Failure(f"unexpected {what}; its traceback could not be written: {fault}", 1)
    return Failure(f"unexpected {what}; the traceback is in {str(path)!r}, please report it", 1)


def _write(path: Path, error: BaseException) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    stamp = time.strftime("%Y-%m-%dT%H:%M:%S%z")
    trace = redacted_trace(error)
    with path.open("a", encoding="utf-8", errors="replace") as log:
        log.write(f"{stamp} unexpected failure\n{trace}\n")
