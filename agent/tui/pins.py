"""Standing instructions as lines."""

from __future__ import annotations

from collections.abc import Sequence

from agent.sessions.records import Pin
from agent.tui import figures
from agent.tui.render import Line


def pins_table(pins: Sequence[Pin], width: int) -> list[Line]:
    """Return pins with their numbers and where they come from."""
    if not pins:
        return [Line("no pins: /pin TEXT sets one, rules in your messages become one", "dim")]
    rows = [(str(pin.id), source_of(pin), _told(pin)) for pin in pins]
    lines = figures.table(("pin", "source", "instruction"), rows, width, right=("pin",))
    return [Line(text) for text in lines]


def _told(pin: Pin) -> str:
    """Return a pin, after what the user said later that may take it back."""
    doubt = f"(perhaps taken back by #{pin.doubt_seq}) " if pin.doubt else ""
    return figures.one_line(f"{doubt}{pin.text}")


def source_of(pin: Pin) -> str:
    """Return where a pin comes from."""
    return "by hand" if pin.source_seq is None else f"message #{pin.source_seq}"


def pin_line(pin: Pin, done: str) -> Line:
    """Return what was done to a pin."""
    return Line(f"{done} pin {pin.id}: {figures.one_line(pin.text)}", "dim")
