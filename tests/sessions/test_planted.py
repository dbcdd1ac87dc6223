"""The property test of `test_operations.py` is tested itself: it finds defects that are planted.

The store's own check is off, so that the oracle alone has to find them; some are planted with the
guard that the database has against them taken away.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import Phase, settings
from hypothesis.stateful import run_state_machine_as_test

from agent.base.errors import HermesError
from agent.sessions import commit, places, schema, standing
from agent.sessions import statements as sql
from agent.sessions.records import CheckReport
from hermes_state import SessionDB
from tests.sessions.test_operations import OperationsMachine

Patch = pytest.MonkeyPatch
Change = Callable[[Patch], None]


def statement(name: str, old: str, new: str) -> Change:
    """Return what changes one statement of the store."""

    def change(patch: Patch) -> None:
        text = getattr(sql, name)
        assert old in text
        patch.setattr(sql, name, text.replace(old, new))

    return change


def without_the_index(change: Change) -> Change:
    """Return a change in a database that would not refuse two live places at one seq."""

    def both(patch: Patch) -> None:
        first, *others = schema.MIGRATIONS
        loose = [
            text.replace("CREATE UNIQUE INDEX places_live", "CREATE INDEX places_live")
            for text in first
        ]
        patch.setattr(schema, "MIGRATIONS", (tuple(loose), *others))
        change(patch)

    return both


def cover_nothing(patch: Patch) -> None:
    patch.setattr(commit, "_cover", lambda *_arguments: None)


def cover_all_but_the_first(patch: Patch) -> None:
    real = commit._cover
    patch.setattr(commit, "_cover", lambda c, i, o, covered: real(c, i, o, covered[1:]))


def forget_the_token(patch: Patch) -> None:
    patch.setattr(commit, "require_token", lambda *_arguments: None)


def cover_late_rows(patch: Patch) -> None:
    real_touched, real_covered = commit._touched_places, commit._covered

    def touched(connection: Any, passed: Any, before: Any) -> Any:
        where = (passed.lease.conversation_id,)
        places = connection.execute(sql.LIVE_PLACES, where).fetchall()
        late = [(*place, None) for *place, _mask in places if place[0] > passed.watermark]
        return [*real_touched(connection, passed, before), *late]

    def covered(places: Any, pending: Any, passed: Any) -> Any:
        late = [place for place in places if place[0] > passed.watermark and passed.cover]
        return [*real_covered(places, pending, passed), *late]

    patch.setattr(commit, "_touched_places", touched)
    patch.setattr(commit, "_covered", covered)


def believe_what_was_seen(patch: Patch) -> None:
    patch.setattr(places, "_stands", lambda *_arguments: True)


def forget_followers(patch: Patch) -> None:
    patch.setattr(standing, "_with_followers", lambda _places, targets: set(targets))


def share_passes(patch: Patch) -> None:
    """Let places of a fork carry the numbers of the parent's passes."""
    text = sql.INHERIT_PLACES
    for pointer in ("made_by", "compacted_by", "hidden_by", "masked_by"):
        own = sql._THERE.format(pointer)
        assert own in text
        text = text.replace(own, f"p.{pointer}")
    patch.setattr(sql, "INHERIT_PLACES", text)


def undo_in_every_conversation(patch: Patch) -> None:
    """Let an undo mark the pass in every conversation that has it."""
    same = "id = (SELECT id FROM compaction_passes WHERE ordinal = ?)"
    statement("MARK_UNDONE", "ordinal = ?", same)(patch)


PLAIN: dict[str, Change] = {
    "no pointer set on what is covered": without_the_index(cover_nothing),
    "one pointer not set": without_the_index(cover_all_but_the_first),
    "no pointer to the pass that made a row": statement(
        "NEW_PLACE", "VALUES (?, ?, ?, ?, ?)", "VALUES (?, ?, ?, ?, nullif(?, abs(?5)))"
    ),
    "commit without the token check": forget_the_token,
    "summary and source both live after an undo": without_the_index(
        statement("HIDE_PLACE", "hidden_by = ?", "hidden_by = nullif(?, abs(?1))")
    ),
    "a late row covered": cover_late_rows,
    "a mask lost on undo": statement(
        "FREE_UNDONE", "compacted_by = NULL", "compacted_by = NULL, masked_by = NULL, stub = NULL"
    ),
    "a mask kept on undo": statement("UNMASK_PLACE", "SET masked_by = NULL, stub = NULL,", "SET"),
    "a fork that shares a pass": share_passes,
    "generation not raised": statement("BUMP_GENERATION", "generation + 1", "generation"),
    "tokens of the view not counted": statement(
        "COUNT_LIVE", "live_tokens + ?", "live_tokens + 0 * ?"
    ),
    "a known view taken for current after a change": believe_what_was_seen,
}
"""What fifty sequences find."""
DEEP: dict[str, Change] = {
    "an undo that leaves what stands on it": forget_followers,
    "an undo that reaches into a fork": undo_in_every_conversation,
    "a fork that takes a pass over rows it lacks": statement(
        "INHERIT_PASSES", "EXCEPT SELECT compacted_by", "EXCEPT SELECT -1 + 0 * compacted_by"
    ),
    "a rewind that stops at covered rows": statement(
        "HIDE_FROM", "hidden_by IS NULL", "hidden_by IS NULL AND compacted_by IS NULL"
    ),
    "a rewind undone with what another hid": statement(
        "SHOW_AGAIN", "hidden_by = ?", "hidden_by >= ?"
    ),
    "a rotation that leaves the title": statement("HAND_OVER", "title = NULL", "title = title"),
}
"""What takes steps in a certain order, which only some of five hundred sequences take."""
FOUND = (AssertionError, pytest.fail.Exception, HermesError, sqlite3.Error, LookupError)


def failure_of(machine: type[OperationsMachine]) -> str:
    """Return how the property test fails, or nothing."""
    quick = settings(
        OperationsMachine.TestCase.settings,
        phases=[Phase.generate],
        database=None,
        report_multiple_bugs=False,
        derandomize=True,
    )
    try:
        run_state_machine_as_test(machine, settings=quick)
    except (
        AssertionError,
        pytest.fail.Exception,
        HermesError,
        sqlite3.Error,
        LookupError,
    ) as error:
        return f"{type(error).__name__}: {error}"
    return ""


def check_found(patch: Patch, change: Change) -> None:
    patch.setattr(SessionDB, "check", lambda _store: CheckReport([], 0, 0, 0))
    change(patch)
    assert failure_of(OperationsMachine) != ""


@pytest.mark.parametrize("change", PLAIN.values(), ids=PLAIN)
def test_the_property_test_finds_a_planted_defect(monkeypatch, change):
    check_found(monkeypatch, change)


@pytest.mark.soak
@pytest.mark.parametrize("change", DEEP.values(), ids=DEEP)
def test_the_property_test_in_full_finds_a_planted_defect(monkeypatch, change):
    check_found(monkeypatch, change)
