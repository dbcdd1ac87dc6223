"""Forks, files of conversations, and what passes changed, on the command line."""

from __future__ import annotations

import json
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from agent.base.paths import default_database
from agent.testing.clock import FakeClock
from agent.tui import figures
from hermes_state import SessionDB
from tests.cli.conftest import Hermes, Ran
from tests.sessions.readings import read_all
from tests.sessions.steps import SESSION, cover, mask


@pytest.fixture(autouse=True)
def filled() -> Iterator[SessionDB]:
    """Five rows: the first pass masks row 3, the second covers 1 and 2, the third its notes and 4;
    the third's receipt names what was dropped."""
    store = SessionDB(db_path=default_database(), clock=FakeClock())
    store.create_session(SESSION, "cli", title="Garden plan")
    texts = ("the frost comes in May", "then sow later", "a long log " * 40, "noted", "and now?")
    roles = ("user", "assistant", "user", "assistant", "user")
    rows = store.append(
        SESSION, [{"role": r, "content": t} for r, t in zip(roles, texts, strict=True)]
    )
    mask(store, rows[2], "[a log]", 4)
    _pass, view = cover(store, rows[:2], "## Done\nfrost in May")
    receipt = {"dropped": ["bed 7"], "identifiers_dropped": 3}
    notes = [view.messages[0], rows[3]]
    cover(store, notes, "## Done\nfrost in May, noted", receipt=receipt)
    store.extract_pending()
    yield store
    store.close()


@pytest.fixture
def passes(filled: SessionDB) -> list[str]:
    return [record.id for record in filled.passes(SESSION)]


def test_a_conversation_goes_through_a_file_and_back(
    hermes: Hermes, filled: SessionDB, tmp_path: Path
) -> None:
    file, before = tmp_path / "garden.jsonl", read_all(filled, SESSION)
    ran = hermes("sessions", "export", "Garden plan", "-o", str(file))
    size = figures.size(file.stat().st_size)
    told = f"wrote {SESSION} to {str(file)!r}, {size}; hermes sessions import reads it\n"
    assert ran == Ran(0, told, "")
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert hermes("sessions", "export", SESSION).out.encode() == file.read_bytes()
    filled.delete_session(SESSION)
    ran = hermes("sessions", "import", str(file))
    assert ran == Ran(0, f"imported as {SESSION} 'Garden plan': 5 messages, 3 compacted\n", "")
    assert read_all(filled, SESSION) == before
    copy = json.loads(hermes("sessions", "import", str(file), "--title", "B", "--json").out)
    assert (copy["session"]["title"], copy["rows"], copy["broken_line"]) == ("B", 7, None)
    assert read_all(filled, copy["session"]["id"]) == before


def test_a_file_that_breaks_is_told_with_its_line(
    hermes: Hermes, filled: SessionDB, tmp_path: Path
) -> None:
    file = tmp_path / "garden.jsonl"
    hermes("sessions", "export", SESSION, "-o", str(file))
    lines = file.read_bytes().splitlines(keepends=True)
    file.write_bytes(b"".join(lines[:-2]) + lines[-2][:30])
    ran = hermes("sessions", "import", str(file), "--title", "Cut")
    copy = filled.find_session("Cut")
    assert (ran.code, ran.out) == (
        2,
        f"imported as {copy.id} 'Cut': 4 messages, 2 compacted\n",
    )
    assert ran.err.startswith(
        f"hermes: {str(file)!r} breaks at line {len(lines) - 1}: the line is cut off or no JSON ("
    )
    assert ran.err.endswith("; 5 of 7 rows were imported\n")
    assert list(filled.check().problems) == []


def test_nothing_is_left_of_an_export_that_fails(
    hermes: Hermes, filled: SessionDB, tmp_path: Path
) -> None:
    there = tmp_path / "there.jsonl"
    there.write_text("mine")
    ran = hermes("sessions", "export", SESSION, "-o", str(there))
    assert ran == Ran(2, "", f"hermes: {str(there)!r} exists already; name another file\n")
    assert there.read_text() == "mine"
    nowhere = tmp_path / "no" / "x.jsonl"
    ran = hermes("sessions", "export", SESSION, "-o", str(nowhere))
    assert ran.err == (
        f"hermes: cannot write {str(nowhere)!r}: No such file or directory; choose another\n"
    )


def test_a_conversation_is_forked(hermes: Hermes, filled: SessionDB) -> None:
    ran = hermes("sessions", "fork", "Garden plan", "--rows-to", "3", "--title", "Plan B")
    fork = filled.find_session("Plan B")
    assert ran == Ran(0, f"{fork.id} is a fork of {SESSION} with 3 messages\n", "")
    assert (fork.parent_session_id, fork.pass_count) == (SESSION, 2)
    shape = json.loads(hermes("sessions", "fork", SESSION, "--json").out)
    assert (shape["message_count"], shape["title"]) == (5, None)


def test_what_a_pass_changed_is_shown(hermes: Hermes, passes: list[str]) -> None:
    masked, first, second = passes
    assert hermes("compactions", "diff", masked[:8]).out.splitlines() == [
        f"pass {masked[:8]} (old tool results masked), committed: 1 row shown shorter",
        "shown shorter:",
        "~ #3 user: [a log] [440 → 7 characters]",
    ]
    assert hermes("compactions", "diff", first).out.splitlines() == [
        f"pass {first[:8]} (summary), committed: 2 rows left the view, 1 made in their place",
        "left the view:",
        "- #1 user: the frost comes in May",
        "- #2 assistant: then sow later",
        "in their place, #2 summary:",
        "+ ## Done",
        "+ frost in May",
    ]
    assert hermes("compactions", "diff", second).out.splitlines() == [
        f"pass {second[:8]} (summary), committed: 2 rows left the view, 1 made in their place",
        "left the view:",
        "- #2 summary: ## Done frost in May",
        "- #4 assistant: noted",
        "in their place, #4 summary, as it differs from the notes before it:",
        "  ## Done",
        "- frost in May",
        "+ frost in May, noted",
        "dropped for good, 3 identifiers (recall reads them):",
        "  bed 7",
        "  and 2 more",
    ]


def test_what_a_pass_changed_is_given_as_json(hermes: Hermes, passes: list[str]) -> None:
    shape = json.loads(hermes("compactions", "diff", passes[2], "--json").out)
    assert [(row["seq"], row["kind"]) for row in shape["left"]] == [(2, "summary"), (4, "message")]
    assert [row["content"] for row in shape["made"]] == ["## Done\nfrost in May, noted"]
    assert (shape["dropped"], shape["dropped_count"]) == (["bed 7"], 3)
    [pair] = json.loads(hermes("compactions", "diff", passes[0], "--json").out)["masked"]
    assert (pair["before"]["content"], pair["after"]["content"]) == ("a long log " * 40, "[a log]")


def test_a_compaction_is_undone_with_those_that_stand_on_it(
    hermes: Hermes, filled: SessionDB, passes: list[str]
) -> None:
    ran = hermes("compactions", "undo", "Garden plan", "--pass", passes[1][:12])
    tokens = [record.tokens_after for record in filled.passes(SESSION)][-1]
    before = filled.passes(SESSION)[3].tokens_before
    assert ran == Ran(
        0,
        f"undid pass {passes[2][:8]}: rows 2,4 are in the view again\n"
        f"undid pass {passes[1][:8]}: rows 1-2 are in the view again\n"
        f"view: {before} → {tokens} tokens, 3 → 5 messages\n",
        "",
    )
    heading = f"pass {passes[1][:8]} (summary), undone: what it had taken out of the view is back"
    assert hermes("compactions", "diff", passes[1]).out.splitlines()[0] == heading
    undo = filled.passes(SESSION)[-1].id
    assert hermes("compactions", "diff", undo).out.splitlines() == [
        f"pass {undo[:8]} (undo), committed: 1 row left the view, rows 1-2 are in the view again",
        "left the view:",
        "- #2 summary: ## Done frost in May",
    ]
    [record] = json.loads(hermes("compactions", "undo", SESSION, "--json").out)
    assert (record["kind"], record["target_pass"]) == ("undo", passes[0])
    assert len(filled.view(SESSION).messages) == 5
