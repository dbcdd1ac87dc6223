"""One conversation as JSONL that reads back identical: the form of the file, and writing it.

A header, then sessions, ledger, pins and rows by seq, each line an object with a `type`. Pointers
are pass ids. A row carries its place and what was extracted from it; a blob stands directly before
the first row that needs it. The same conversation always gives the same bytes.
Read next: `survey.py` (judging a file), `intake.py` (taking it in).
"""

from __future__ import annotations

import base64
from collections.abc import Iterator, Mapping
from typing import Any, Final, Protocol

import orjson

from agent.base.clock import Clock
from agent.sessions import statements as sql
from agent.sessions.blobs import packed_blob
from agent.sessions.extracts import extract_pending, is_behind
from agent.sessions.places import conversation_of, read_pass_ids
from agent.sessions.rows import STORE_KEYS, decode_row
from agent.sessions.sqlite import Connection, SqliteDatabase

FORMAT: Final = "hermes-continuum"
VERSION: Final = 1
SESSION_FIELDS: Final = (
    *("id", "source", "model", "model_config", "system_prompt", "parent_session_id", "title"),
    *("started_at", "ended_at", "end_reason", "origin", "cwd"),
)
PASS_FIELDS: Final = (
    *("id", "session_id", "generation", "status", "kind", "trigger", "strategy", "failure_class"),
    *("detail", "count", "watermark", "plan", "lease_token", "tokens_before", "tokens_after"),
    *("messages_before", "messages_after", "model", "route", "cost", "gain_predicted"),
    *("gain_actual", "durations", "receipt", "target_pass", "child_session_id", "created_at"),
    "finished_at",
)
PIN_FIELDS: Final = (
    *("text", "source_seq", "created_at", "retired_at", "retired_by", "retired_seq"),
)
POINTERS: Final = ("made_by", "compacted_by", "hidden_by", "masked_by")
RECORDS: Final = frozenset({"model_config", "origin", "plan", "durations", "receipt"})
"""Fields that hold an object, which the tables keep as text."""

_HEAD: Final = "SELECT tip, generation, last_active_at FROM conversations WHERE id = ?"
_SESSIONS: Final = f"SELECT {', '.join(SESSION_FIELDS)} FROM sessions WHERE conversation_id = ?"
_PASSES: Final = f"""
SELECT {", ".join(PASS_FIELDS)}, ordinal FROM compaction_passes
WHERE conversation_id = ? ORDER BY ordinal"""
_PINS: Final = f"SELECT {', '.join(PIN_FIELDS)} FROM pins WHERE conversation_id = ? ORDER BY id"
_ROWS: Final = f"""
SELECT {sql.ROW_COLUMNS}, m.session_id, p.tokens, p.stub, {", ".join(f"p.{p}" for p in POINTERS)}
FROM places p JOIN messages m ON m.id = p.row_id
WHERE p.conversation_id = ? ORDER BY p.seq, p.row_id"""
_ROW_COUNT: Final = "SELECT count(*) FROM places WHERE conversation_id = ?"
_TOUCHED: Final = "SELECT {0}, count(*) FROM places WHERE conversation_id = ? GROUP BY {0}"
_EXTRACTS: Final = """
SELECT start, kind, subject, value FROM extracts WHERE row_id = ? ORDER BY start, kind"""

Entry = dict[str, Any]
"""One line of a file."""


class LineSink(Protocol):
    """Where an export goes: a file opened for bytes."""

    def write(self, data: bytes, /) -> object: ...


class LineSource(Protocol):
    """Where an import comes from: a file opened for bytes, which is read twice."""

    def seek(self, offset: int, /) -> int: ...

    def readline(self, size: int, /) -> bytes: ...


def export_conversation(
    database: SqliteDatabase, clock: Clock, session_id: str, out: LineSink
) -> None:
    """Write the conversation of a session, one row in memory at a time."""
    while True:
        extract_pending(database, clock)
        with database.read() as connection:
            conversation_id = conversation_of(connection, session_id)
            if is_behind(connection):
                continue
            for entry in _entries(connection, conversation_id):
                out.write(orjson.dumps(entry, option=orjson.OPT_APPEND_NEWLINE))
            return


def _entries(connection: Connection, conversation_id: int) -> Iterator[Entry]:
    tip, generation, last_active_at = connection.execute(_HEAD, (conversation_id,)).fetchone()
    sessions = _sessions(connection, conversation_id, tip)
    passes = connection.execute(_PASSES, (conversation_id,)).fetchall()
    pins = connection.execute(_PINS, (conversation_id,)).fetchall()
    rows = connection.execute(_ROW_COUNT, (conversation_id,)).fetchone()[0]
    yield {
        "type": "header",
        "format": FORMAT,
        "version": VERSION,
        "session_id": tip,
        "generation": generation,
        "last_active_at": last_active_at,
        "counts": {
            "session": len(sessions),
            "pass": len(passes),
            "pin": len(pins),
            "row": rows,
        },
    }
    yield from ({"type": "session", **session} for session in sessions)
    touched = {
        pointer: dict(connection.execute(_TOUCHED.format(pointer), (conversation_id,)).fetchall())
        for pointer in ("made_by", "compacted_by", "masked_by")
    }
    for *values, ordinal in passes:
        places = {pointer: counts.get(ordinal, 0) for pointer, counts in touched.items()}
        yield {"type": "pass", **_record(PASS_FIELDS, values), "places": places}
    yield from ({"type": "pin", **_record(PIN_FIELDS, pin)} for pin in pins)
    yield from _rows(connection, conversation_id)


def _record(fields: tuple[str, ...], values: Any) -> Entry:
    return {
        name: orjson.loads(value) if name in RECORDS else value
        for name, value in zip(fields, values, strict=True)
    }


def _sessions(connection: Connection, conversation_id: int, tip: str) -> list[Entry]:
    """Return the names of a conversation, the oldest first."""
    found = {
        row[0]: _record(SESSION_FIELDS, row)
        for row in connection.execute(_SESSIONS, (conversation_id,))
    }
    chain = [found[tip]]
    while (parent := found.get(chain[-1]["parent_session_id"])) is not None:
        chain.append(parent)
    return chain[::-1]


def _rows(connection: Connection, conversation_id: int) -> Iterator[Entry]:
    pass_ids = read_pass_ids(connection, conversation_id)
    written: set[str] = set()
    for row in connection.execute(_ROWS, (conversation_id,)):
        message = decode_row(row)
        sha256 = row[13]
        if sha256 is not None and sha256 not in written:
            written.add(sha256)
            yield _blob(connection, sha256)
        session_id, shown_tokens, stub, *ordinals = row[16:]
        place = {
            pointer: pass_ids[ordinal]
            for pointer, ordinal in zip(POINTERS, ordinals, strict=True)
            if ordinal is not None
        }
        if stub is not None:
            place |= {"stub": orjson.loads(stub), "tokens": shown_tokens}
        yield {
            "type": "row",
            "seq": message["_seq"],
            "kind": row[1],
            "session_id": session_id,
            "at": message["_at"],
            "tokens": message["_tokens"],
            "message": accepted_keys(message),
            **({"blob": sha256} if sha256 is not None else {}),
            **({"place": place} if place else {}),
            **_extracts(connection, message["_row_id"]),
        }


def accepted_keys(message: Mapping[str, Any]) -> Entry:
    """Return a stored message without what the store gave it."""
    return {key: value for key, value in message.items() if key not in STORE_KEYS}


def _blob(connection: Connection, sha256: str) -> Entry:
    blob = packed_blob(connection, sha256)
    zstd = base64.b64encode(blob.data).decode()
    return {"type": "blob", "sha256": sha256, "size": blob.size, "zstd": zstd}


def _extracts(connection: Connection, row_id: int) -> Entry:
    found = [list(row) for row in connection.execute(_EXTRACTS, (row_id,))]
    return {"extracts": found} if found else {}
