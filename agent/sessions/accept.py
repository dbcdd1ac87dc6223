"""Accepting messages: the only way a row comes into being."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from agent.base.messages import Message
from agent.base.tokens import estimate_message
from agent.sessions import statements as sql
from agent.sessions.blobs import Blob, pack_result, show_excerpt, store_blob
from agent.sessions.places import unknown_session
from agent.sessions.rows import EncodedRow, Values, encode_row
from agent.sessions.sqlite import Connection, insert_id


class Incoming(NamedTuple):
    """A message made ready outside the transaction: encoded, counted, compressed.

    `tokens` is 0 beside a blob, whose excerpt is not known before its seq is.
    """

    row: EncodedRow
    tokens: int
    blob: Blob | None


class Origin(NamedTuple):
    """Where and when a row comes into being, and which kind of row it is.

    `family` is that of its conversation.
    """

    session_id: str
    family: int
    seq: int
    kind: str
    at: float


def make_ready(message: Message) -> Incoming:
    """Return a message ready to be inserted; raises UsageError when it cannot be stored."""
    row = encode_row(message)
    blob = pack_result(row.message)
    return Incoming(row, 0 if blob else estimate_message(row.message), blob)


def accept(
    connection: Connection, session_id: str, batch: Sequence[Incoming], now: float
) -> list[Message]:
    """Insert rows at the end of a session's conversation and return them as stored."""
    end = connection.execute(sql.END_OF, (session_id,)).fetchone()
    if end is None:
        raise unknown_session(session_id)
    conversation_id, family, watermark = end
    stored = [
        _insert(
            connection, conversation_id, Origin(session_id, family, seq, "message", now), incoming
        )
        for seq, incoming in enumerate(batch, start=watermark + 1)
    ]
    count, tokens = len(stored), sum(message["_tokens"] for message in stored)
    connection.execute(
        sql.COUNT_ACCEPTED, (watermark + count, count, count, tokens, now, conversation_id)
    )
    return stored


def _insert(
    connection: Connection, conversation_id: int, origin: Origin, incoming: Incoming
) -> Message:
    message = dict(incoming.row.message)
    values, tokens, blob = incoming.row.values, incoming.tokens, incoming.blob
    if blob is not None:
        store_blob(connection, blob)
        message["content"] = show_excerpt(message["content"], origin.seq)
        message["_blob"] = blob.sha256
        tokens = estimate_message(message)
        values = (values[0], message["content"], *values[2:])
    row_id = insert_row(connection, origin, values, tokens, blob)
    connection.execute(sql.NEW_PLACE, (conversation_id, origin.seq, row_id, tokens, None))
    message.update(_row_id=row_id, _seq=origin.seq, _tokens=tokens, _at=origin.at)
    return message


def insert_row(
    connection: Connection,
    origin: Origin,
    values: Values,
    tokens: int,
    blob: Blob | None = None,
) -> int:
    """Insert one row of `messages` and return its id."""
    came_from = (origin.session_id, origin.family, origin.seq, origin.kind)
    sha256 = blob.sha256 if blob else None
    return insert_id(connection, sql.NEW_ROW, (*came_from, *values, origin.at, tokens, sha256))
