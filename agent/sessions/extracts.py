"""What rows say, extracted after they were accepted so that no append ever waits for it.

Rows are read and looked at without a lock; only the result is written in a transaction. Two
processes may do the same batch: the first to write moves the mark, the other starts again.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

from agent.base.clock import Clock
from agent.base.later import later
from agent.base.messages import Message, text_of
from agent.base.redact import redact
from agent.sessions import pins
from agent.sessions import statements as sql
from agent.sessions.blobs import whole
from agent.sessions.places import conversation_of
from agent.sessions.records import StoredExtract
from agent.sessions.rows import decode_row
from agent.sessions.sqlite import Connection, SqliteDatabase

if TYPE_CHECKING:
    from agent.base import extract, extract_calls, extract_tasks, takeback
else:
    extract, extract_calls, extract_tasks, takeback = later(
        "agent.base", "extract", "extract_calls", "extract_tasks", "takeback"
    )

_BATCH_ROWS = 64
_BATCH_CHARS = 256 * 1024
_PAUSE_S = 0.002
_MARK = "SELECT last_extracted_row, (SELECT coalesce(max(id), 0) FROM messages) FROM extract_mark"
_SET_MARK = "UPDATE extract_mark SET last_extracted_row = ?"
_NEXT = f"""
SELECT {sql.ROW_COLUMNS.replace("p.seq", "m.seq")}, m.family FROM messages m
WHERE m.id > ? ORDER BY m.id LIMIT {_BATCH_ROWS}"""
_HOLDERS = """
SELECT c.id FROM conversations c
JOIN places p ON p.conversation_id = c.id AND p.seq = ? AND p.row_id = ?
WHERE c.family = ?"""
ADD = "INSERT OR IGNORE INTO extracts (row_id, start, kind, subject, value) VALUES (?, ?, ?, ?, ?)"
_OF_CONVERSATION = """
SELECT p.row_id, p.seq, m.role, e.kind, e.subject, e.value
FROM places p CROSS JOIN extracts e ON e.row_id = p.row_id CROSS JOIN messages m ON m.id = p.row_id
WHERE p.conversation_id = ? AND p.hidden_by IS NULL{} ORDER BY p.seq DESC, e.start LIMIT ?"""


INSTRUCTION, WITHDRAWAL, RELEASE, REMARK = "instruction", "withdrawal", "release", "remark"
_RULING = frozenset({INSTRUCTION, WITHDRAWAL, RELEASE})
"""Kinds of what a user lays down and takes back."""
_SAID = _RULING | {REMARK, "decision"}
_WEAK = frozenset({RELEASE, REMARK})
"""Kinds of what is stored only where it takes a rule back, or may."""


class _Row(NamedTuple):
    family: int
    message: Message


class _Batch(NamedTuple):
    """Rows after `mark`, and the mark when they are done."""

    mark: int
    rows: list[_Row]
    next_mark: int


def extract_pending(database: SqliteDatabase, clock: Clock) -> int:
    """Extract from the rows accepted until now; return how many."""
    done = 0
    last_wanted: int | None = None
    while True:
        with database.read() as connection:
            mark, newest = connection.execute(_MARK).fetchone()
            last_wanted = newest if last_wanted is None else min(last_wanted, newest)
            if mark >= last_wanted:
                return done
            batch = _next_batch(connection, mark, newest)
        found = [
            (row, [*extract.extract(_text(row.message), row.message["role"]), *_work(row.message)])
            for row in batch.rows
        ]
        with database.write() as connection:
            if connection.execute(_MARK).fetchone()[0] != batch.mark:
                continue
            now = clock.now()
            for row, extracts in found:
                row_id = row.message["_row_id"]
                values = [
                    (row_id, e.span[0], e.kind, e.subject, e.value)
                    for e in (*extracts, *_rule(connection, row, extracts, now))
                    if e.kind not in _WEAK
                ]
                connection.executemany(ADD, values)
            connection.execute(_SET_MARK, (batch.next_mark,))
        done += len(found)
        time.sleep(_PAUSE_S)


def _rule(
    connection: Connection, row: _Row, extracts: list[extract.Extract], now: float
) -> Iterator[extract.Extract]:
    """Set, retire and doubt pins by what a user's row says; yield what takes one back, or may."""
    said = [each for each in extracts if each.kind in _SAID]
    if not said or row.message["role"] != "user":
        return
    seq = row.message["_seq"]
    where = (seq, row.message["_row_id"], row.family)
    for (holder,) in connection.execute(_HOLDERS, where).fetchall():
        yield from _judge(connection, (holder, seq), said, now)


def _judge(
    connection: Connection, where: tuple[int, int], said: list[extract.Extract], now: float
) -> list[extract.Extract]:
    """Set, retire and doubt pins of one conversation; return what takes one back, or may.

    A sentence that sounds like a withdrawal and takes nothing back may be a rule itself.
    """
    kinds, (holder, seq) = extract.ExtractKind, where
    earlier = pins.before(connection, holder, seq)
    taken_back: list[extract.Extract] = []
    doubts: dict[str, extract.Extract] = {}
    for each in said:
        ruling = each.kind in _RULING
        retired = pins.withdraw(connection, earlier, seq, each.value, now) if ruling else []
        earlier = [pin for pin in earlier if pin not in retired]
        if retired and each.kind == RELEASE:
            taken_back.append(dataclasses.replace(each, kind=kinds.WITHDRAWAL))
        if each.kind == INSTRUCTION or (
            each.kind == WITHDRAWAL and not retired and takeback.lays_down(each.value)
        ):
            pins.recognise(connection, holder, seq, each.value, now)
        elif doubted := pins.doubt(connection, earlier, seq, each.value):
            doubt = dataclasses.replace(each, kind=kinds.DOUBT, subject=doubted.text)
            doubts[doubted.text] = doubt
    return [*taken_back, *doubts.values()]


def _next_batch(connection: Connection, mark: int, newest: int) -> _Batch:
    """Return the next accepted rows; rows that passes made are stepped over."""
    rows: list[_Row] = []
    chars, next_mark = 0, mark
    fetched = connection.execute(_NEXT, (mark,)).fetchall()
    for row in fetched:
        next_mark = row[0]
        if row[1] == "message":
            message = whole(connection, decode_row(row))
            rows.append(_Row(row[16], message))
            chars += len(_text(message))
        if chars >= _BATCH_CHARS:
            return _Batch(mark, rows, next_mark)
    return _Batch(mark, rows, next_mark if len(fetched) == _BATCH_ROWS else newest)


def _text(message: Message) -> str:
    """Return what a row says: its text, then what its tool calls were given."""
    text = text_of(message.get("content"))
    if message["role"] != "assistant" or not message.get("tool_calls"):
        return text
    given = [str((call.get("function") or {}).get("arguments")) for call in message["tool_calls"]]
    return "\n".join([text, *given])


def _work(message: Message) -> Iterator[extract.Extract]:
    """Yield the tasks that a row's calls list, its calls, or the end of the call that it answers;
    they stand behind all that is read in its text."""
    if not message.get("tool_calls") and not message.get("tool_call_id"):
        return
    kinds = extract.ExtractKind
    end = len(_text(message))
    if message["role"] == "tool":
        failure = redact(extract_calls.failure_of(message))
        yield extract.Extract(kinds.OUTCOME, str(message["tool_call_id"]), failure, (end, end))
        return
    for kind, found in (
        (kinds.TASK, extract_tasks.tasks_of(message)),
        (kinds.CALL, extract_calls.calls_of(message)),
    ):
        for place, (subject, text) in enumerate(found, end):
            yield extract.Extract(kind, subject, redact(text), (place, place))


def read_extracts(
    connection: Connection, session_id: str, kinds: Sequence[str], limit: int
) -> list[StoredExtract]:
    """Return extracts of a conversation, newest row first."""
    conversation_id = conversation_of(connection, session_id)
    chosen = f" AND e.kind IN ({', '.join('?' * len(kinds))})" if kinds else ""
    rows = connection.execute(_OF_CONVERSATION.format(chosen), (conversation_id, *kinds, limit))
    return [StoredExtract(*row) for row in rows]


def is_behind(connection: Connection) -> bool:
    """Return whether a row waits to be extracted from."""
    mark, newest = connection.execute(_MARK).fetchone()
    return bool(mark < newest)


def raise_mark(connection: Connection) -> None:
    """Move the mark to the newest row, after rows were stored together with their extracts."""
    connection.execute(_SET_MARK, (connection.execute(_MARK).fetchone()[1],))


def lower_mark(connection: Connection) -> None:
    """Move the mark to the newest row, after rows were deleted: their ids may be given again."""
    mark, newest = connection.execute(_MARK).fetchone()
    connection.execute(_SET_MARK, (min(mark, newest),))
