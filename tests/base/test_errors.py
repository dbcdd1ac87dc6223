"""The tree drawn in the docstring is the tree there is."""

from __future__ import annotations

import re

import pytest

from agent.base import errors
from agent.base.errors import (
    ContextCannotFit,
    ContextOverflow,
    HermesError,
    ProviderError,
)


def _drawn() -> dict[str, tuple[str, list[str], str]]:
    """Return parent, other bases and exit code (as drawn) of every class in the docstring."""
    tree: dict[str, tuple[str, list[str], str]] = {}
    trail: list[str] = []
    for line in (errors.__doc__ or "").splitlines()[2:]:
        indent = re.match(r"[ |`-]*", line)
        assert indent is not None
        depth = len(indent[0]) // 3
        drawing, _, remark = line[indent.end() :].partition("  ")
        code = re.search(r"exit (\d+)", remark)
        for name, other in re.findall(r"(\w+)(?: \((\w+)\))?", drawing):
            trail = [*trail[:depth], name]
            parent = trail[depth - 1] if depth else "Exception"
            tree[name] = (parent, [other] if other else [], code[1] if code else "")
    return tree


def _found() -> dict[str, type[HermesError]]:
    return {
        name: kind
        for name, kind in vars(errors).items()
        if isinstance(kind, type) and issubclass(kind, HermesError)
    }


def test_the_docstring_draws_every_class_with_its_bases() -> None:
    found = {name: [base.__name__ for base in kind.__bases__] for name, kind in _found().items()}
    assert found == {name: [parent, *others] for name, (parent, others, _) in _drawn().items()}


def test_the_docstring_names_every_exit_code_that_differs_from_the_parent() -> None:
    found = {}
    for name, kind in _found().items():
        inherited = getattr(kind.__mro__[1], "exit_code", HermesError.exit_code)
        found[name] = str(kind.exit_code) if kind.exit_code != inherited else ""
    drawn = {name: code for name, (_, _, code) in _drawn().items()}
    assert found == drawn


def test_no_two_classes_share_a_failure_class_by_accident() -> None:
    owners: dict[str, list[str]] = {}
    for name, kind in _found().items():
        if "failure_class" in vars(kind):
            owners.setdefault(kind.failure_class, []).append(name)
    assert {word: names for word, names in owners.items() if len(names) > 1} == {}


@pytest.mark.parametrize("name", [name for name in _found() if name != "ContextCannotFit"])
def test_every_error_shows_its_message_and_nothing_else(name: str) -> None:
    assert str(_found()[name]("what failed")) == "what failed"


def test_a_provider_error_tells_where_and_when_to_retry() -> None:
    error = ProviderError("no", route="host m", status=429, retry_after_s=2.5)
    assert (error.route, error.status, error.retry_after_s) == ("host m", 429, 2.5)


def test_an_overflow_carries_the_provider_s_own_numbers() -> None:
    error = ContextOverflow("too long", status=400, request_tokens=9_000, limit_tokens=8_192)
    assert (error.request_tokens, error.limit_tokens, error.retry_after_s) == (9_000, 8_192, None)


def test_what_cannot_fit_carries_both_sizes() -> None:
    error = ContextCannotFit("too big", needed_tokens=9_000, limit_tokens=4_096)
    assert (str(error), error.needed_tokens, error.limit_tokens) == ("too big", 9_000, 4_096)
