"""Taking messages back: every place from a row on is hidden, and may come back once."""

from __future__ import annotations

import orjson

from agent.base.errors import UndoRefused, UsageError
from agent.base.seqs import seq_ranges
from agent.sessions import statements as sql
from agent.sessions.places import read_head
from agent.sessions.records import Guards, PassKind, PassRecord, UndoResult
from agent.sessions.sqlite import Connection
from agent.sessions.standing import (
    Change,
    Scope,
    Totals,
    finish,
    record_change,
    take_over,
    undo_standing,
)

FROM_SEQ = "from_seq"
"""Key of a rewind's receipt: the row from which on it hides."""


def rewind(connection: Connection, scope: Scope, seq: int, guards: Guards) -> UndoResult:
    """Undo the passes that reach across row `seq`, then hide every place from it on."""
    conversation_id = scope.conversation_id
    seqs = [row[0] for row in connection.execute(sql.SHOWN_SEQS_FROM, (conversation_id, seq))]
    if seq < 1 or not seqs:
        watermark = read_head(connection, scope.session_id).watermark
        raise UsageError(
            f"session {scope.session_id!r} has nothing to take back from row {seq} on; "
            f"its rows are 1 to {watermark}"
        )
    take_over(connection, scope)
    reaching = connection.execute(sql.PASSES_ACROSS, (conversation_id, seq, seq)).fetchall()
    ledger = undo_standing(connection, scope, [ordinal for (ordinal,) in reaching])
    leaving = Totals(*connection.execute(sql.TOTALS_FROM, (conversation_id, seq)).fetchone())
    change = Change(PassKind.REWIND, {FROM_SEQ: seq, "hidden": seq_ranges(seqs)})
    growth = Totals(-leaving.count, -leaving.tokens)
    pass_id, number = record_change(connection, scope, change, growth)
    connection.execute(sql.HIDE_FROM, (number, conversation_id, seq))
    return finish(connection, scope, [*ledger, pass_id], guards)


def undo_rewind(connection: Connection, scope: Scope, record: PassRecord, ordinal: int) -> str:
    """Show again what a rewind hid and return the id of the ledger row; what a later rewind
    reaches stays hidden by that one.

    Raises: UndoRefused: a row was accepted since.
    """
    conversation_id = scope.conversation_id
    watermark = read_head(connection, scope.session_id).watermark
    if watermark > record.watermark:
        raise UndoRefused(
            f"pass {record.id!r} took back rows {record.receipt['hidden']}, and row "
            f"{record.watermark + 1} was accepted since; fork the session up to row "
            f"{record.watermark} and undo it there"
        )
    connection.execute(sql.MARK_UNDONE, (ordinal,))
    for later, from_seq in _later_rewinds(connection, conversation_id, ordinal):
        connection.execute(sql.HIDE_INSTEAD, (later, conversation_id, ordinal, from_seq))
    growth = Totals(*connection.execute(sql.TOTALS_HIDDEN, (conversation_id, ordinal)).fetchone())
    change = Change(PassKind.UNDO, {"shown": record.receipt["hidden"]}, record.id)
    connection.execute(sql.SHOW_AGAIN, (conversation_id, ordinal))
    return record_change(connection, scope, change, growth)[0]


def _later_rewinds(
    connection: Connection, conversation_id: int, ordinal: int
) -> list[tuple[int, int]]:
    """Return (number, first row it hides) of rewinds in force made after one, oldest first."""
    rows = connection.execute(sql.LATER_REWINDS, (conversation_id, ordinal)).fetchall()
    return [(number, orjson.loads(receipt)[FROM_SEQ]) for number, receipt in rows]
