"""Records of the store as JSON, the same for the command line and over HTTP."""

from __future__ import annotations

import dataclasses
from typing import Any

from agent.base.messages import Message, wire_message
from agent.sessions.records import HistoryRow, PassRecord, SessionRecord


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
