"""An asynchronous resource that synchronous code holds open."""

from __future__ import annotations

import contextlib
import queue
import threading
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, Protocol, TypeVarTuple

if TYPE_CHECKING:
    import asyncio
    from contextvars import Context

Given = TypeVarTuple("Given")


class Closable(Protocol):
    """What an asynchronous opening gives."""

    async def close(self) -> None: ...


class HeldOpen:
    """Opens a resource in a loop and a thread of its own, and closes it there when told to.

    Construction returns at once. Concurrency: any thread.
    """

    def __init__(self, open_resource: Callable[[], Awaitable[Closable]], name: str) -> None:
        self._open_resource = open_resource
        self._name = name
        self._settled = threading.Event()
        self._failure: BaseException | None = None
        self._stop: Callable[[], Any] = self._settled.set
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def wait_open(self, limit_s: float) -> None:
        """Return once it is open. Raises: TimeoutError after the limit; what opening it raised."""
        if not self._settled.wait(limit_s):
            raise TimeoutError(f"{self._name} is not open after {limit_s:g} s")
        if self._failure is not None:
            raise self._failure

    def close(self, limit_s: float) -> None:
        """Close it, waiting no longer than the limit."""
        self._stop()
        self._thread.join(limit_s)

    def _run(self) -> None:
        import asyncio

        try:
            with (
                _Calls(f"{self._name}-calls") as calls,
                asyncio.Runner(loop_factory=calls.new_loop) as runner,
            ):
                runner.run(self._hold())
        except BaseException as error:  # raised again by `wait_open`
            self._failure = error
        finally:
            self._settled.set()

    async def _hold(self) -> None:
        import asyncio

        loop, closing = asyncio.get_running_loop(), asyncio.Event()
        resource = await self._open_resource()
        self._stop = lambda: loop.call_soon_threadsafe(closing.set)
        self._settled.set()
        await closing.wait()
        await resource.close()


class _Calls:
    """Hands calls from other threads to a loop, by a thread of its own.

    What a loop does itself to be woken gives up the interpreter's lock. A thread of a native
    library that waits for it again when the process leaves takes the process down with it: so such
    a thread only leaves its call here, for which it gives up nothing.
    """

    def __init__(self, name: str) -> None:
        self._waiting: queue.SimpleQueue[Callable[[], object] | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._hand_on, name=name, daemon=True)

    def __enter__(self) -> _Calls:
        self._thread.start()
        return self

    def __exit__(self, *_error: object) -> None:
        self._waiting.put(None)
        self._thread.join()

    def new_loop(self) -> asyncio.AbstractEventLoop:
        """Return a loop that is woken this way; its `call_soon_threadsafe` cannot be taken back."""
        import asyncio

        waiting = self._waiting

        class Loop(asyncio.SelectorEventLoop):
            def call_soon_threadsafe(
                self,
                callback: Callable[[*Given], object],
                *given: *Given,
                context: Context | None = None,
            ) -> asyncio.Handle:
                call = super().call_soon_threadsafe
                waiting.put(lambda: call(callback, *given, context=context))
                return asyncio.Handle(callback, given, self, context)

        return Loop()

    def _hand_on(self) -> None:
        while (call := self._waiting.get()) is not None:
            with contextlib.suppress(RuntimeError):  # the loop is closed
                call()
