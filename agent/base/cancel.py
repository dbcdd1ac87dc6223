"""A stop signal that any thread may give and that wakes whoever registered for it."""

from __future__ import annotations

import threading
from collections.abc import Callable


class CancelToken:
    """One-way flag with callbacks.

    Concurrency: every method may be called from any thread. Callbacks run once, in the
    cancelling thread (or at once in the registering thread when already cancelled); they must
    be quick and must not raise.
    """

    def __init__(self) -> None:
        self._event = threading.Event()
        self._lock = threading.Lock()
        self._callbacks: dict[int, Callable[[], None]] = {}
        self._next_key = 0

    @property
    def cancelled(self) -> bool:
        """Whether `cancel` was called."""
        return self._event.is_set()

    def cancel(self) -> None:
        """Set the flag and run each registered callback once; later calls do nothing."""
        with self._lock:
            self._event.set()
            callbacks, self._callbacks = list(self._callbacks.values()), {}
        for callback in callbacks:
            callback()

    def on_cancel(self, callback: Callable[[], None]) -> Callable[[], None]:
        """Run `callback` when the token is cancelled; return a function that unregisters it."""
        with self._lock:
            if not self._event.is_set():
                key = self._next_key
                self._next_key += 1
                self._callbacks[key] = callback

                def unregister() -> None:
                    with self._lock:
                        self._callbacks.pop(key, None)

                return unregister
        callback()
        return lambda: None

    def wait(self, timeout_s: float | None = None) -> bool:
        """Block until cancelled or until `timeout_s` passed; return whether it is cancelled."""
        return self._event.wait(timeout_s)
