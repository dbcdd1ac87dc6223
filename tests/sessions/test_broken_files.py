"""A file that is cut off, damaged or tampered with is taken up to there; the store stays sound."""

from __future__ import annotations

import io
from collections.abc import Callable

import orjson
import pytest

from agent.base.errors import UsageError
from agent.testing.clock import FakeClock
from hermes_state import SessionDB
from tests.sessions.files import Lines, exported, joined, lines_of, rich
from tests.sessions.steps import LARGE, SESSION, begin, contents, cover, talk


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


def test_pins_are_those_of_the_last_row_that_was_taken(store: SessionDB, other: SessionDB) -> None:
    begin(store)
    rules = ("Never touch the audit log.", "Always answer in French.")
    said = (*rules, "You may touch the audit log.")
    for text in said:
        store.append(SESSION, [{"role": "user", "content": text}])
    store.add_pin(SESSION, "Be brief.")
    lines = lines_of(exported(store))
    assert [pin.text for pin in store.pins(SESSION)] == ["Be brief.", said[1]]
    for last, texts in ((2, ["Be brief.", *said[:2]]), (1, ["Be brief.", said[0]])):
        cut = [line for line in lines if line.get("seq", 0) <= last]
        copy = other.import_session(io.BytesIO(joined(cut))).session
        assert [pin.text for pin in other.pins(copy.id)] == texts


def test_a_pass_on_top_of_one_that_is_left_out_is_left_out_too(
    plain: Lines, other: SessionDB
) -> None:
    plain[7]["place"] = {"compacted_by": plain[2]["id"]}
    imported = other.import_session(io.BytesIO(joined(plain)))
    assert imported.session.pass_count == 0
    assert contents(other.view(SESSION).messages) == [f"message {n}" for n in range(1, 7)]


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
