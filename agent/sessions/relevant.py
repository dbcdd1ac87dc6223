"""Search that ranks: the rows that say most of what a question asks come first.

Which rows hold a word is asked of the index word by word; only the most promising rows are read and
judged by their best passage.
"""

from __future__ import annotations

from typing import Any

from agent.base.messages import Message
from agent.base.relevance import best_passage, weights_of, words_of
from agent.sessions import statements as sql
from agent.sessions.blobs import whole
from agent.sessions.places import conversation_of, place_state
from agent.sessions.records import SearchHit
from agent.sessions.rows import decode_row
from agent.sessions.search import COLUMNS, MARK, NOT_INDEXED, PLACED, SOUGHT, find_rows
from agent.sessions.sqlite import Connection
from agent.sessions.terms import (
    fold_text,
    parse_query,
    pieces_of,
    scope_piece,
    searched_text,
    snippet,
)

MOST_ROWS_A_WORD = 2_000
"""Newest rows looked up for each word; a commoner word says little of older ones."""
MOST_READ = 120
"""Most promising rows that are read and judged."""
OF_ROLE = {"user": 1.3, "assistant": 1.0, "tool": 0.9}
"""What people said answers rather than what their tools printed."""
NEWEST = 0.15
"""What the newest row is worth more than the oldest: of two answers the later one holds."""

_HOLDING = f"""
SELECT f.rowid, m.role FROM message_index f CROSS JOIN messages m ON m.id = f.rowid
WHERE f.message_index MATCH ? ORDER BY f.rowid DESC LIMIT {MOST_ROWS_A_WORD}"""
_CHOSEN = f"{COLUMNS} FROM messages m {PLACED} {SOUGHT} AND m.id IN ({{}})"
_ROWS = "SELECT count(*) FROM places WHERE conversation_id = ?"

_Row = tuple[Any, ...]


def rank_rows(connection: Connection, text: str, session_id: str, limit: int) -> list[SearchHit]:
    """Return the session's rows that say most of a question's words, the best first.

    A quoted phrase, and a question without any word long enough for the index, is looked up as it
    stands by `find_rows`.
    """
    words = words_of(fold_text(text))
    looked_up = {word: pieces for word in words if (pieces := pieces_of(fold_text(word)))}
    if '"' in text or not looked_up:
        return find_rows(connection, parse_query(text), session_id, limit)
    scope = conversation_of(connection, session_id)
    family = connection.execute(sql.FAMILY_OF, (scope,)).fetchone()[0]
    holding = {
        word: _holding(connection, [*pieces, scope_piece(family)])
        for word, pieces in looked_up.items()
    }
    total = connection.execute(_ROWS, (scope,)).fetchone()[0]
    weights = weights_of(words, {word: len(rows) for word, rows in holding.items()}, total)
    promising: dict[int, float] = {}
    for word, row_ids in holding.items():
        for row_id, role in row_ids:
            worth = weights[word] * OF_ROLE.get(role, 1.0)
            promising[row_id] = promising.get(row_id, 0.0) + worth
    chosen = sorted(promising, key=lambda row_id: (-promising[row_id], -row_id))[:MOST_READ]
    marks = ", ".join("?" * len(chosen))
    mark = connection.execute(MARK).fetchone()[0]
    rows: list[_Row] = [
        *connection.execute(NOT_INDEXED, {"scope": scope, "mark": mark}),
        *connection.execute(_CHOSEN.format(marks).replace(":scope", f"{scope:d}"), chosen),
    ]
    judged = [each for row in rows if (each := _judge(connection, row, weights, total))[0] > 0]
    judged.sort(key=lambda each: (-each[0], -each[1].message["_seq"]))
    return [hit for _score, hit in judged[:limit]]


def _holding(connection: Connection, pieces: list[str]) -> list[tuple[int, str]]:
    """Return the newest rows of the index that hold all pieces, with their roles."""
    match = " AND ".join('"' + piece.replace('"', '""') + '"' for piece in pieces)
    return connection.execute(_HOLDING, (match,)).fetchall()


def _judge(
    connection: Connection, row: _Row, weights: dict[str, float], total: int
) -> tuple[float, SearchHit]:
    message: Message = decode_row(row)
    text = searched_text(whole(connection, dict(message)))
    folded = fold_text(text)
    passage = best_passage(folded, weights)
    session_id, title, compacted_by, masked_by = row[16:20]
    hit = SearchHit(
        session_id,
        title,
        place_state(compacted_by, None, masked_by),
        message,
        snippet(text, folded, passage.start),
    )
    newness = 1 + NEWEST * message["_seq"] / max(total, 1)
    return passage.score * OF_ROLE.get(message["role"], 1.0) * newness, hit
