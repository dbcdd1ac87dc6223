"""`agent.base.record.dataclass` against the standard library's, on the same class bodies."""

from __future__ import annotations

import copy
import dataclasses
import pickle
from dataclasses import field
from typing import Any

import pytest

from agent.base import record


class _Plain:
    name: str
    size: int = 3
    parts: list[int] = field(default_factory=list)
    own: str = field(default="o", compare=False)


class _Keywords:
    name: str
    text: str = field(default="", repr=False)


class _Derived:
    name: str
    parts: list[str] = field(init=False)
    made: dict[str, int] = field(init=False, default_factory=dict)
    fixed: int = field(init=False, default=7)

    def __post_init__(self) -> None:
        object.__setattr__(self, "parts", self.name.split())


def _both(body: type, **options: Any) -> tuple[Any, Any]:
    def build(decorate: Any) -> Any:
        held = {k: v for k, v in vars(body).items() if k not in ("__dict__", "__weakref__")}
        return decorate(**options)(type(body.__name__, (), held))

    # The standard decorator takes a field's defaults off the class: each gets its own copy.
    return build(dataclasses.dataclass), build(record.dataclass)


@pytest.mark.parametrize(
    ("body", "options", "calls"),
    [
        (_Plain, {"frozen": True}, [(("a",), {}), (("a", 4, [1], "p"), {}), ((), {"name": "b"})]),
        (_Plain, {}, [(("a",), {"own": "x"}), (("a",), {"size": 9, "parts": [2]})]),
        (_Keywords, {"frozen": True, "kw_only": True}, [((), {"name": "a", "text": "t"})]),
        (_Derived, {}, [(("two words",), {})]),
    ],
)
def test_records_hold_what_standard_ones_hold(body, options, calls):
    standard, own = _both(body, **options)
    for args, given in calls:
        expected, got = standard(*args, **given), own(*args, **given)
        assert vars(got) == vars(expected)
        assert repr(got) == repr(expected)
        assert got == own(*args, **given)
        assert dataclasses.asdict(got) == dataclasses.asdict(expected)


@pytest.mark.parametrize("given", [{}, {"name": "a", "sise": 2}, {"name": "a", "size": 1, "x": 0}])
def test_wrong_arguments_are_refused_as_the_standard_ones_are(given):
    standard, own = _both(_Plain, frozen=True)
    with pytest.raises(TypeError) as expected:
        standard(**given)
    with pytest.raises(TypeError) as got:
        own(**given)
    assert str(got.value).split("__init__")[1] == str(expected.value).split("__init__")[1]


def test_each_record_gets_its_own_default_list():
    _standard, own = _both(_Plain)
    first, second = own("a"), own("b")
    first.parts.append(1)
    assert second.parts == []


def test_a_subclass_that_adds_no_field_is_made_by_its_parent():
    _standard, own = _both(_Plain, frozen=True)
    child = type("Child", (own,), {})
    assert vars(child("a", 1)) == vars(own("a", 1))


@record.dataclass(frozen=True)
class Kept:
    name: str
    size: int = 1


def test_a_record_can_be_replaced_copied_and_pickled():
    kept = Kept("a", 2)
    assert dataclasses.replace(kept, size=5) == Kept("a", 5)
    assert copy.deepcopy(kept) == kept
    assert pickle.loads(pickle.dumps(kept)) == kept
    with pytest.raises(dataclasses.FrozenInstanceError):
        setattr(kept, "size", 3)  # noqa: B010
