"""Calls that may hang, made with a limit: for side channels that must never hold their caller."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


class BoundedCalls:
    """Runs calls in daemon threads, at most `most` at once, and gives up on those that hang.

    A call that is given up keeps its place until it returns, so a hang cannot pile up threads.
    Concurrency: any thread.
    """

    def __init__(self, most: int, name: str) -> None:
        self._places = threading.BoundedSemaphore(most)
        self._name = name

    def run(self, call: Callable[[], T], *, limit_s: float, what: str) -> T:
        """Return what `call` returns.

        Raises: TimeoutError, named by `what`, when no place was free or the call did not return
        within the limit; RuntimeError when the interpreter starts no more threads; else what the
        call raises.
        """
        deadline = time.monotonic() + limit_s
        late = f"{what} exceeded {limit_s:g} s"
        if not self._places.acquire(timeout=limit_s):
            raise TimeoutError(f"{late}: all places are taken by calls that hang")
        results: list[T] = []
        failures: list[BaseException] = []
        done = threading.Event()

        def work() -> None:
            try:
                results.append(call())
            except BaseException as error:  # raised again in the caller's thread
                failures.append(error)
            finally:
                self._places.release()
                done.set()

        try:
            threading.Thread(target=work, name=self._name, daemon=True).start()
        except RuntimeError:
            self._places.release()
            raise
        if not done.wait(max(0.0, deadline - time.monotonic())):
            raise TimeoutError(late)
        if failures:
            raise failures[0]
        return results[0]


class GivenUp(TimeoutError):
    """Nothing was called, because an earlier call hung."""


class Breaker:
    """Bounded calls of one kind, until the first that hangs: then no other one is made."""

    def __init__(self, calls: BoundedCalls, what: str) -> None:
        self._calls = calls
        self._what = what
        self.broken = False

    def run(self, call: Callable[[], T], *, limit_s: float) -> T:
        """Return what `call` returns. Raises: GivenUp; else as `BoundedCalls.run`."""
        if self.broken:
            raise GivenUp(f"{self._what} is not tried any more: an earlier one hung")
        try:
            return self._calls.run(call, limit_s=limit_s, what=self._what)
        except TimeoutError:
            self.broken = True
            raise
