"""What an outcome writes about the future: the brake, the health record, the usage anchor."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import orjson

from agent.base.messages import clean_text
from agent.sessions import statements as sql
from agent.sessions.records import Guards
from agent.sessions.rows import dump_record
from agent.sessions.sqlite import Connection


def arm(
    connection: Connection,
    conversation_id: int,
    until: float,
    error: str | None,
    failure_class: str,
) -> None:
    """Arm the brake: the later deadline wins, the newest error stays."""
    connection.execute(
        sql.ARM_COOLDOWN, (until, until, clean_text(error or ""), failure_class, conversation_id)
    )


def clear(connection: Connection, conversation_id: int) -> None:
    """Release the brake."""
    connection.execute(sql.CLEAR_COOLDOWN, (conversation_id,))


def read_cooldown(
    connection: Connection, conversation_id: int, now: float
) -> dict[str, Any] | None:
    """Return the running cooldown; a deadline equal to now has passed."""
    until, error, failure_class = connection.execute(sql.COOLDOWN, (conversation_id,)).fetchone()
    if until is None or until <= now:
        return None
    return {
        "cooldown_until": until,
        "remaining_seconds": until - now,
        "error": error,
        "failure_class": failure_class,
    }


def write_guards(connection: Connection, conversation_id: int, guards: Guards) -> None:
    """Write an outcome's guards: clear, then arm, the health record, what showed."""
    if guards.clear_cooldown:
        clear(connection, conversation_id)
    if guards.cooldown_until is not None:
        arm(
            connection,
            conversation_id,
            guards.cooldown_until,
            guards.cooldown_error,
            guards.failure_class,
        )
    if guards.health is not None:
        health = dump_record(guards.health, "the health record")
        connection.execute(sql.SET_HEALTH, (health, conversation_id))
    if guards.noted:
        noted = dump_record(guards.noted, "what showed of a pass")
        shown = {"noted": noted, "conversation_id": conversation_id}
        connection.execute(sql.NOTE_ON_RECEIPT, shown)


def read_health(connection: Connection, conversation_id: int) -> dict[str, Any]:
    """Return the health record."""
    return _load(connection, sql.HEALTH, conversation_id)


def read_anchor(connection: Connection, conversation_id: int) -> dict[str, Any]:
    """Return the usage anchor."""
    return _load(connection, sql.ANCHOR, conversation_id)


def write_anchor(connection: Connection, conversation_id: int, anchor: Mapping[str, Any]) -> None:
    """Replace the usage anchor."""
    text = dump_record(anchor, "the usage anchor")
    connection.execute(sql.SET_ANCHOR, (text, conversation_id))


def reset_anchor(connection: Connection, conversation_id: int) -> None:
    """Forget the anchor but for the calibration ratio: the view it counted is gone."""
    anchor = read_anchor(connection, conversation_id)
    kept = {"ratio": anchor["ratio"]} if "ratio" in anchor else {}
    write_anchor(connection, conversation_id, kept)


def _load(connection: Connection, statement: str, conversation_id: int) -> dict[str, Any]:
    record: dict[str, Any] = orjson.loads(
        connection.execute(statement, (conversation_id,)).fetchone()[0]
    )
    return record
