"""Reading a conversation: the live view, its head, and the whole history."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import orjson

from agent.base.errors import UnknownSession
from agent.base.messages import Message
from agent.sessions import statements as sql
from agent.sessions.blobs import whole
from agent.sessions.records import Head, HistoryRow, RowState, View
from agent.sessions.rows import decode_row
from agent.sessions.sqlite import Connection

LAST_SEQ = 2**62
"""Above every seq."""


def conversation_of(connection: Connection, session_id: str) -> int:
    """Return a session's conversation. Raises: UnknownSession."""
    row = connection.execute(sql.CONVERSATION_OF, (session_id,)).fetchone()
    if row is None:
        raise unknown_session(session_id)
    conversation_id: int = row[0]
    return conversation_id


def scope_of(connection: Connection, session_id: str | None) -> int | None:
    """Return a session's conversation, None for no session."""
    return None if session_id is None else conversation_of(connection, session_id)


def unknown_session(session_id: str) -> UnknownSession:
    """Return the error for an id that no session has."""
    return UnknownSession(f"no session {session_id!r}; see `hermes sessions list`")


def read_head(connection: Connection, session_id: str) -> Head:
    """Return generation and watermark."""
    row = connection.execute(sql.HEAD, (session_id,)).fetchone()
    if row is None:
        raise unknown_session(session_id)
    return Head(*row)


def read_view(connection: Connection, session_id: str, seen: View | None = None) -> View:
    """Return the live view with its kept total; of one that was `seen` before, what still stands is
    not read again."""
    row = connection.execute(sql.VIEW_HEAD, (session_id,)).fetchone()
    if row is None:
        raise unknown_session(session_id)
    conversation_id, generation, watermark, tokens, count = row
    if seen is not None and _stands(connection, seen, conversation_id, generation):
        later = live_rows(connection, conversation_id, seen.watermark)
        messages = [*seen.messages, *later]
        if len(messages) == count:
            return View(conversation_id, generation, watermark, messages, tokens)
    messages = live_rows(connection, conversation_id, 0)
    return View(conversation_id, generation, watermark, messages, tokens)


def _stands(connection: Connection, seen: View, conversation_id: int, generation: int) -> bool:
    """Return whether nothing but appends can have changed a view since. Its newest row tells a
    deleted conversation from a new one that got the same number."""
    if (seen.conversation_id, seen.generation) != (conversation_id, generation):
        return False
    if not seen.messages:
        return False
    newest = seen.messages[-1]
    where = (conversation_id, newest["_seq"])
    found = connection.execute(sql.LIVE_ROW_AT, where).fetchone()
    return bool(found == (newest["_row_id"], newest["_at"]))


def totals(messages: Sequence[Message]) -> tuple[int, int]:
    """Return how many rows a view has and their tokens, as the conversation counts them."""
    return len(messages), sum(message["_tokens"] for message in messages)


def read_rows_after(connection: Connection, session_id: str, seq: int) -> list[Message]:
    """Return live messages above a seq."""
    return live_rows(connection, conversation_of(connection, session_id), seq)


def live_rows(
    connection: Connection, conversation_id: int, after_seq: int, last_seq: int = LAST_SEQ
) -> list[Message]:
    """Return live messages above a seq up to another."""
    pass_ids: dict[int, str] | None = None
    messages = []
    for row in connection.execute(sql.LIVE_ROWS, (conversation_id, after_seq, last_seq)):
        message = decode_row(row)
        if row[16] is not None:
            if pass_ids is None:
                pass_ids = read_pass_ids(connection, conversation_id)
            show_masked(message, orjson.loads(row[17]), pass_ids[row[16]])
        messages.append(message)
    return messages


def show_masked(message: Message, stub: dict[str, Any], pass_id: str) -> None:
    """Put what a pass shows instead into a message read from the store."""
    message.update(stub, _stub=stub, _masked_by=pass_id)


def read_pass_ids(connection: Connection, conversation_id: int) -> dict[int, str]:
    """Return the pass ids of a conversation by the number that places carry."""
    return dict(connection.execute(sql.PASS_IDS, (conversation_id,)).fetchall())


def read_history(
    connection: Connection, session_id: str, first_seq: int, last_seq: int | None
) -> list[HistoryRow]:
    """Return every place of a seq range with whole contents."""
    conversation_id = conversation_of(connection, session_id)
    pass_ids = read_pass_ids(connection, conversation_id)
    bounds = (conversation_id, first_seq, LAST_SEQ if last_seq is None else last_seq)
    history = []
    for row in connection.execute(sql.HISTORY, bounds).fetchall():
        made_by, compacted_by, hidden_by, masked_by = row[16:20]
        history.append(
            HistoryRow(
                whole(connection, decode_row(row)),
                place_state(compacted_by, hidden_by, masked_by),
                pass_ids.get(compacted_by),
                pass_ids.get(made_by),
            )
        )
    return history


def place_state(compacted_by: Any, hidden_by: Any, masked_by: Any) -> RowState:
    """Return where a place stands; hidden beats covered beats masked."""
    if hidden_by is not None:
        return RowState.HIDDEN
    if compacted_by is not None:
        return RowState.COMPACTED
    return RowState.LIVE if masked_by is None else RowState.MASKED


def read_accepted(
    connection: Connection, session_id: str, first_seq: int, last_seq: int
) -> list[Message]:
    """Return accepted rows of a seq range byte-exact."""
    conversation_id = conversation_of(connection, session_id)
    rows = connection.execute(sql.ACCEPTED, (conversation_id, first_seq, last_seq)).fetchall()
    return [whole(connection, decode_row(row)) for row in rows]
