"""Giving a conversation another session: what `compression.in_place: false` asks of a commit."""

from __future__ import annotations

from agent.base.errors import UsageError
from agent.sessions import statements as sql
from agent.sessions.directory import read_tip
from agent.sessions.rows import dump_json
from agent.sessions.sqlite import Connection


def rotate(connection: Connection, conversation_id: int, child_id: str, now: float) -> None:
    """End the conversation's tip and let a new session carry on all that it has, its title too.

    Rows, places and passes belong to the conversation and do not move. A tip that was ended
    already takes the new end: a compaction shows that it is still in use.
    Raises: UsageError: a session has that id.
    """
    require_free_id(connection, child_id)
    tip = read_tip(connection, conversation_id)
    connection.execute(sql.HAND_OVER, (now, tip.id))
    origin = dump_json(dict(tip.origin), "origin")
    connection.execute(
        sql.DESCENDANT_SESSION, (child_id, conversation_id, tip.title, now, origin, tip.id)
    )
    connection.execute(sql.SET_TIP, (child_id, conversation_id))


def require_free_id(connection: Connection, session_id: str) -> None:
    """Raise UsageError unless a new session may have that id."""
    if not session_id:
        raise UsageError("a session needs an id that is not empty")
    if connection.execute(sql.CONVERSATION_OF, (session_id,)).fetchone() is not None:
        raise UsageError(f"a session has the id {session_id!r} already; choose another")
