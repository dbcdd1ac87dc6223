"""`dataclass` as in the standard library, made in a tenth of the time.

A hundred frozen records cost the standard decorator a third of the whole import of an agent: it
compiles six methods for each class. Here `__init__` is compiled when the first record of its
class is made, and the others are shared; what they do is the same, and so is what a type checker
sees. What reads signatures (typer) takes the standard decorator. Measured by `benchmarks/start.py`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dataclasses import dataclass as dataclass
else:

    def dataclass(cls=None, /, *, frozen=False, eq=True, repr=True, kw_only=False):
        """Return the class with a standard dataclass's methods; `frozen` sets fields once."""

        def wrap(cls: type) -> type:
            if cls.__doc__ is None:  # else the standard decorator writes the signature there
                cls.__doc__ = cls.__name__
            standard = dataclasses.dataclass(init=False, eq=False, repr=False, kw_only=kw_only)
            plain = standard(cls)
            if "__init__" not in cls.__dict__:
                plain.__init__ = _init_at_first_use(plain)
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


def _init_at_first_use(cls: Any) -> Callable[..., None]:
    """Return an `__init__` that gives way to the compiled one."""

    def __init__(self: Any, /, *args: Any, **given: Any) -> None:
        if cls.__init__ is __init__:
            cls.__init__ = _compile_init(cls)
        cls.__init__(self, *args, **given)

    return __init__


def _compile_init(cls: Any) -> Callable[..., None]:
    """Return the `__init__` that takes and sets the fields of `cls`, as the standard one does."""
    known: dict[str, Any] = {"MISSING": dataclasses.MISSING}
    parameters: tuple[list[str], list[str]] = ([], [])
    lines = ["_own = self.__dict__"]
    for place, field in enumerate(dataclasses.fields(cls)):
        default, value = "", field.name
        if field.default_factory is not dataclasses.MISSING:
            known[f"make{place}"] = field.default_factory
            default, value = "=MISSING", f"make{place}() if {value} is MISSING else {value}"
        elif field.default is not dataclasses.MISSING:
            known[f"default{place}"] = field.default
            default = f"=default{place}"
        if field.init:
            parameters[bool(field.kw_only)].append(field.name + default)
        elif default == "=MISSING":
            value = f"make{place}()"
        else:  # the class holds its default, if it has one
            continue
        lines.append(f"_own[{field.name!r}] = {value}")
    if hasattr(cls, "__post_init__"):
        lines.append("self.__post_init__()")
    named = ["*", *parameters[True]] if parameters[True] else []
    head = ", ".join(["self", *parameters[False], *named])
    exec(f"def __init__({head}):\n " + "\n ".join(lines), known)  # nosec B102
    made: Callable[..., None] = known["__init__"]
    made.__qualname__ = f"{cls.__qualname__}.__init__"
    return made


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
