"""Taking in a conversation that was exported: one transaction, after `survey.py` judged the file.

Names that are taken here are given anew: session ids, pass ids, the title. A pass that was open is
closed, because its plan names rows of another store. Brake, health and lease are in no file.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import chain, count
from typing import Any, Final

from agent.base.clock import Clock
from agent.base.ids import new_pass_id, new_session_id
from agent.base.messages import clean_text
from agent.base.record import dataclass
from agent.sessions import extracts
from agent.sessions import statements as sql
from agent.sessions.blobs import store_blob
from agent.sessions.directory import read_session, require_free_title
from agent.sessions.passes import insert_pass
from agent.sessions.records import Imported, PassKind, PassStatus
from agent.sessions.rows import dump_json, encode_row
from agent.sessions.sqlite import Connection, SqliteDatabase, insert_id
from agent.sessions.survey import Survey, decode_blob, parse_entry, read_line, survey_file
from agent.sessions.transfer import (
    FORMAT,
    PASS_FIELDS,
    PIN_FIELDS,
    POINTERS,
    RECORDS,
    SESSION_FIELDS,
    VERSION,
    Entry,
    LineSource,
)


def _insert(table: str, *fields: str) -> str:
    return f"INSERT INTO {table} ({', '.join(fields)}) VALUES ({', '.join('?' * len(fields))})"


_SESSION: Final = _insert("sessions", "conversation_id", *SESSION_FIELDS)
_PASS: Final = _insert("compaction_passes", "conversation_id", *PASS_FIELDS)
_PIN: Final = _insert("pins", "conversation_id", *PIN_FIELDS)
_HAS_PASS: Final = "SELECT 1 FROM compaction_passes WHERE id = ?"
_SET_GENERATION: Final = "UPDATE conversations SET generation = ? WHERE id = ?"
_CLOSINGS: Final = {
    PassStatus.PLANNED: (PassStatus.ABORTED, "crashed"),
    PassStatus.PREPARED: (PassStatus.SUPERSEDED, "attempt_superseded"),
}


def import_conversation(
    database: SqliteDatabase, clock: Clock, source: LineSource, title: str | None
) -> Imported:
    """Store what can be taken of a file as a conversation of its own.

    Rows come with their extracts: the store's own are caught up with first, so that one mark
    stands for all.
    """
    survey = survey_file(source)
    while True:
        extracts.extract_pending(database, clock)
        with database.write() as connection:
            if not extracts.is_behind(connection):
                return _take_in(connection, source, survey, title, clock.now())


def _take_in(
    connection: Connection, source: LineSource, survey: Survey, title: str | None, now: float
) -> Imported:
    if title is not None:
        require_free_title(connection, None, title)
    intake = _Intake(connection, survey, title, now)
    source.seek(0)
    read_line(source)
    for _line in range(2, survey.last_line + 1):
        intake.take(parse_entry(read_line(source) or b""))
    return intake.finish()


@dataclass(frozen=True)
class _Names:
    """Names in the file and here."""

    sessions: dict[str, str]
    passes: dict[str, str]
    ordinals: dict[str, int]


class _Intake:
    """The conversation as far as it is stored."""

    def __init__(
        self, connection: Connection, survey: Survey, title: str | None, now: float
    ) -> None:
        self._connection = connection
        self._survey = survey
        self._title = title
        self._now = now
        self._names = _Names({}, {}, {})
        self._tip = ""
        header = survey.header
        values = (header["last_active_at"], "")
        self._id = insert_id(connection, sql.NEW_CONVERSATION, values)
        connection.execute(sql.BEGIN_FAMILY, (self._id,))
        self._take = {
            "session": self._take_session,
            "pass": self._take_pass,
            "pin": self._take_pin,
            "blob": self._take_blob,
            "row": self._take_row,
        }

    def take(self, entry: Entry) -> None:
        """Store one line."""
        self._take[entry["type"]](entry)

    def finish(self) -> Imported:
        """Count what was stored, write the ledger row, and return what was taken in."""
        connection, survey = self._connection, self._survey
        connection.execute(sql.SET_TIP, (self._tip, self._id))
        connection.execute(sql.REVIVE_PINS, (self._id, survey.last_seq))
        connection.execute(sql.RECOUNT, (self._id,))
        extracts.raise_mark(connection)
        generation = max(survey.header["generation"], survey.closed_passes)
        connection.execute(_SET_GENERATION, (generation, self._id))
        connection.execute(sql.BUMP_GENERATION, (0, self._id))
        record = read_session(connection, self._tip)
        live_count, live_tokens = connection.execute(sql.LIVE_TOTALS, (self._id,)).fetchone()
        broken = survey.broken
        insert_pass(
            connection,
            pass_id=new_pass_id(),
            conversation_id=self._id,
            session_id=self._tip,
            status=PassStatus.COMMITTED,
            kind=PassKind.IMPORT,
            trigger="manual",
            strategy=PassKind.IMPORT,
            tokens_after=live_tokens,
            messages_after=live_count,
            receipt=dump_json(self._receipt(record.message_count), "the receipt"),
            created_at=self._now,
            finished_at=self._now,
        )
        return Imported(
            session=record,
            rows=survey.rows,
            rows_announced=survey.header["counts"]["row"],
            broken_line=broken.line if broken else None,
            broken_why=broken.why if broken else "",
        )

    def _receipt(self, accepted: int) -> dict[str, Any]:
        broken = self._survey.broken
        receipt: dict[str, Any] = {
            "format": f"{FORMAT} {VERSION}",
            "from_session": self._survey.header["session_id"],
            "accepted": accepted,
        }
        return receipt | ({"broken": f"line {broken.line}: {broken.why}"} if broken else {})

    # -- lines --------------------------------------------------------------------------------
    def _take_session(self, entry: Entry) -> None:
        free = self._is_free(entry["id"])
        parent = self._tip or None
        self._tip = entry["id"] if free else self._new_id()
        self._names.sessions[entry["id"]] = self._tip
        changed = {"id": self._tip, "parent_session_id": parent, "title": None}
        if entry["id"] == self._survey.header["session_id"]:
            changed["title"] = self._free_title(entry["title"])
        if not free:
            # A copy beside the original: no chat of a platform goes on in it.
            changed["origin"] = {}
        self._store(_SESSION, SESSION_FIELDS, entry | changed)

    def _is_free(self, session_id: str) -> bool:
        return self._connection.execute(sql.CONVERSATION_OF, (session_id,)).fetchone() is None

    def _new_id(self) -> str:
        return next(name for _ in count() if self._is_free(name := new_session_id(self._now)))

    def _free_title(self, title: str | None) -> str | None:
        """Return the title asked for, or that of the file, numbered when it is taken."""
        if self._title is not None:
            return clean_text(self._title)
        if title is None:
            return None
        numbered = (f"{title} ({number})" for number in count(2))
        return next(each for each in chain([title], numbered) if self._is_free_title(each))

    def _is_free_title(self, title: str) -> bool:
        return self._connection.execute(sql.SESSION_BY_TITLE, (title,)).fetchone() is None

    def _take_pass(self, entry: Entry) -> None:
        pass_id = entry["id"]
        if pass_id in self._survey.left_out:
            return
        taken = self._connection.execute(_HAS_PASS, (pass_id,)).fetchone() is not None
        names = self._names
        names.passes[pass_id] = new_pass_id() if taken else pass_id
        changed: Entry = {
            "id": names.passes[pass_id],
            "session_id": self._session_of(entry["session_id"]),
            "child_session_id": names.sessions.get(entry["child_session_id"]),
            "target_pass": names.passes.get(entry["target_pass"], entry["target_pass"]),
        }
        if entry["status"] in _CLOSINGS:
            changed["status"], changed["failure_class"] = _CLOSINGS[entry["status"]]
            changed["finished_at"] = self._now
        names.ordinals[pass_id] = self._store(_PASS, PASS_FIELDS, entry | changed)

    def _session_of(self, name: str) -> str:
        """Return the session here; what a fork inherited came about in one that is not there."""
        sessions = self._names.sessions
        return sessions.get(name) or next(iter(sessions.values()))

    def _take_pin(self, entry: Entry) -> None:
        if (entry["source_seq"] or 0) <= self._survey.last_seq:
            self._store(_PIN, PIN_FIELDS, entry)

    def _take_blob(self, entry: Entry) -> None:
        blob = decode_blob(entry)
        assert blob is not None
        store_blob(self._connection, blob)

    def _take_row(self, entry: Entry) -> None:
        place = entry.get("place", {})
        ordinals = {p: self._names.ordinals.get(place[p]) for p in POINTERS if p in place}
        if ordinals.get("made_by", 0) is None:
            return
        connection, seq, tokens = self._connection, entry["seq"], entry["tokens"]
        origin = (self._session_of(entry["session_id"]), self._id, seq, entry["kind"])
        values = encode_row(entry["message"]).values
        row = (*origin, *values, entry["at"], tokens, entry.get("blob"))
        row_id = insert_id(connection, sql.NEW_ROW, row)
        stub = None
        if ordinals.get("masked_by") is not None:
            stub, tokens = dump_json(place["stub"], "a stub"), place["tokens"]
        pointers = [ordinals.get(pointer) for pointer in POINTERS]
        connection.execute(sql.IMPORT_PLACE, (self._id, seq, row_id, tokens, *pointers, stub))
        found = [(row_id, *each) for each in entry.get("extracts", ())]
        connection.executemany(extracts.ADD, found)

    def _store(self, statement: str, fields: tuple[str, ...], entry: Mapping[str, Any]) -> int:
        values = [
            dump_json(entry[name], name) if name in RECORDS else entry[name] for name in fields
        ]
        return insert_id(self._connection, statement, (self._id, *values))
