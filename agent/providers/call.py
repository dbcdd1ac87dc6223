"""One model call on its way: its phase, its limits, its cancel. Shared by the socket and the wire.

A `Call` is bound to the thread that runs it; the network backend finds it there.
Read next: `network.py`, which asks it before every blocking step.
"""

from __future__ import annotations

import contextlib
import math
import socket
import threading
import time
from collections.abc import Callable
from contextvars import ContextVar, Token
from enum import Enum
from types import TracebackType

from agent.base.errors import CallCancelled, CallStalled, CallTimeout, ProviderError
from agent.providers.protocol import CallWatch, Limits

_TRAILER_S = 0.05


class Phase(Enum):
    """Where a call stands; each phase has its own limit."""

    CONNECT = "connect"
    UPLOAD = "upload"
    FIRST_BYTE = "first_byte"
    BODY = "body"
    TRAILER = "trailer"


class AnswerComplete(Exception):
    """The answer is complete and the server keeps the stream open; not an error."""


class Call:
    """The state of one model call, retries included; a context manager in the calling thread.

    Concurrency: `watch.cancel` may be set from any thread at any time; everything else belongs
    to the calling thread.
    """

    def __init__(self, limits: Limits, watch: CallWatch, route: str) -> None:
        self.watch = watch
        self.route = route
        self.limits = limits
        self.answered = False
        """Whether a byte of an answer (not of an error) has arrived."""
        self._is_whole = False
        self.wake = threading.Event()
        self._started = time.monotonic()
        self._deadline = self._started + (limits.total_s or math.inf)
        self._expires = math.inf
        self.phase = Phase.CONNECT
        self._lock = threading.Lock()
        self._socket: socket.socket | None = None
        self._on_sent = watch.on_sent
        self._forget_cancel: Callable[[], None] | None = None
        self._bound: Token[Call | None] | None = None

    def __enter__(self) -> Call:
        self._bound = _current.set(self)
        self._forget_cancel = self.watch.cancel.on_cancel(self._stop)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._forget_cancel is not None:
            self._forget_cancel()
        with self._lock:
            self._socket = None
        if self._bound is not None:
            _current.reset(self._bound)

    def _stop(self) -> None:
        """Wake the calling thread: its socket is shut down, which also tells the server."""
        with self._lock:
            if self._socket is not None:
                # Not SSLSocket.shutdown: that drops the TLS object under a reader.
                with contextlib.suppress(OSError):
                    socket.socket.shutdown(self._socket, socket.SHUT_RDWR)
        self.wake.set()

    def attach(self, sock: socket.socket) -> None:
        """Make `sock` the one that a cancel shuts down.

        Raises: CallCancelled when the cancel came first.
        """
        with self._lock:
            self._socket = sock
        self.check()

    def release(self) -> None:
        """Forget the socket: it goes back to the pool, where a late cancel must not reach it."""
        with self._lock:
            self._socket = None

    def check(self) -> None:
        """Raise CallCancelled when the call was cancelled."""
        if self.watch.cancel.cancelled:
            raise CallCancelled(f"the call to {self.route} was stopped")

    def sent(self) -> None:
        """Note that the request is out; the wait for the answer begins."""
        on_sent, self._on_sent = self._on_sent, None
        if on_sent is not None:
            on_sent()
        self.enter(Phase.FIRST_BYTE)

    def enter(self, phase: Phase) -> None:
        """Begin a phase, and with it the time that its limit counts."""
        self.phase = phase
        self._expires = time.monotonic() + (self._limit_s(phase) or math.inf)

    def keep_alive(self) -> None:
        """Begin the silence anew inside the body of an answer."""
        if self.phase is Phase.BODY:
            self.enter(Phase.BODY)

    def expect_whole(self, is_whole: bool) -> None:
        """Say whether the answer comes in one piece: then only the total limit bounds it.

        Such an answer begins when it is complete, so silence before it tells nothing.
        """
        self._is_whole = is_whole
        if is_whole and self.phase in _OF_STREAMS:
            self.enter(self.phase)

    def received(self, count: int, *, answer: bool) -> None:
        """Note `count` bytes of a body, which end the wait for the first one."""
        self.answered = self.answered or answer
        if self.phase is not Phase.TRAILER:
            self.enter(Phase.BODY)
        if self.watch.on_bytes is not None:
            self.watch.on_bytes(count)

    def remaining_s(self) -> float | None:
        """Return how long the next step may block, None for as long as it likes.

        Raises: CallCancelled; the error of the limit that has passed.
        """
        self.check()
        expires = min(self._expires, self._deadline)
        if expires == math.inf:
            return None
        left = expires - time.monotonic()
        if left <= 0:
            raise self.limit_passed()
        return left

    def remaining_total_s(self) -> float:
        """Return the seconds left of the total limit, infinite when there is none."""
        return self._deadline - time.monotonic()

    def limit_passed(self) -> Exception:
        """Return the error that ends this call now: a cancel first, else the nearer limit."""
        if self.watch.cancel.cancelled:
            return CallCancelled(f"the call to {self.route} was stopped")
        if self._deadline <= self._expires:
            return CallTimeout(
                f"{self.route} did not finish within the total limit of {self.limits.total_s:g} s; "
                "raise the limit or send less",
                route=self.route,
            )
        if self.phase is Phase.TRAILER:
            return AnswerComplete()
        error, text = _PASSED[self.phase]
        return error(
            text.format(route=self.route, limit=self._limit_s(self.phase)),
            route=self.route,
        )

    def _limit_s(self, phase: Phase) -> float:
        if phase is Phase.TRAILER:
            return _TRAILER_S
        if self._is_whole and phase in _OF_STREAMS:
            return 0.0
        return float(getattr(self.limits, _LIMITS[phase]))


_OF_STREAMS = frozenset({Phase.FIRST_BYTE, Phase.BODY})

_LIMITS = {
    Phase.CONNECT: "connect_s",
    Phase.UPLOAD: "first_byte_s",
    Phase.FIRST_BYTE: "first_byte_s",
    Phase.BODY: "idle_s",
}

_PASSED: dict[Phase, tuple[type[ProviderError], str]] = {
    Phase.CONNECT: (
        CallTimeout,
        "no connection to {route} within {limit:g} s; check the address and the network",
    ),
    Phase.UPLOAD: (
        CallTimeout,
        "{route} took nothing of the request for {limit:g} s; try again or raise that limit",
    ),
    Phase.FIRST_BYTE: (
        CallTimeout,
        "{route} sent nothing within {limit:g} s; try again, or raise the first-token limit",
    ),
    Phase.BODY: (
        CallStalled,
        "{route} fell silent for {limit:g} s inside an answer; try again, or raise the idle limit",
    ),
}

_current: ContextVar[Call | None] = ContextVar("hermes_call", default=None)


def current_call() -> Call:
    """Return the call that the running thread is in."""
    call = _current.get()
    if call is None:
        raise RuntimeError("a socket is used outside a model call")
    return call
