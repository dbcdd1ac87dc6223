"""Deleting a whole conversation: the one exception to insert-only, asked for by a person."""

from __future__ import annotations

from typing import Final

from agent.sessions import extracts, search
from agent.sessions.places import conversation_of
from agent.sessions.rows import decode_row
from agent.sessions.sqlite import Connection
from agent.sessions.statements import FAMILY_OF, ROW_COLUMNS

_OWN_ROWS: Final = """
SELECT p.row_id FROM places p WHERE p.conversation_id = :conversation AND NOT EXISTS (
    SELECT 1 FROM conversations c JOIN places o
        ON o.conversation_id = c.id AND o.seq = p.seq AND o.row_id = p.row_id
    WHERE c.family = :family AND c.id <> :conversation)"""
_OWN_MESSAGES: Final = f"""
SELECT {ROW_COLUMNS} FROM places p JOIN messages m ON m.id = p.row_id
WHERE p.conversation_id = :conversation AND p.row_id IN ({_OWN_ROWS})"""
_OPEN_GATE: Final = "INSERT INTO deletions VALUES (:conversation)"
_STEPS: Final = (
    f"DELETE FROM extracts WHERE row_id IN ({_OWN_ROWS})",
    f"DELETE FROM messages WHERE id IN ({_OWN_ROWS})",
    "DELETE FROM places WHERE conversation_id = :conversation",
    "DELETE FROM pins WHERE conversation_id = :conversation",
    "DELETE FROM prefixes WHERE conversation_id = :conversation",
    "DELETE FROM responses WHERE conversation_id = :conversation",
    "DELETE FROM compaction_passes WHERE conversation_id = :conversation",
    "DELETE FROM compression_locks WHERE conversation_id = :conversation",
    """UPDATE sessions SET parent_session_id = NULL WHERE parent_session_id IN (
        SELECT id FROM sessions WHERE conversation_id = :conversation)""",
    "DELETE FROM sessions WHERE conversation_id = :conversation",
    "DELETE FROM conversations WHERE id = :conversation",
    "DELETE FROM deletions",
)
_ORPHANED: Final = """
DELETE FROM blobs WHERE sha256 = ? AND NOT EXISTS (SELECT 1 FROM messages WHERE blob = ?)"""


def delete_conversation(connection: Connection, session_id: str) -> None:
    """Delete everything of a session's conversation that no other conversation points at."""
    conversation_id = conversation_of(connection, session_id)
    family = connection.execute(FAMILY_OF, (conversation_id,)).fetchone()[0]
    conversation = {"conversation": conversation_id, "family": family}
    rows = connection.execute(_OWN_MESSAGES, conversation).fetchall()
    messages = [decode_row(row) for row in rows]
    search.drop_rows(connection, family, messages)
    connection.execute(_OPEN_GATE, conversation)
    for step in _STEPS:
        connection.execute(step, conversation)
    for sha256 in {message["_blob"] for message in messages if "_blob" in message}:
        connection.execute(_ORPHANED, (sha256, sha256))
    search.lower_mark(connection)
    extracts.lower_mark(connection)
