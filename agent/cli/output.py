"""How commands write data: lines for people, or JSON for programs."""

from __future__ import annotations

import dataclasses
import os
import sys
from collections.abc import Sequence
from typing import Any

import orjson

from agent.base.messages import Message, wire_message
from agent.sessions.records import HistoryRow, PassChanges, PassRecord, SessionRecord
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


def session_shape(record: SessionRecord) -> dict[str, Any]:
    """Return a session as JSON, without the prompt."""
    shape = dataclasses.asdict(record)
    del shape["system_prompt"]
    return shape


def pass_shape(record: PassRecord) -> dict[str, Any]:
    """Return a ledger row as JSON."""
    return dataclasses.asdict(record)


def row_shape(message: Message) -> dict[str, Any]:
    """Return an accepted row as JSON: what was accepted, its number and its time."""
    return {"seq": message.get("_seq"), "at": message.get("_at"), **wire_message(message)}


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


def made_shape(message: Message) -> dict[str, Any]:
    """Return a row as JSON with its kind, since a pass may have made it."""
    return {**row_shape(message), "kind": message.get("_kind", "message")}


def place_shape(row: HistoryRow) -> dict[str, Any]:
    """Return a place as JSON: the row, where it stands, and the passes that made or covered it."""
    return {
        **made_shape(row.message),
        "state": row.state.value,
        "made_by": row.made_by,
        "compacted_by": row.compacted_by,
    }
