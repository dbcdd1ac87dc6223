"""How commands write data: lines for people, or JSON for programs."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import Any

import orjson

from agent.sessions.records import PassChanges
from agent.sessions.shapes import made_shape, pass_shape, row_shape
from agent.tui.changes import dropped
from agent.tui.figures import printable
from agent.tui.render import Line


def terminal_width() -> int:
    """Return the width of standard output in cells; 0 when it is no terminal."""
    return os.get_terminal_size(sys.stdout.fileno()).columns if sys.stdout.isatty() else 0


def print_lines(lines: Sequence[Line]) -> None:
    """Write lines to standard output; at a terminal control characters are made visible."""
    text = "".join(f"{line.text}\n" for line in lines)
    sys.stdout.write(printable(text) if sys.stdout.isatty() else text)


def print_json(value: Any) -> None:
    """Write one JSON document to standard output."""
    sys.stdout.write(orjson.dumps(value, option=orjson.OPT_INDENT_2).decode() + "\n")


def changes_shape(changes: PassChanges) -> dict[str, Any]:
    """Return what a pass changed as JSON, rows whole."""
    named, total = dropped(changes.record)
    return {
        "pass": pass_shape(changes.record),
        "left": [made_shape(message) for message in changes.left],
        "masked": [
            {"before": row_shape(before), "after": row_shape(after)}
            for before, after in changes.masked
        ],
        "made": [made_shape(message) for message in changes.made],
        "dropped": named,
        "dropped_count": total,
    }
