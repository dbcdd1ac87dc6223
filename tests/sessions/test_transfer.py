"""Exports read back identical, undo included."""

from __future__ import annotations

import contextlib
import io
import os
from typing import Any

import orjson
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import rule

from agent.base.errors import UndoRefused, UnknownSession, UsageError
from agent.sessions.records import PassClosing, PassKind, PassStatus
from agent.testing.clock import FakeClock
from hermes_state import SessionDB
from tests.sessions.files import exported, lines_of, rich
from tests.sessions.readings import read_all
from tests.sessions.steps import SESSION, begin, open_pass, take_lease
from tests.sessions.test_operations import OperationsMachine


def test_a_conversation_reads_back_identical_in_another_store(
    store: SessionDB, other: SessionDB, clock: FakeClock
) -> None:
    rich(store, clock)
    data = exported(store)
    imported = other.import_session(io.BytesIO(data))
    assert (imported.session.id, imported.session.title) == (SESSION, "Garden plan")
    assert (imported.rows, imported.rows_announced, imported.broken_line) == (17, 17, None)
    assert read_all(other, SESSION) == read_all(store, SESSION)
    assert [p.id for p in other.passes(SESSION)][:-1] == [p.id for p in store.passes(SESSION)]
    assert other.extract_pending() == 0
    assert read_all(other, SESSION) == read_all(store, SESSION)
    assert other.search("audit log")[0].session_id == SESSION
    assert list(other.check().problems) == []


def test_what_was_said_of_a_pin_reads_back_beside_it(store: SessionDB, other: SessionDB) -> None:
    begin(store, 0)
    said = ("Don't touch the audit log.", "Legal is happy with the audit log.")
    store.append(SESSION, [{"role": "user", "content": text} for text in said])
    data = exported(store)
    other.import_session(io.BytesIO(data))
    [pin] = other.pins(SESSION)
    assert (pin.text, pin.doubt_seq, pin.doubt) == (said[0], 2, said[1])
    assert exported(store) == data
    assert read_all(other, SESSION) == read_all(store, SESSION)
    other.rewind(SESSION, 2)
    assert [pin.doubt for pin in other.pins(SESSION)] == [""]


def test_an_import_is_on_the_ledger_and_cannot_be_undone(
    store: SessionDB, other: SessionDB, clock: FakeClock
) -> None:
    rich(store, clock)
    other.import_session(io.BytesIO(exported(store)))
    record = other.passes(SESSION)[-1]
    assert (record.kind, record.status) == (PassKind.IMPORT, PassStatus.COMMITTED)
    assert record.receipt == {
        "format": "hermes-continuum 1",
        "from_session": SESSION,
        "accepted": 14,
    }
    with pytest.raises(UndoRefused, match="the import that brought this conversation"):
        other.undo_pass(SESSION, record.id)
    assert list(other.check().problems) == []


def test_importing_twice_gives_two_conversations_with_names_of_their_own(
    store: SessionDB, clock: FakeClock
) -> None:
    rich(store, clock)
    before, data = read_all(store, SESSION), exported(store)
    copies = [store.import_session(io.BytesIO(data)).session for _ in range(2)]
    assert [copy.title for copy in copies] == ["Garden plan (2)", "Garden plan (3)"]
    assert len({SESSION, *(copy.id for copy in copies)}) == 3
    ids = [{p.id for p in store.passes(name)} for name in (SESSION, *(c.id for c in copies))]
    assert not ids[0] & ids[1] | ids[1] & ids[2] | ids[0] & ids[2]
    for copy in copies:
        assert read_all(store, copy.id) == before
    store.undo_pass(copies[0].id)
    assert read_all(store, SESSION) == read_all(store, copies[1].id) == before
    store.delete_session(copies[0].id)
    assert read_all(store, SESSION) == read_all(store, copies[1].id) == before
    assert list(store.check().problems) == []


def test_a_title_is_given_and_one_that_is_taken_is_refused(
    store: SessionDB, clock: FakeClock
) -> None:
    rich(store, clock)
    data = exported(store)
    assert store.import_session(io.BytesIO(data), title="Copy").session.title == "Copy"
    with pytest.raises(UsageError, match="has the title 'Copy' already"):
        store.import_session(io.BytesIO(data), title="Copy")
    assert len(store.sessions()) == 2


def test_the_same_conversation_gives_the_same_bytes(
    store: SessionDB, other: SessionDB, clock: FakeClock
) -> None:
    rich(store, clock)
    data = exported(store)
    assert exported(store) == data
    other.import_session(io.BytesIO(data))
    again = lines_of(exported(other))
    ledger = [line["id"] for line in again if line["type"] == "pass"]
    kept = [line for line in again if line.get("id") != ledger[-1]]
    kept[0]["counts"]["pass"] -= 1
    kept[0]["generation"] -= 1
    assert kept == lines_of(data)


def test_an_undo_after_an_import_brings_the_view_back(
    store: SessionDB, other: SessionDB, clock: FakeClock
) -> None:
    rich(store, clock)
    other.import_session(io.BytesIO(exported(store)))
    for each in (store, other):
        each.undo_pass(SESSION, store.passes(SESSION)[1].id)
    first, second = read_all(store, SESSION), read_all(other, SESSION)
    assert (second["view"], second["history"]) == (first["view"], first["history"])
    assert list(other.check().problems) == []


def test_a_pass_that_is_open_is_closed_in_the_copy(store: SessionDB, other: SessionDB) -> None:
    begin(store, 4)
    lease = take_lease(store)
    pass_id = open_pass(store, lease)
    other.import_session(io.BytesIO(exported(store)))
    record = other.pass_record(pass_id)
    assert (record.status, record.failure_class) == (PassStatus.ABORTED, "crashed")
    store.prepare_pass(pass_id, {"cover": [1]})
    copy = other.import_session(io.BytesIO(exported(store))).session
    record = other.passes(copy.id)[0]
    assert (record.status, record.failure_class) == (PassStatus.SUPERSEDED, "attempt_superseded")
    assert list(other.check().problems) == []
    store.close_pass(PassClosing(pass_id, PassStatus.ABORTED, "explicit_interrupt"))


def test_a_session_without_rows_is_exported_too(store: SessionDB, other: SessionDB) -> None:
    begin(store)
    imported = other.import_session(io.BytesIO(exported(store)))
    assert (imported.rows, other.view(SESSION).messages) == (0, [])
    assert list(other.check().problems) == []


def test_an_unknown_session_is_not_exported(store: SessionDB) -> None:
    with pytest.raises(UnknownSession):
        exported(store, "nobody")


# -- any conversation -----------------------------------------------------------------------------
class TransferMachine(OperationsMachine):
    """Whatever was done to a conversation, its export is the conversation, and each part of it."""

    @rule(data=st.data())
    def round_trip(self, data: Any) -> None:
        session = self._pick(data)
        file = exported(self.store, session)
        copy = self.store.import_session(io.BytesIO(file)).session.id
        whole = read_all(self.store, session)
        assert read_all(self.store, copy) == whole
        done = [p for p in self.store.passes(copy) if p.kind is not PassKind.IMPORT]
        for record in data.draw(st.permutations(done), "undone")[:3]:
            with contextlib.suppress(UndoRefused):
                self.store.undo_pass(copy, record.id)
            self.the_store_finds_itself_sound()
        left = read_all(self.store, copy)["accepted"]
        assert [row for row in whole["accepted"] if row not in left] == []
        self.store.delete_session(copy)

    @rule(data=st.data())
    def a_broken_file(self, data: Any) -> None:
        session = self._pick(data)
        story = self.stories[session]
        lines = exported(self.store, session).splitlines(keepends=True)
        first = next(n for n, line in enumerate(lines) if b'"type":"row"' in line)
        if first + 1 == len(lines):
            return
        kept = data.draw(st.integers(first + 1, len(lines) - 1), "lines")
        copy = self.store.import_session(io.BytesIO(b"".join(lines[:kept]))).session.id
        last, following = orjson.loads(lines[kept - 1])["seq"], orjson.loads(lines[kept])["seq"]
        if following > last:
            fork = story.fork(last)
            assert _shown(self.store.view(copy).messages) == _shown(fork.view())
            assert self.store.session(copy).pass_count == len(fork.compactions())
        self.the_store_finds_itself_sound()
        self.store.delete_session(copy)


def _shown(messages: list[Any]) -> list[Any]:
    private = ("_row_id", "_masked_by", "_at")
    return [{k: v for k, v in message.items() if k not in private} for message in messages]


TestTransfers = TransferMachine.TestCase
TestTransfers.settings = settings(
    max_examples=200 if os.environ.get("HERMES_SOAK") == "1" else 20, stateful_step_count=14
)
