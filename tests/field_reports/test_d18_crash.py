"""D18: wherever a change of a view dies or fails, the session is the old one or the new one."""

from __future__ import annotations

import math
import os
import signal
import subprocess
import sys
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from agent.base.errors import StoreError
from agent.sessions.records import PassStatus
from agent.testing.stub_reply import Reply
from hermes_state import SessionDB
from tests.field_reports.acts import ACTS, in_one_line, open_agent, run_or_fail
from tests.field_reports.harness import SUMMARISER, SUMMARY
from tests.field_reports.stopped import Prepared, digest_of, last_pass, prepare

ROOT = Path(__file__).parents[2]
IN_FULL = os.environ.get("HERMES_SOAK") == "1"
KINDS = {name: name for name in ACTS} | {"rotation": "summary", "background": "summary"}
"""The kind of the ledger row that an act leaves."""


def start_child(*arguments: object) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "tests.field_reports.dying_pass", *map(str, arguments)]
    return subprocess.Popen(command, cwd=ROOT, stderr=subprocess.PIPE, text=True)


@pytest.fixture(params=ACTS)
def each(request, stub, tmp_path):
    """A store for each act."""
    return prepare(stub, request.param, tmp_path)


@pytest.fixture
def filled(stub, tmp_path):
    """A store whose session `s` is above its trigger."""
    return prepare(stub, "summary", tmp_path)


def name_of(prepared: Prepared) -> str:
    [name] = [name for name, act in ACTS.items() if act is prepared.act]
    return name


# -- kill -9 ------------------------------------------------------------------------------------


@pytest.mark.fuller
def test_d18_killed_at_any_statement_of_a_pass_the_session_is_old_or_new(each, tmp_path):
    assert last_pass(tmp_path / "undisturbed.db").kind == KINDS[name_of(each)]
    folder = tmp_path / "killed"
    folder.mkdir()
    stride = 1 if IN_FULL else 9
    url = each.stub.base_url
    with start_child("everywhere", name_of(each), url, each.path, folder, stride) as parent:
        _out, errors = parent.communicate()
    assert parent.returncode == 0, errors
    copies = sorted(folder.glob("*.db"))
    assert len(copies) > 27 // stride
    found = [each.check_reopened(copy) for copy in copies]
    assert {state for state, _status in found} == {each.before, each.after}
    if IN_FULL and each.summaries and name_of(each) != "micro":
        assert {"planned", "prepared", "committed"} <= {status for _state, status in found}


MOMENTS = {
    "before the first byte": {"before_first_byte_s": math.inf},
    "in mid stream": {"stall_after_chars": 1},
}


@pytest.mark.parametrize("silence", MOMENTS.values(), ids=MOMENTS)
@pytest.mark.parametrize("name", ["summary", "micro", "rotation", "background"])
def test_d18_killed_while_the_summary_is_written_the_session_is_the_old_one(
    stub, tmp_path, name, silence
):
    prepared = prepare(stub, name, tmp_path)
    text = prepared.act.summary
    stub.script([Reply(text=text, **silence)], model=SUMMARISER, then=Reply(text=text))
    seen = len(stub.requests)
    with start_child("once", name, stub.base_url, prepared.path) as child:
        stub.wait_for_requests(seen + 1)
        os.kill(child.pid, signal.SIGKILL)
        child.communicate(timeout=10)
    assert prepared.check_reopened(prepared.path) == (prepared.before, "planned")
    store = SessionDB(db_path=prepared.path)
    statuses = [(row.status, row.failure_class) for row in store.passes("s")]
    store.close()
    assert statuses[:2] == [(PassStatus.ABORTED, "crashed"), (PassStatus.COMMITTED, "")]


# -- what raises instead of dying ---------------------------------------------------------------


class FailingStatements:
    """Lets statement `number` of a store's writer fail, and all after it when it `lasts`.

    A rollback writes nothing and never fails.
    """

    def __init__(self, store: SessionDB, number: int, *, lasts: bool) -> None:
        self._left, self._lasts, self.failed = number, lasts, 0
        self._statement = ""
        writer = store._database._writer
        writer.set_trace_callback(self._count)
        writer.set_progress_handler(self._is_failing, 1)

    def _count(self, statement: str) -> None:
        self._statement = statement
        self._left -= 1

    def _is_failing(self) -> bool:
        reached = self._left == 0 or (self._left < 0 and self._lasts)
        fails = reached and self._statement != "ROLLBACK"
        self.failed += fails
        return fails

    def end(self, store: SessionDB) -> None:
        store._database._writer.set_trace_callback(None)
        store._database._writer.set_progress_handler(None, 0)


@pytest.mark.fuller
@pytest.mark.parametrize("lasts", [False, True], ids=["once", "from then on"])
def test_d18_where_a_statement_fails_the_session_is_old_or_new_and_goes_on(each, tmp_path, lasts):
    for number in count(1, 1 if IN_FULL else 9):
        path = tmp_path / f"{number}.db"
        path.write_bytes(each.path.read_bytes())
        store = SessionDB(db_path=path)
        agent = open_agent(each.act, each.stub.base_url, store)
        fault = FailingStatements(store, number, lasts=lasts)
        try:
            assert in_one_line(run_or_fail(each.act, agent))
            fault.end(store)
            each.check_goes_on(agent)
        finally:
            agent.close()
            store.close()
        if not fault.failed:
            break
    assert number > 27


STEPS = [
    ("open_pass", False),
    ("prepare_pass", False),
    ("prepare_pass", True),
    ("commit_pass", False),
]
"""Steps of the store, and whether they fail once they are done."""


class FailingStore(SessionDB):
    """A store one of whose steps fails, before or after it was done."""

    fails: str = ""
    late: bool = False

    def _fail(self, step: str, late: bool) -> None:
        if (self.fails, self.late) == (step, late):
            self.fails = ""
            raise StoreError(f"{step} failed: the disk is full; free some space")

    def open_pass(self, opening: Any) -> None:
        self._fail("open_pass", False)
        super().open_pass(opening)

    def prepare_pass(self, pass_id: str, plan: Any) -> None:
        self._fail("prepare_pass", False)
        super().prepare_pass(pass_id, plan)
        self._fail("prepare_pass", True)

    def commit_pass(self, commit: Any, admit: Any) -> Any:
        self._fail("commit_pass", False)
        return super().commit_pass(commit, admit)


@pytest.mark.parametrize(("step", "late"), STEPS)
def test_d18_a_step_of_the_store_that_raises_leaves_the_old_session(filled, step, late):
    store = FailingStore(db_path=filled.path)
    agent = open_agent(filled.act, filled.stub.base_url, store)
    store.fails, store.late = step, late
    with pytest.raises(StoreError, match="the disk is full"):
        agent.compress()
    assert digest_of(store) == filled.before
    assert store.get_compression_lock_holder("s") is None
    agent.close()
    store.close()
    found, _status = filled.check_reopened(filled.path)
    assert found == filled.before


def test_d18_an_error_inside_the_commits_transaction_rolls_it_back(filled):
    store = SessionDB(db_path=filled.path)
    agent = open_agent(filled.act, filled.stub.base_url, store)
    bought = filled.bought()
    writer = store._database._writer
    writer.execute(
        "CREATE TRIGGER break_commit BEFORE UPDATE OF generation ON conversations "
        "BEGIN SELECT RAISE(ABORT, 'no space left on device'); END"
    )
    with pytest.raises(StoreError):
        agent.compress()
    assert digest_of(store) == filled.before
    assert store.get_compression_lock_holder("s") is None
    assert filled.bought() - bought == 1
    writer.execute("DROP TRIGGER break_commit")
    agent.close()
    store.close()
    assert filled.check_reopened(filled.path) == (filled.before, "failed")


def test_d18_a_rate_limit_after_everything_was_planned_blanks_nothing(filled):
    """The report's own case: 429 when the rows were to be replaced."""
    filled.stub.script([Reply(status=429)] * 2, model=SUMMARISER, then=Reply(text=SUMMARY))
    store = SessionDB(db_path=filled.path)
    agent = open_agent(filled.act, filled.stub.base_url, store)
    assert agent.compress().status is PassStatus.FAILED
    assert digest_of(store) == filled.before
    agent.close()
    store.close()
    assert filled.check_reopened(filled.path) == (filled.before, "failed")
