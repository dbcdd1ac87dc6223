"""A call that a test stops while it runs."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable

from agent.auxiliary_client import AuxiliaryExplicitCancellation
from agent.base.cancel import CancelToken
from agent.base.errors import CallCancelled, HermesError
from agent.providers.protocol import CallWatch

_STOPPED = (CallCancelled, AuxiliaryExplicitCancellation)


class Running:
    """A call in a thread of its own; `bytes` and `deltas` count what it has heard."""

    def __init__(
        self, call: Callable[[CallWatch], object], token: CancelToken | None = None
    ) -> None:
        self.bytes = threading.Semaphore(0)
        self.deltas = threading.Semaphore(0)
        self._token = token or CancelToken()
        self._call = call
        self._ended: BaseException | None = None
        self._ended_at = 0.0
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        watch = CallWatch(
            cancel=self._token,
            on_bytes=lambda _count: self.bytes.release(),
            on_delta=lambda _delta: self.deltas.release(),
        )
        try:
            self._call(watch)
        except (HermesError, AuxiliaryExplicitCancellation) as error:
            self._ended = error
        self._ended_at = time.monotonic()

    def cancel(self) -> float:
        """Cancel; return after how many seconds the call had ended, infinite for one that had come
        to its own end."""
        cancelled_at = time.monotonic()
        self._token.cancel()
        self._thread.join(10)
        assert not self._thread.is_alive()
        if self._ended is None:
            return math.inf
        assert isinstance(self._ended, _STOPPED)
        return self._ended_at - cancelled_at
