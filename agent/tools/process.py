"""Runs a program in a process group of its own and lets nothing of it outlive the call.

Output is kept as bounded text while it arrives: the first bytes, and beyond the limit the last.
"""

from __future__ import annotations

import codecs
import contextlib
import os
import selectors
import signal
import subprocess
import time
from collections import deque
from collections.abc import Sequence
from enum import Enum
from pathlib import Path

from agent.base.cancel import CancelToken
from agent.base.record import dataclass

HEAD_BYTES = 24 * 1024 * 1024
TAIL_BYTES = 8 * 1024 * 1024
TICK_S = 0.05
_CHUNK_BYTES = 65_536
_LARGEST_PIPE_BYTES = 1024 * 1024


class Ending(Enum):
    """Why a program is no longer running."""

    EXITED = "exited"
    TIMED_OUT = "timed out"
    CANCELLED = "cancelled"


_GRACE_S = {Ending.EXITED: 0.0, Ending.TIMED_OUT: 1.0, Ending.CANCELLED: 0.1}
"""Seconds between TERM and KILL; a cancel has 250 ms in all."""


class Capture:
    """Text of a byte stream whose middle is dropped beyond `head_bytes` + `tail_bytes`.

    Decodes while it reads, so that a large output is held once as text and joined once.
    """

    def __init__(self, head_bytes: int = HEAD_BYTES, tail_bytes: int = TAIL_BYTES) -> None:
        self._head_room = head_bytes
        self._tail_bytes = tail_bytes
        self._head: list[str] = []
        self._tail: deque[bytes] = deque()
        self._tail_size = 0
        self._dropped = 0
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def feed(self, data: bytes) -> None:
        """Take the next bytes."""
        head, rest = data[: self._head_room], data[self._head_room :]
        self._head_room -= len(head)
        if head:
            self._head.append(self._decoder.decode(head))
        if rest:
            self._tail.append(rest)
            self._tail_size += len(rest)
        while self._tail and self._tail_size - len(self._tail[0]) >= self._tail_bytes:
            gone = len(self._tail.popleft())
            self._tail_size -= gone
            self._dropped += gone

    def text(self, footer: str = "") -> str:
        """Return all that was kept, with a line where bytes were dropped, then `footer` on a line
        of its own. Ends the capture."""
        parts, self._head = self._head, []
        if self._dropped:
            parts.append(self._decoder.decode(b"", final=True))
            parts.append(f"\n[{self._dropped} bytes of output left out here; they are not kept]\n")
        parts.append(self._decoder.decode(b"".join(self._tail), final=True))
        last = next((part for part in reversed(parts) if part), "\n")
        if footer and not last.endswith("\n"):
            parts.append("\n")
        return "".join([*parts, footer])


@dataclass(frozen=True)
class Finished:
    """A program that ended; `code` is its exit code, or the negative number of a signal."""

    ending: Ending
    code: int
    capture: Capture


def run_group(argv: Sequence[str], *, cwd: Path, cancel: CancelToken, timeout_s: float) -> Finished:
    """Run a program without input until it exits, `timeout_s` passed or `cancel` is set.

    Standard output and error are merged. At the end the whole process group is gone: TERM then
    KILL after a timeout or cancel, KILL for children that an exited program left behind.
    Units: `timeout_s` may be infinite. Raises: OSError when the program cannot be started.
    """
    deadline = time.monotonic() + timeout_s
    capture = Capture()
    pipe, inlet = os.pipe()
    try:
        os.set_blocking(pipe, False)
        try:
            process = _start(argv, cwd, inlet)
        finally:
            os.close(inlet)
        ending = Ending.CANCELLED
        try:
            ending = _watch(process, pipe, capture, cancel, deadline)
        finally:
            _end_group(process, _GRACE_S[ending])
        _drain(pipe, capture)
    finally:
        os.close(pipe)
    return Finished(ending, process.returncode, capture)


def _start(argv: Sequence[str], cwd: Path, output: int) -> subprocess.Popen[bytes]:
    """Start a program as the leader of a new process group and session: it has no terminal."""
    return subprocess.Popen(
        argv,
        cwd=cwd,
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=output,
        start_new_session=True,
    )


def _watch(
    process: subprocess.Popen[bytes],
    pipe: int,
    capture: Capture,
    cancel: CancelToken,
    deadline: float,
) -> Ending:
    """Read output until the program itself exits or must end; return which."""
    look_at = 0.0
    with selectors.DefaultSelector() as selector:
        selector.register(pipe, selectors.EVENT_READ)
        while True:
            now = time.monotonic()
            if cancel.cancelled:
                return Ending.CANCELLED
            if now >= deadline:
                return Ending.TIMED_OUT
            if now >= look_at:
                if process.poll() is not None:
                    return Ending.EXITED
                look_at = now + TICK_S
            wait_s = min(TICK_S, deadline - now)
            if not selector.get_map():
                cancel.wait(wait_s)
            elif selector.select(wait_s) and not _read(pipe, capture):
                selector.unregister(pipe)
                _wait(process, TICK_S)
                look_at = 0.0


def _read(pipe: int, capture: Capture) -> bool:
    """Take one chunk; return whether there may be more, now or later."""
    data = os.read(pipe, _CHUNK_BYTES)
    capture.feed(data)
    return bool(data)


def _wait(process: subprocess.Popen[bytes], timeout_s: float) -> None:
    """Wait for the program to exit, for a while."""
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(timeout_s)


def _end_group(process: subprocess.Popen[bytes], grace_s: float) -> None:
    """End every process of the group and reap the program."""
    if process.poll() is None:
        _signal_group(process.pid, signal.SIGTERM)
        _wait(process, grace_s)
    _signal_group(process.pid, signal.SIGKILL)
    process.wait()


def _signal_group(group: int, number: signal.Signals) -> None:
    """Send a signal to a process group; one that is gone or no longer ours is left alone."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(group, number)


def _drain(pipe: int, capture: Capture) -> None:
    """Take what stands in the pipe; a process that left the group cannot hold this up."""
    with contextlib.suppress(BlockingIOError):
        for _ in range(_LARGEST_PIPE_BYTES // _CHUNK_BYTES + 1):
            if not _read(pipe, capture):
                return
