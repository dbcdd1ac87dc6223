"""Full-text search over accepted rows.

The index is not kept while rows are accepted: `index_pending` completes it after a turn, in
short transactions that let appends through, and a search looks through the few rows beyond it.
What the index finds are only candidates; each is checked against the row's text.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from itertools import chain, islice
from typing import Any

from agent.base.messages import Message
from agent.sessions import statements as sql
from agent.sessions.blobs import whole
from agent.sessions.places import conversation_of, place_state
from agent.sessions.records import SearchHit
from agent.sessions.rows import decode_row
from agent.sessions.sqlite import Connection, SqliteDatabase
from agent.sessions.terms import (
    Query,
    first_match,
    fold_text,
    index_text,
    scope_piece,
    searched_text,
    snippet,
)

SCANNED_ROWS = 20_000
"""Newest rows that a search looks through when no word of it is long enough for the index."""
LARGEST_BACKLOG = 1_000
"""Rows beyond the mark that a search looks through by itself; more are indexed first."""
_BATCH_ROWS = 32
_BATCH_CHARS = 48 * 1024
_PAUSE_S = 0.005
"""Between two batches, so that a writer who polls for the lock finds it free."""

MARK = "SELECT last_indexed_row, (SELECT coalesce(max(id), 0) FROM messages) FROM search_mark"
_SET_MARK = "UPDATE search_mark SET last_indexed_row = ?"
_ADD = "INSERT INTO message_index (rowid, body) VALUES (?, ?)"
_REMOVE = "INSERT INTO message_index (message_index, rowid, body) VALUES ('delete', ?, ?)"

# CROSS JOIN keeps the order of the tables: newest rows first, without sorting.
COLUMNS = f"SELECT {sql.ROW_COLUMNS}, s.id, s.title, p.compacted_by, p.masked_by"
PLACED = """
CROSS JOIN conversations c ON c.family = m.family
CROSS JOIN places p ON p.conversation_id = c.id AND p.seq = m.seq AND p.row_id = m.id
CROSS JOIN sessions s ON s.id = c.tip
"""
SOUGHT = """
WHERE m.kind = 'message' AND p.hidden_by IS NULL AND (:scope IS NULL OR c.id = :scope)"""
_INDEXABLE = f"""
SELECT {sql.ROW_COLUMNS.replace("p.seq", "m.seq")}, m.family FROM messages m
WHERE m.id > ? ORDER BY m.id LIMIT {_BATCH_ROWS}"""
_BY_INDEX = f"""
{COLUMNS} FROM message_index f CROSS JOIN messages m ON m.id = f.rowid {PLACED} {SOUGHT}
AND f.message_index MATCH :pieces ORDER BY f.rowid DESC"""
NOT_INDEXED = f"{COLUMNS} FROM messages m {PLACED} {SOUGHT} AND m.id > :mark ORDER BY m.id DESC"
_NEWEST = f"{COLUMNS} FROM messages m {PLACED} {SOUGHT} ORDER BY m.id DESC LIMIT {SCANNED_ROWS}"
_NEWEST_IN = f"""
{COLUMNS} FROM places p CROSS JOIN messages m ON m.id = p.row_id
CROSS JOIN conversations c ON c.id = :scope CROSS JOIN sessions s ON s.id = c.tip
WHERE p.conversation_id = :scope AND m.kind = 'message' AND p.hidden_by IS NULL
ORDER BY p.seq DESC LIMIT {SCANNED_ROWS}"""

_Row = tuple[Any, ...]


def backlog(database: SqliteDatabase) -> int:
    """Return about how many rows the index does not know yet."""
    mark, newest = _read_marks(database)
    return newest - mark


def _read_marks(database: SqliteDatabase) -> tuple[int, int]:
    with database.read() as connection:
        marks: tuple[int, int] = connection.execute(MARK).fetchone()
    return marks


def index_pending(database: SqliteDatabase) -> int:
    """Index the rows accepted until now that are not indexed yet; return how many."""
    indexed = 0
    mark, last_wanted = _read_marks(database)
    while mark < last_wanted:
        with database.write() as connection:
            mark, newest = connection.execute(MARK).fetchone()
            last_wanted = min(last_wanted, newest)
            bodies, mark = _next_bodies(connection, mark, newest)
            connection.executemany(_ADD, bodies)
            connection.execute(_SET_MARK, (mark,))
        indexed += len(bodies)
        if mark < last_wanted:
            time.sleep(_PAUSE_S)
    return indexed


def _next_bodies(
    connection: Connection, mark: int, newest: int
) -> tuple[list[tuple[int, str]], int]:
    """Return (row id, body) of the next rows to index, and the mark after them."""
    bodies: list[tuple[int, str]] = []
    chars = 0
    rows = connection.execute(_INDEXABLE, (mark,)).fetchall()
    for row in rows:
        mark = row[0]
        if row[1] == "message":
            body = index_text(row[16], whole(connection, decode_row(row)))
            bodies.append((mark, body))
            chars += len(body)
        if chars >= _BATCH_CHARS:
            return bodies, mark
    return bodies, mark if len(rows) == _BATCH_ROWS else newest


def drop_rows(connection: Connection, family: int, messages: list[Message]) -> None:
    """Take those of a family's rows that are indexed out of the index."""
    mark = connection.execute(MARK).fetchone()[0]
    connection.executemany(
        _REMOVE,
        [
            (
                message["_row_id"],
                index_text(family, whole(connection, dict(message))),
            )
            for message in messages
            if message["_row_id"] <= mark and "_kind" not in message
        ],
    )


def lower_mark(connection: Connection) -> None:
    """Move the mark to the newest row, after rows were deleted: their ids may be given again."""
    mark, newest = connection.execute(MARK).fetchone()
    connection.execute(_SET_MARK, (min(mark, newest),))


def find_rows(
    connection: Connection, query: Query, session_id: str | None, limit: int
) -> list[SearchHit]:
    """Return the newest rows that hold every needle, one that forks share once.

    Words of one or two characters (one, for Chinese, Japanese and Korean) only filter; a query of
    nothing else looks through the newest `SCANNED_ROWS` rows.
    """
    scope = None if session_id is None else conversation_of(connection, session_id)
    rows = _once(_candidates(connection, query, scope))
    hits = (_hit(connection, query, row) for row in rows)
    return list(islice((hit for hit in hits if hit is not None), max(0, limit)))


def _once(rows: Iterator[_Row]) -> Iterator[_Row]:
    """Yield each row of the store as the oldest conversation has it, which comes first."""
    last = None
    for row in rows:
        if row[0] != last:
            last = row[0]
            yield row


def _candidates(connection: Connection, query: Query, scope: int | None) -> Iterator[_Row]:
    pieces = query.pieces
    if pieces:
        return chain(_not_indexed(connection, scope), _by_index(connection, pieces, scope))
    newest = _NEWEST if scope is None else _NEWEST_IN
    return connection.execute(newest, {"scope": scope})


def _not_indexed(connection: Connection, scope: int | None) -> Iterator[_Row]:
    mark = connection.execute(MARK).fetchone()[0]
    return connection.execute(NOT_INDEXED, {"scope": scope, "mark": mark})


def _by_index(connection: Connection, pieces: list[str], scope: int | None) -> Iterator[_Row]:
    if scope is not None:
        family = connection.execute(sql.FAMILY_OF, (scope,)).fetchone()[0]
        pieces = [*pieces, scope_piece(family)]
    match = " AND ".join('"' + piece.replace('"', '""') + '"' for piece in pieces)
    return connection.execute(_BY_INDEX, {"scope": scope, "pieces": match})


def _hit(connection: Connection, query: Query, row: _Row) -> SearchHit | None:
    message = decode_row(row)
    text = searched_text(whole(connection, dict(message)))
    folded = fold_text(text)
    start = first_match(folded, query)
    if start is None:
        return None
    session_id, title, compacted_by, masked_by = row[16:20]
    state = place_state(compacted_by, None, masked_by)
    return SearchHit(session_id, title, state, message, snippet(text, folded, start))
