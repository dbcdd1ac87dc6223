"""Which pins a request carries."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.base.errors import UsageError
from agent.base.messages import Message
from agent.compaction.pins import (
    choose_pins,
    pin_tokens,
    refuse_over_budget,
    render_pins,
    unsaid_pins,
)
from agent.sessions.records import Pin

BY_HAND = Pin(1, "Answer in metric units.", None, 0.0)
OLD = Pin(2, "Never push to main.", 3, 0.0)
NEW = Pin(3, "Always sign commits.", 9, 0.0)


def row(seq: int, text: str, kind: str = "message") -> Message:
    return {"role": "user", "content": text, "_seq": seq, "_kind": kind}


def test_pins_set_by_hand_come_first_then_the_newest() -> None:
    both = pin_tokens(BY_HAND) + pin_tokens(NEW)
    assert choose_pins([BY_HAND, OLD, NEW], both) == ([BY_HAND, NEW], [OLD])
    assert choose_pins([BY_HAND, OLD, NEW], 10_000) == ([BY_HAND, OLD, NEW], [])


@given(st.lists(st.integers(1, 60), max_size=12), st.integers(0, 200))
def test_chosen_pins_are_within_the_budget_and_none_is_forgotten(
    sizes: list[int], budget: int
) -> None:
    pins = [Pin(at, "word " * size, at or None, 0.0) for at, size in enumerate(sizes)]
    shown, beyond = choose_pins(pins, budget)
    assert sum(map(pin_tokens, shown)) <= budget
    assert sorted(pin.id for pin in [*shown, *beyond]) == [pin.id for pin in pins]


def test_a_pin_whose_message_stands_above_the_summary_is_not_said_twice() -> None:
    view = [row(5, "notes", "summary"), row(9, "Always sign commits. And the parser?")]
    assert unsaid_pins(view, [BY_HAND, OLD, NEW]) == [BY_HAND, OLD]
    assert unsaid_pins([row(3, "Never push to main."), *view], [OLD]) == [OLD]
    assert unsaid_pins([row(3, "Never push to main.")], [OLD]) == []


DOUBTED = Pin(4, "Leave the log alone.", 3, 0.0, 7, "Legal has seen the log.")


def test_what_may_take_a_pin_back_is_shown_behind_it() -> None:
    shown = "- Leave the log alone. [3]; said later and perhaps taking it back [7]: "
    assert render_pins([DOUBTED]).splitlines()[1:] == [shown + DOUBTED.doubt]
    assert pin_tokens(DOUBTED) > pin_tokens(Pin(4, DOUBTED.text, 3, 0.0))


def test_a_doubt_is_shown_unless_its_message_stands_above_the_summary() -> None:
    summary, rule, later = row(5, "notes", "summary"), row(3, DOUBTED.text), row(7, DOUBTED.doubt)
    assert unsaid_pins([summary, rule, later], [DOUBTED]) == []
    assert unsaid_pins([summary, rule], [DOUBTED]) == [DOUBTED]
    assert unsaid_pins([summary, later], [DOUBTED]) == [Pin(4, DOUBTED.text, 3, 0.0)]


def test_pins_are_shown_with_their_source() -> None:
    block = render_pins([BY_HAND, OLD])
    assert block.splitlines()[1:] == [
        "- Answer in metric units. (by hand)",
        "- Never push to main. [3]",
    ]
    assert render_pins([]) == ""


def test_a_pin_past_the_budget_is_refused_with_the_figures() -> None:
    taken = pin_tokens(BY_HAND)
    refuse_over_budget("Short.", [BY_HAND, OLD], 100)
    with pytest.raises(UsageError, match=f"{taken} of the 20 for pins are taken by 1 others"):
        refuse_over_budget("Much longer than the rest of the budget allows.", [BY_HAND, OLD], 20)
