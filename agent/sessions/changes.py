"""What one pass did to the view: read from the pointers, so it is what the store shows now."""

from __future__ import annotations

from typing import Final

import orjson

from agent.base.messages import Message
from agent.sessions import statements as sql
from agent.sessions.blobs import whole
from agent.sessions.passes import pass_state, read_pass
from agent.sessions.records import PassChanges
from agent.sessions.rows import decode_row
from agent.sessions.sqlite import Connection

_PLACES: Final = f"""
SELECT {sql.ROW_COLUMNS}, p.stub, p.tokens FROM places p JOIN messages m ON m.id = p.row_id
WHERE p.conversation_id = ? AND {{}} ORDER BY p.seq, p.row_id"""
_LEFT: Final = _PLACES.format("? IN (p.compacted_by, p.hidden_by)")
_MADE: Final = _PLACES.format("p.made_by = ?")
_MASKED: Final = _PLACES.format("p.masked_by = ?")


def read_changes(connection: Connection, name: str, conversation_id: int | None) -> PassChanges:
    """Return what the pass of that id or prefix did, in one conversation or in the first one."""
    record = read_pass(connection, name, conversation_id)
    ordinal = pass_state(connection, record.id, record.conversation_id)[0]
    where = (record.conversation_id, ordinal)
    masked = []
    for row in connection.execute(_MASKED, where).fetchall():
        accepted = whole(connection, decode_row(row))
        stub = orjson.loads(row[16])
        shown: Message = {**accepted, **stub, "_stub": stub, "_tokens": row[17]}
        masked.append((accepted, {**shown, "_masked_by": record.id}))
    left, made = (
        [
            whole(connection, decode_row(row))
            for row in connection.execute(statement, where).fetchall()
        ]
        for statement in (_LEFT, _MADE)
    )
    return PassChanges(record, left, masked, made)
