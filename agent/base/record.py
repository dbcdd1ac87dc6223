"""`dataclass` as in the standard library, made in a quarter of the time.

A hundred frozen records cost the standard decorator a third of the whole import of an agent: it
compiles six methods for each class. Here one is compiled and the others are shared; what they do
is the same, and so is what a type checker sees. Measured by `benchmarks/start.py`.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dataclasses import dataclass as dataclass
else:

    def dataclass(cls=None, /, *, frozen=False, eq=True, repr=True, kw_only=False):
        """Return the class with a standard dataclass's methods; `frozen` sets fields once."""

        def wrap(cls: type) -> type:
            plain = dataclasses.dataclass(eq=False, repr=False, kw_only=kw_only)(cls)
            if eq:
                plain.__eq__ = _equal
                plain.__hash__ = _hash if frozen else None
            if repr and "__repr__" not in cls.__dict__:
                plain.__repr__ = _describe
            if frozen:
                plain.__setattr__ = _set_once
                plain.__delattr__ = _refuse
            return plain

        return wrap if cls is None else wrap(cls)


def _values(record: Any) -> tuple[Any, ...]:
    """Return the values that compare, in the order of the fields."""
    return tuple(
        [
            getattr(record, name)
            for name, field in record.__dataclass_fields__.items()
            if field.compare
        ]
    )


def _equal(self: Any, other: object) -> Any:
    if other.__class__ is not self.__class__:
        return NotImplemented
    return _values(self) == _values(other)


def _hash(self: Any) -> int:
    return hash(_values(self))


def _describe(self: Any) -> str:
    fields = [field for field in dataclasses.fields(self) if field.repr]
    shown = [f"{field.name}={getattr(self, field.name)!r}" for field in fields]
    return f"{self.__class__.__qualname__}({', '.join(shown)})"


def _set_once(self: Any, name: str, value: object) -> None:
    if name in self.__dict__ or name not in self.__dataclass_fields__:
        raise dataclasses.FrozenInstanceError(f"cannot assign to field {name!r}")
    self.__dict__[name] = value


def _refuse(self: Any, name: str) -> None:
    raise dataclasses.FrozenInstanceError(f"cannot delete field {name!r}")
