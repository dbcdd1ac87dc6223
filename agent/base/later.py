"""Modules that are imported when something is first asked of them: what only a later turn, a pass
or a rare command needs does not hold up the start.

A type checker, and a reader, is shown the import itself, under TYPE_CHECKING.
"""

from __future__ import annotations

import importlib
from typing import Any


class _Later:
    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, name: str) -> Any:
        return getattr(importlib.import_module(self._name), name)


def later(package: str, *names: str) -> list[Any]:
    """Return what stands for the modules `names` of `package`, in that order."""
    return [_Later(f"{package}.{name}") for name in names]
