"""Nothing that was accepted is lost and nothing is half done, wherever a process dies or fails."""

from __future__ import annotations

import dataclasses
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from agent.base.errors import StoreError
from agent.sessions.records import Guards, MaskedPlace
from agent.testing.clock import FakeClock
from hermes_state import SessionDB
from tests.sessions.steps import (
    SESSION,
    begin,
    cover,
    draft,
    open_pass,
    summary,
    take_lease,
    talk,
)
from tests.sessions.victim import STEPS

ROOT = Path(__file__).parents[2]


def _victim(*arguments: object) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "tests.sessions.victim", *map(str, arguments)]
    return subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)


def _snapshot(store: SessionDB) -> dict[str, Any]:
    """Return everything that can be read of the test's session; ids of passes that differ from
    run to run are left out."""
    if not store.sessions():
        return {"rows": store.check().rows}
    return {
        "session": store.session(SESSION),
        "sessions": [record.id for record in store.sessions()],
        "view": [_timeless(row) for row in store.view(SESSION).messages],
        "tokens": store.view(SESSION).tokens,
        "head": store.head(SESSION),
        "history": [(_timeless(p.message), p.state) for p in store.history(SESSION)],
        "statuses": [record.status for record in store.passes(SESSION)],
        "cooldown": store.get_compression_failure_cooldown(SESSION) is not None,
        "health": store.health(SESSION),
        "anchor": store.usage_anchor(SESSION),
        "found": [hit.snippet for hit in store.search("message")],
    }


def _timeless(row: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in row.items() if key not in ("_at", "_masked_by")}


def _without_activity(snapshot: dict[str, Any]) -> dict[str, Any]:
    if "session" not in snapshot:
        return snapshot
    session = dataclasses.replace(snapshot["session"], last_active_at=0.0, ended_at=None)
    return {**snapshot, "session": session}


def _read(path: Path) -> dict[str, Any]:
    store = SessionDB(path)
    try:
        assert list(store.check().problems) == []
        return _without_activity(_snapshot(store))
    finally:
        store.close()


@pytest.fixture
def prepared(tmp_path: Path) -> Path:
    """A store with six rows, a summary, and a prepared pass whose lease was given back."""
    store = SessionDB(tmp_path / "prepared.db")
    rows = begin(store, 6)
    cover(store, rows[:1])
    store.set_usage_anchor(SESSION, {"prompt": 10, "ratio": 1.5})
    lease = take_lease(store)
    store.prepare_pass(open_pass(store, lease), {"text": "what happened"})
    store.release_lease(lease)
    store.close()
    return store.path


@pytest.mark.parametrize("step", [*STEPS])
def test_a_process_killed_at_any_statement_leaves_the_old_state_or_the_new(
    tmp_path: Path, prepared: Path, step: str
) -> None:
    before = _read(prepared)
    folder = tmp_path / "killed"
    folder.mkdir()
    with _victim(step, prepared, folder) as parent:
        assert parent.wait() == 0
    count = len(list(folder.glob("*.db")))
    outcomes = [_read(folder / f"{number}.db") for number in range(1, count + 1)]
    after = outcomes[-1]
    assert (after != before) is (step != "index")
    assert [outcome for outcome in outcomes if outcome not in (before, after)] == []
    assert before in outcomes or step == "index"
    assert len(outcomes) > 3


def test_a_killed_process_loses_no_row_that_it_reported(tmp_path: Path) -> None:
    store = SessionDB(tmp_path / "state.db")
    begin(store)
    reported: list[int] = []
    for lines in (1, 17, 60):
        with _victim("append", store.path) as victim:
            assert victim.stdout is not None
            reported += [int(victim.stdout.readline()) for _ in range(lines)]
            victim.kill()
            reported += [int(line) for line in victim.stdout if line.endswith("\n")]
    rows = store.accepted_rows(SESSION, 1, 10_000)
    assert {row["_row_id"] for row in rows} >= set(reported)
    assert [row["_seq"] for row in rows] == list(range(1, len(rows) + 1))
    assert list(store.check().problems) == []
    store.close()


def test_a_lease_of_a_killed_process_is_replaced_at_once(tmp_path: Path) -> None:
    store = SessionDB(tmp_path / "state.db")
    begin(store)
    code = (
        "import os, sys; from hermes_state import SessionDB;"
        f"store = SessionDB(sys.argv[1]); lease = store.acquire_lease({SESSION!r});"
        "print(lease.token, flush=True); sys.stdin.readline()"
    )
    command = [sys.executable, "-c", code, str(store.path)]
    with subprocess.Popen(
        command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "1\n"
        assert store.acquire_lease(SESSION) is None
        holder.kill()
    assert take_lease(store).token == 2
    store.close()


@pytest.mark.parametrize(
    "fault",
    [
        "INSERT ON messages",
        "INSERT ON places",
        "UPDATE OF compacted_by ON places",
        "UPDATE OF masked_by ON places",
        "UPDATE OF live_count ON conversations",
        "UPDATE OF generation ON conversations",
        "UPDATE OF usage_anchor ON conversations",
        "UPDATE OF compression_failure_error ON conversations",
        "UPDATE OF health ON conversations",
        "UPDATE ON compaction_passes",
    ],
)
def test_a_commit_that_fails_at_any_write_changes_nothing(store: SessionDB, fault: str) -> None:
    rows = begin(store, 4)
    store.set_usage_anchor(SESSION, {"prompt": 10})
    lease = take_lease(store)
    pass_id = open_pass(store, lease)
    commit = draft(
        store,
        lease,
        pass_id,
        cover=(rows[0]["_row_id"],),
        mask=(MaskedPlace(rows[2]["_row_id"], {"content": "[left out]"}, 3),),
        pending=tuple(talk(2, first=5)),
        cover_pending=(0,),
        new_row=summary(),
        guards=Guards(cooldown_until=9e9, cooldown_error="x", health={"strikes": 1}),
    )
    before = _snapshot(store)
    writer = store._database._writer
    writer.execute(
        f"CREATE TEMP TRIGGER fault BEFORE {fault} BEGIN SELECT RAISE(ABORT, 'injected'); END"
    )
    with pytest.raises(StoreError, match="injected"):
        store.commit_pass(commit, lambda: True)
    assert _snapshot(store) == before
    writer.execute("DROP TRIGGER fault")
    assert store.commit_pass(commit, lambda: True).generation == 1
    assert list(store.check().problems) == []


@pytest.mark.parametrize("stop", [KeyboardInterrupt, SystemExit, RuntimeError])
def test_an_exception_inside_a_commit_changes_nothing(
    store: SessionDB, clock: FakeClock, stop: type[BaseException]
) -> None:
    rows = begin(store, 3)
    lease = take_lease(store)
    pass_id = open_pass(store, lease)
    commit = draft(store, lease, pass_id, cover=(rows[0]["_row_id"],), new_row=summary())
    before = _snapshot(store)

    def interrupt() -> bool:
        raise stop

    with pytest.raises(stop):
        store.commit_pass(commit, interrupt)
    assert _snapshot(store) == before
    answers: list[Callable[[], object]] = [
        lambda: store.append(SESSION, talk(1, first=4)),
        lambda: store.commit_pass(commit, lambda: True),
    ]
    for answer in answers:
        answer()
    assert store.head(SESSION).generation == 1
