"""Which pins a request carries, and how they read. Pure; pins are never part of a stored row.

A pin whose source stands in the view as a message of its own needs no second mention. Once a pass
has put the source into a summary, or when it was set by hand, the pin is rendered: in the frame of
the summary, whose text then stays the same until the next pass, or else before the first message.
So a provider's prompt cache is broken by a pin only when a pin itself changes.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from agent.base.errors import UsageError
from agent.base.messages import Message, is_user_text, text_of
from agent.base.tokens import estimate_text
from agent.sessions.records import Pin

HEADING = "Standing instructions of the user, verbatim; they hold until the user takes them back:"
DOUBT = "; said later and perhaps taking it back"
LINE_TOKENS = 8
_SUMMARIES = frozenset({"summary", "mechanical"})


def pin_tokens(pin: Pin) -> int:
    """Return what a pin takes of the pin budget."""
    return estimate_text(pin.text + _doubt(pin)) + LINE_TOKENS


def refuse_over_budget(text: str, pins: Sequence[Pin], budget_tokens: int) -> None:
    """Return when a pin of `text` fits beside those set by hand.

    Raises: UsageError with the figures when it does not.
    """
    by_hand = [pin for pin in pins if pin.source_seq is None]
    used, wanted = sum(map(pin_tokens, by_hand)), pin_tokens(Pin(0, text, None, 0.0))
    if used + wanted > budget_tokens:
        raise UsageError(
            f"the pin takes about {wanted} tokens, and {used} of the {budget_tokens} for pins are "
            f"taken by {len(by_hand)} others; shorten it or take one off with /unpin"
        )


def choose_pins(pins: Sequence[Pin], budget_tokens: int) -> tuple[list[Pin], list[Pin]]:
    """Return (pins within the budget, those beyond it), both in their given order.

    Pins set by hand come first, then recognised ones, the newest first.
    """
    by_rank = sorted(
        pins, key=lambda pin: (pin.source_seq is not None, -(pin.source_seq or pin.id))
    )
    within: set[int] = set()
    for pin in by_rank:
        tokens = pin_tokens(pin)
        if tokens <= budget_tokens:
            within.add(pin.id)
            budget_tokens -= tokens
    return [p for p in pins if p.id in within], [p for p in pins if p.id not in within]


def unsaid_pins(view: Sequence[Message], pins: Sequence[Pin]) -> list[Pin]:
    """Return the pins that no user message above the newest summary says, without the doubts that
    one says; a doubt that none says brings its pin along."""
    wanted = {pin.source_seq for pin in pins} | {pin.doubt_seq for pin in pins}
    said: dict[int | None, str] = {None: ""}
    for row in reversed(view):
        if row.get("_kind") in _SUMMARIES:
            break
        if row.get("_seq") in wanted and is_user_text(row):
            said[row["_seq"]] = text_of(row.get("content"))
    shown = (
        dataclasses.replace(pin, doubt_seq=None, doubt="") if pin.doubt_seq in said else pin
        for pin in pins
    )
    return [pin for pin in shown if pin.doubt or pin.text not in said.get(pin.source_seq, "")]


def carried_tokens(view: Sequence[Message], pins: Sequence[Pin]) -> int:
    """Return what a request with this view takes beside its messages for `pins`, those chosen."""
    return estimate_text(render_pins(unsaid_pins(view, pins)))


def render_pins(pins: Sequence[Pin]) -> str:
    """Return the block that shows pins with their sources; empty for none."""
    return "\n".join([HEADING, *map(_line, pins)]) if pins else ""


def _line(pin: Pin) -> str:
    source = "(by hand)" if pin.source_seq is None else f"[{pin.source_seq}]"
    return f"- {pin.text} {source}{_doubt(pin)}"


def _doubt(pin: Pin) -> str:
    """Return what stands behind a pin that later words of the user's may take back."""
    return f"{DOUBT} [{pin.doubt_seq}]: {pin.doubt}" if pin.doubt else ""
