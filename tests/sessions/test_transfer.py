"""Exports read back identical, undo included; a broken file is taken up to the break."""

from __future__ import annotations

import contextlib
import io
import os
from collections.abc import Callable
from pathlib import Path
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
from tests.sessions.readings import read_all
from tests.sessions.steps import (
    LARGE,
    SESSION,
    begin,
    contents,
    cover,
    mask,
    open_pass,
    take_lease,
    talk,
)
from tests.sessions.test_operations import OperationsMachine

Lines = list[Any]


@pytest.fixture
def other(tmp_path: Path, clock: FakeClock) -> Any:
    """Another store, empty."""
    store = SessionDB(tmp_path / "other.db", clock=clock)
    yield store
    store.close()


def exported(store: SessionDB, session_id: str = SESSION) -> bytes:
    out = io.BytesIO()
    store.export_session(session_id, out)
    return out.getvalue()


def lines_of(data: bytes) -> Lines:
    return [orjson.loads(line) for line in data.splitlines()]


def joined(lines: Lines) -> bytes:
    return b"".join(orjson.dumps(line) + b"\n" for line in lines)


def rich(store: SessionDB, clock: FakeClock) -> None:
    """Fill a session with one of everything: blob, parts, mask, two passes, undo, rewind, pins."""
    store.create_session(
        SESSION, "cli", model="m", model_config={"t": 0.5}, title="Garden plan", cwd="/tmp"
    )
    store.set_system_prompt(SESSION, "be brief")
    store.append(SESSION, [{"role": "user", "content": "Never touch the audit log. Port is 5432."}])
    clock.advance(5)
    calls = [{"id": "c1", "type": "function", "function": {"name": "f", "arguments": "{}"}}]
    rows = store.append(
        SESSION,
        [
            {"role": "assistant", "content": None, "tool_calls": calls, "_usage": {"prompt": 7}},
            {"role": "tool", "tool_call_id": "c1", "name": "f", "content": LARGE},
            {"role": "user", "content": [{"type": "text", "text": "a\u0000b"}], "odd": [1.5, None]},
            *talk(6, first=5),
        ],
    )
    store.add_pin(SESSION, "Answer in French.")
    gone = store.add_pin(SESSION, "Answer in verse.")
    store.retire_pin(SESSION, gone.id)
    mask(store, rows[1], "[a long log]", 5)
    cover(store, rows[3:5], "first notes")
    store.undo_pass(SESSION, cover(store, rows[6:8], "undone notes")[0])
    clock.advance(60)
    view = store.view(SESSION).messages
    cover(store, [row for row in view if row.get("_kind")], "second notes")
    store.append(SESSION, talk(4, first=11))
    store.rewind(SESSION, 13)
    store.note_unstarted(SESSION, status="skipped", failure_class="cooldown", trigger="manual")
    store.extract_pending()


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


# -- files that break ---------------------------------------------------------------------------
@pytest.mark.parametrize("part", range(1, 12))
def test_a_file_that_is_cut_off_is_taken_up_to_there(
    part: int, store: SessionDB, other: SessionDB, clock: FakeClock
) -> None:
    rich(store, clock)
    data = exported(store)
    start = data.index(b"\n", data.index(b'"type":"row"')) + 1
    cut = data[: start + (len(data) - start) * part // 12]
    rows = [line for line in cut.split(b"\n")[:-1] if b'"type":"row"' in line]
    imported = other.import_session(io.BytesIO(cut))
    assert imported.broken_line == cut.count(b"\n") + 1
    assert imported.rows == len(rows)
    seqs = {orjson.loads(row)["seq"] for row in rows}
    assert {place.message["_seq"] for place in other.history(SESSION)} == seqs
    assert "broken" in other.passes(SESSION)[-1].receipt
    assert list(other.check().problems) == []


@pytest.mark.parametrize("part", range(6))
def test_a_file_that_is_cut_off_before_its_rows_is_refused(
    part: int, store: SessionDB, other: SessionDB, clock: FakeClock
) -> None:
    rich(store, clock)
    data = exported(store)
    with pytest.raises(UsageError, match=r"^line \d+: "):
        other.import_session(io.BytesIO(data[: data.index(b'{"type":"row"') * part // 6]))
    assert other.sessions() == []


def test_a_pass_that_covers_rows_behind_the_break_is_not_in_force(
    store: SessionDB, other: SessionDB
) -> None:
    rows = begin(store, 8)
    cover(store, rows[0:2], "early")
    cover(store, rows[3:7], "late")
    lines = lines_of(exported(store))
    cut = [line for line in lines if line.get("seq", 0) <= 5]
    imported = other.import_session(io.BytesIO(joined(cut)))
    assert (imported.broken_line, imported.broken_why) == (
        len(cut) + 1,
        "6 of 10 row lines are there, the others are missing",
    )
    assert contents(other.view(SESSION).messages) == [
        "early",
        "message 3",
        "message 4",
        "message 5",
    ]
    assert imported.session.pass_count == 1
    assert list(other.check().problems) == []
    other.append(SESSION, talk(1))
    assert contents(other.undo_pass(SESSION).view.messages)[:2] == ["message 1", "message 2"]


Change = Callable[[Lines], object]
"""Of a file with a header, a session, two passes and rows 1, 2, 2, 3, 4, 4, 5, 6: the first pass
covers 1 and 2, the second what it made and row 4."""

TAMPERED: dict[str, tuple[Change, int, str]] = {
    "a line that is no JSON": (lambda x: x.insert(7, "oops"), 8, "no JSON object"),
    "a type that does not exist": (lambda x: x[7].update(type="rows"), 8, "the type 'rows'"),
    "a field that is missing": (lambda x: x[7].pop("at"), 8, "the row has at None"),
    "a number too large": (lambda x: x[7].update(tokens=2**60), 8, "the row has tokens 115"),
    "a row that cannot be stored": (lambda x: x[7]["message"].update(role=""), 8, "role ''"),
    "a row that is left out": (lambda x: x.pop(7), 8, "row 4 stands where row 3 belongs"),
    "a row twice": (lambda x: x.insert(8, x[7]), 9, "row 3 stands where row 4 belongs"),
    "a row too many": (lambda x: x.append({**x[11], "seq": 7}), 13, "one row more than"),
    "a session behind rows": (lambda x: x.append(x[1]), 13, "a session stands behind"),
    "an extract of no form": (lambda x: x[7].update(extracts=[[1, "x"]]), 8, "the extract"),
    "a blob that is not there": (lambda x: x[7].update(blob="ab"), 8, "needs blob 'ab'"),
    "a pointer at no pass": (
        lambda x: x[7].update(place={"compacted_by": "ff"}),
        8,
        "row 3 is covered by pass 'ff', which is not there",
    ),
    "a pass that would cover more": (
        lambda x: x[7].update(place={"compacted_by": x[2]["id"]}),
        3,
        "should cover 2 rows, mask 0 and make 1; the file has 3, 0 and 1",
    ),
    "a summary and its source both live": (
        lambda x: x[8].pop("place"),
        10,
        "row 4 was made by pass",
    ),
    "a row covered by the pass that made it": (
        lambda x: x[9]["place"].update(compacted_by=x[3]["id"]),
        10,
        "older than the row",
    ),
    "an accepted row that a pass made": (
        lambda x: x[7].update(place={"made_by": x[2]["id"]}),
        8,
        "row 3 stands where row 2 belongs",
    ),
    "a made row that nobody made": (lambda x: x[7].update(kind="summary"), 8, "kind 'summary'"),
    "a row hidden by a summary": (
        lambda x: x[7].update(place={"hidden_by": x[2]["id"]}),
        8,
        "is hidden by pass",
    ),
    "a mask without a stub": (
        lambda x: x[7].update(place={"masked_by": x[2]["id"]}),
        8,
        "row 3 has a mask that cannot be",
    ),
    "a mask that changes who spoke": (
        lambda x: x[7].update(
            place={"masked_by": x[2]["id"], "stub": {"role": "system"}, "tokens": 1}
        ),
        8,
        "row 3 has a mask that cannot be",
    ),
}
HOPELESS: dict[str, tuple[Change, str]] = {
    "no file of ours": (lambda x: x[0].update(format="other"), "line 1: this is no export"),
    "an empty file": (lambda x: x.clear(), "line 1: this is no export"),
    "another version": (lambda x: x[0].update(version=2), "line 1: the export has version 2"),
    "a header without counts": (lambda x: x[0].update(counts={}), "line 1: the header is damaged"),
    "no session": (lambda x: x.pop(1), "line 2: 0 of 1 session lines are there"),
    "a session of another name": (
        lambda x: x[1].update(id="s2"),
        "line 3: session 's1', the newest, is not there",
    ),
    "a status that does not exist": (lambda x: x[2].update(status="done"), "line 3: pass"),
    "a plan that is no object": (lambda x: x[2].update(plan="x"), "line 3: the pass has plan 'x'"),
    "a pass twice": (lambda x: x[3].update(id=x[2]["id"]), "line 4: pass .* twice"),
    "a pass that is missing": (lambda x: x.pop(3), "line 4: 1 of 2 pass lines are there"),
    "an undone pass that no undo names": (
        lambda x: x[2].update(status="undone"),
        "line 3: pass .* is undone, but no undo names it",
    ),
    "an undo of a pass in force": (
        lambda x: x[3].update(kind="undo", target_pass=x[2]["id"]),
        "line 3: pass .* is not undone",
    ),
    "a rewind that hides nothing": (lambda x: x[3].update(kind="rewind"), "line 4: rewind"),
    "a first row with a pointer that cannot be": (
        lambda x: x[3].update(status="failed") or x[2].update(status="failed"),
        "line 5: row 1 is covered by pass .*, which is a summary and failed; nothing can be",
    ),
}


@pytest.fixture
def plain(store: SessionDB) -> Lines:
    rows = begin(store, 6)
    _first, view = cover(store, rows[0:2], "first")
    cover(store, [view.messages[0], rows[3]], "second")
    return lines_of(exported(store))


@pytest.mark.parametrize(("change", "line", "why"), TAMPERED.values(), ids=TAMPERED)
def test_a_file_that_cannot_be_true_is_taken_up_to_there(
    change: Change, line: int, why: str, plain: Lines, other: SessionDB
) -> None:
    change(plain)
    imported = other.import_session(io.BytesIO(joined(plain)))
    assert imported.broken_line == line
    assert why in imported.broken_why
    assert list(other.check().problems) == []
    other.append(SESSION, talk(2))
    for record in other.passes(SESSION)[:-1][::-1]:
        other.undo_pass(SESSION, record.id)
    assert list(other.check().problems) == []


@pytest.mark.parametrize(("change", "why"), HOPELESS.values(), ids=HOPELESS)
def test_a_file_that_breaks_before_its_rows_is_refused(
    change: Change, why: str, plain: Lines, other: SessionDB
) -> None:
    change(plain)
    with pytest.raises(UsageError, match=why):
        other.import_session(io.BytesIO(joined(plain)))
    assert other.sessions() == []
    assert list(other.check().problems) == []


@pytest.mark.parametrize("field", ["zstd", "size", "sha256"])
def test_a_blob_that_is_not_what_it_says_ends_the_import(
    field: str, store: SessionDB, other: SessionDB
) -> None:
    begin(store, 2)
    store.append(SESSION, [{"role": "tool", "tool_call_id": "c", "content": LARGE}])
    lines = lines_of(exported(store))
    blob = next(line for line in lines if line["type"] == "blob")
    blob[field] = {"zstd": "A" + blob["zstd"][1:], "size": 7, "sha256": "0" * 64}[field]
    imported = other.import_session(io.BytesIO(joined(lines)))
    assert (imported.rows, imported.broken_line) == (2, lines.index(blob) + 1)
    assert "is damaged" in imported.broken_why
    assert list(other.check().problems) == []


# -- any conversation -----------------------------------------------------------------------------
class TransferMachine(OperationsMachine):
    """Whatever was done to a conversation, its export is the conversation, and each part of it."""

    @rule(data=st.data())
    def round_trip(self, data: Any) -> None:
        session = self._pick(data)
        file = exported(self.store, session)
        copy = self.store.import_session(io.BytesIO(file)).session.id
        assert read_all(self.store, copy) == read_all(self.store, session)
        done = [p for p in self.store.passes(copy) if p.kind is not PassKind.IMPORT]
        for record in data.draw(st.permutations(done), "undone")[:3]:
            with contextlib.suppress(UndoRefused):
                self.store.undo_pass(copy, record.id)
            self.the_store_finds_itself_sound()
        assert read_all(self.store, copy)["accepted"]
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
