"""A Relay library that writes down what it is asked, and hangs or fails when told to."""

from __future__ import annotations

import threading
from typing import Any


class Handle:
    """A scope; `uuid` is what the runtime compares."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.uuid = f"uuid of {name}"


class FakeScope:
    """The scope functions. `hanging` and `failing` name those that do; `free` lets hung ones go."""

    def __init__(self) -> None:
        self.calls: list[tuple[Any, ...]] = []
        self.hanging: set[str] = set()
        self.failing: set[str] = set()
        self.free = threading.Event()

    def _called(self, what: str, *facts: Any) -> None:
        self.calls.append((what, *facts))
        if what in self.hanging:
            self.free.wait()
        if what in self.failing:
            raise OSError(f"{what} is broken")

    def push(self, name: str, scope_type: str, **_named: Any) -> Handle:
        self._called("push", name, scope_type)
        return Handle(name)

    def pop(self, handle: Handle, *, output: Any = None) -> None:
        self._called("pop", handle.name, output)

    def event(self, name: str, *, handle: Handle, **_named: Any) -> None:
        self._called("event", name, handle.name)


class FakeRelay:
    """What stands for the module."""

    class ScopeType:
        Function = "function"
        Agent = "agent"

    def __init__(self) -> None:
        self.scope = FakeScope()

    def get_scope_stack(self) -> None:
        return None
