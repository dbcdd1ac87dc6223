"""Each law that can be broken on disk is found, and named with where it is broken."""

from __future__ import annotations

import sqlite3

import pytest

from hermes_state import SessionDB
from tests.sessions.steps import LARGE, SESSION, begin, cover, mask, open_pass, take_lease, talk

_OPEN_GATE = "INSERT INTO deletions VALUES (0)"

BREACHES = {
    "lost row": (
        [_OPEN_GATE, "DELETE FROM messages WHERE id = 1"],
        ["place 1 of conversation 1 points at row 1, which does not exist"],
    ),
    "row without place": (
        ["DELETE FROM places WHERE row_id = 5"],
        ["row 5 stands in no conversation", "live_count", "live_tokens", "accepted_count"],
    ),
    "lost session": (
        ["DELETE FROM sessions"],
        ["conversation 1 is carried on by 's1', which is no session of it"],
    ),
    "covered by nothing": (
        ["UPDATE places SET compacted_by = 99 WHERE row_id = 1"],
        ["place 1 of conversation 1 is covered by a pass that is not in force"],
    ),
    "covered by an open pass": (
        ["UPDATE places SET compacted_by = 3 WHERE row_id = 1"],
        ["place 1 of conversation 1 is covered by a pass that is not in force"],
    ),
    "masked by nothing": (
        ["UPDATE places SET masked_by = 99 WHERE row_id = 3"],
        ["place 3 of conversation 1 is masked by a pass that is not in force"],
    ),
    "made by nothing": (
        ["UPDATE places SET made_by = 99 WHERE row_id = 7"],
        ["place 2 of conversation 1 was made by a pass that never was in force"],
    ),
    "two live rows at one place": (
        ["DROP INDEX places_live", "UPDATE places SET compacted_by = NULL WHERE row_id = 2"],
        ["conversation 1 has two live places with seq 2", "live_count", "live_tokens"],
    ),
    "two accepted rows with one seq": (
        ["UPDATE places SET made_by = NULL WHERE row_id = 7"],
        ["conversation 1 has two accepted rows with seq 2", "accepted_count"],
    ),
    "lost blob": (
        ["DELETE FROM blobs"],
        ["row 6 refers to blob"],
    ),
    "planned without lease": (
        ["UPDATE compression_locks SET holder = ''"],
        ["is planned, but no lease stands behind it"],
    ),
    "planned under an older lease": (
        ["UPDATE compression_locks SET token = token + 1"],
        ["is planned, but no lease stands behind it"],
    ),
    "wrong live count": (
        ["UPDATE conversations SET live_count = 77"],
        ["conversation 1 keeps live_count 77, it is 5"],
    ),
    "wrong token total": (
        ["UPDATE conversations SET live_tokens = live_tokens + 1"],
        ["live_tokens"],
    ),
    "wrong pass count": (
        ["UPDATE conversations SET pass_count = 0"],
        ["conversation 1 keeps pass_count 0, it is 2"],
    ),
    "generation behind": (
        ["UPDATE conversations SET generation = 1"],
        ["conversation 1 has generation 1 after 2 passes"],
    ),
    "wrong watermark": (
        ["UPDATE conversations SET watermark = 9"],
        ["conversation 1 keeps watermark 9, it is 6"],
    ),
}


@pytest.fixture
def busy(store: SessionDB) -> SessionDB:
    """A sound store: rows 1 and 2 covered, row 3 masked, row 6 a blob, row 7 a summary, and an
    attempt that is planned."""
    begin(store)
    rows = store.append(
        SESSION, [*talk(5), {"role": "tool", "tool_call_id": "c", "content": LARGE}]
    )
    cover(store, rows[:2])
    mask(store, rows[2])
    open_pass(store, take_lease(store))
    assert list(store.check().problems) == []
    return store


@pytest.mark.parametrize(("statements", "problems"), BREACHES.values(), ids=[*BREACHES])
def test_a_broken_law_is_named(busy: SessionDB, statements: list[str], problems: list[str]) -> None:
    _break(busy, statements, problems)


def _break(store: SessionDB, statements: list[str], problems: list[str]) -> None:
    """Change the store's file by hand and expect what the check then finds."""
    other = sqlite3.connect(store.path, isolation_level=None)
    for statement in statements:
        other.execute(statement)
    other.close()
    found = list(store.check().problems)
    assert len(found) == len(problems)
    for line, expected in zip(found, problems, strict=True):
        assert expected in line


BREACHES_OF_CHANGES = {
    "shown though undone": (
        ["DROP INDEX places_live", "UPDATE places SET hidden_by = NULL WHERE row_id = 5"],
        [
            "place 2 of conversation 1 is shown, but the pass that made it was undone",
            "conversation 1 has two live places with seq 2",
            "live_count",
            "live_tokens",
        ],
    ),
    "hidden by nothing": (
        ["UPDATE places SET hidden_by = 99 WHERE row_id = 4 AND conversation_id = 1"],
        ["place 4 of conversation 1 is hidden by no rewind in force"],
    ),
    "hidden by an undo of something else": (
        ["UPDATE places SET hidden_by = 2 WHERE row_id = 4 AND conversation_id = 1"],
        ["place 4 of conversation 1 is hidden by no rewind in force"],
    ),
    "undone by nothing": (
        ["UPDATE compaction_passes SET target_pass = NULL"],
        ["of conversation 1 is undone, but no undo names it"],
    ),
    "in force over nothing": (
        ["UPDATE compaction_passes SET status = 'committed' WHERE ordinal = 1"],
        [
            "place 2 of conversation 1 was made by a pass in force that covers nothing",
            "conversation 1 keeps pass_count 0, it is 1",
        ],
    ),
    "carried on by a stranger": (
        ["UPDATE conversations SET tip = 'fork' WHERE id = 1"],
        ["conversation 1 is carried on by 'fork', which is no session of it"],
    ),
    "followed": (
        [
            """INSERT INTO sessions (id, conversation_id, source, parent_session_id, started_at)
            VALUES ('late', 1, 'cli', 's1', 0)"""
        ],
        ["session 's1' carries its conversation on, but was followed by 'late'"],
    ),
    "rows of strangers": (
        ["UPDATE conversations SET family = 9 WHERE id = 2"],
        [
            f"place {number} of conversation 2 points at row {number}, which is of another family"
            for number in range(1, 5)
        ],
    ),
}


@pytest.fixture
def changed(store: SessionDB) -> SessionDB:
    """A sound store of four rows: row 5 covered the first two and was undone, row 4 was taken
    back, and a fork has it all."""
    rows = begin(store, 4)
    cover(store, rows[:2])
    store.undo_pass(SESSION)
    store.rewind(SESSION, 4)
    store.fork_session(SESSION, "fork")
    assert list(store.check().problems) == []
    return store


@pytest.mark.parametrize(
    ("statements", "problems"), BREACHES_OF_CHANGES.values(), ids=[*BREACHES_OF_CHANGES]
)
def test_a_broken_law_of_undo_and_forks_is_named(
    changed: SessionDB, statements: list[str], problems: list[str]
) -> None:
    _break(changed, statements, problems)


def test_the_report_counts_what_it_read(busy: SessionDB) -> None:
    begin(busy, 2, "other")
    report = busy.check()
    assert (report.conversations, report.rows, report.passes) == (2, 9, 3)
