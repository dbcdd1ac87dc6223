"""An asynchronous resource that synchronous code holds open."""

from __future__ import annotations

import threading
from collections.abc import Awaitable, Callable
from typing import Any, Protocol


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
            asyncio.run(self._hold())
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
