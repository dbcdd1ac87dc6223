"""D18: wherever a pass dies or fails, the session is what it was or what it was to become."""

from __future__ import annotations

import hashlib
import math
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import orjson
import pytest

from agent.base.errors import StoreError
from agent.base.messages import wire_message
from agent.sessions.records import PassStatus
from agent.testing.stub_reply import Reply
from hermes_state import SessionDB
from tests.field_reports.dying_pass import WINDOW
from tests.field_reports.harness import SUMMARISER, SUMMARY, Bench, settings_for

ROOT = Path(__file__).parents[2]
FULL = 5_500
STRIDE = 1 if os.environ.get("HERMES_SOAK") == "1" else 7
"""Statements of a pass from one kill to the next."""


def start_child(*arguments: object) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "tests.field_reports.dying_pass", *map(str, arguments)]
    return subprocess.Popen(command, cwd=ROOT, stderr=subprocess.PIPE, text=True)


def digest_of(store: SessionDB) -> str:
    """Return a hash of everything a person or a model can see of the session."""
    view = [(row["_seq"], row.get("_kind"), wire_message(row)) for row in store.view("s").messages]
    rows = [wire_message(row) for row in store.accepted_rows("s", 1, 1_000)]
    seen = [view, rows, store.head("s").generation]
    return hashlib.sha256(orjson.dumps(seen)).hexdigest()


@pytest.fixture
def filled(stub, tmp_path):
    """The path of a closed store whose session `s` is above its trigger."""
    stub.script([], model=SUMMARISER, then=Reply(text=SUMMARY))
    path = tmp_path / "filled.db"
    store = SessionDB(db_path=path)
    Bench(stub, store, settings_for(stub.base_url, window_tokens=WINDOW)).fill_to(FULL)
    store.close()
    return path


def check_reopened(stub: Any, path: Path, before: str, after: str) -> tuple[str, str]:
    """Reopen a store, check that it is whole, finish its pass, and return what it was at first and
    the status of its newest attempt then."""
    store = SessionDB(db_path=path)
    try:
        found = digest_of(store)
        status = str(store.passes("s")[-1].status) if store.passes("s") else ""
        assert found in (before, after)
        assert store.check().problems == []
        bench = Bench(stub, store, settings_for(stub.base_url, window_tokens=WINDOW))
        bought = len(bench.summary_requests)
        if found == before:
            assert bench.agent.compress().status is PassStatus.COMMITTED
            assert digest_of(store) == after
            assert len(bench.summary_requests) - bought == (status != "prepared")
        assert bench.agent.chat("go on") == "ok"
        assert bench.refusals == []
        bench.agent.close()
        return found, status
    finally:
        store.close()


def digests(stub: Any, path: Path, tmp_path: Path) -> tuple[str, str]:
    """Return the hash of the session and that after a pass that nothing disturbs."""
    copy = tmp_path / "undisturbed.db"
    copy.write_bytes(path.read_bytes())
    store = SessionDB(db_path=copy)
    before = digest_of(store)
    bench = Bench(stub, store, settings_for(stub.base_url, window_tokens=WINDOW))
    assert bench.agent.compress().status is PassStatus.COMMITTED
    after = digest_of(store)
    bench.agent.close()
    store.close()
    assert before != after
    return before, after


@pytest.mark.fuller
def test_d18_killed_at_any_statement_of_a_pass_the_session_is_old_or_new(stub, filled, tmp_path):
    before, after = digests(stub, filled, tmp_path)
    folder = tmp_path / "killed"
    folder.mkdir()
    with start_child("everywhere", stub.base_url, filled, folder, STRIDE) as parent:
        _out, errors = parent.communicate()
    assert parent.returncode == 0, errors
    copies = sorted(folder.glob("*.db"))
    found = [check_reopened(stub, copy, before, after) for copy in copies]
    assert len(copies) > 40 // STRIDE
    assert {state for state, _status in found} == {before, after}
    assert {"", "planned", "prepared", "committed"} <= {status for _state, status in found}


MOMENTS = {
    "before the first byte": Reply(text=SUMMARY, before_first_byte_s=math.inf),
    "in mid stream": Reply(text=SUMMARY, stall_after_chars=200),
}


@pytest.mark.parametrize("reply", MOMENTS.values(), ids=MOMENTS)
def test_d18_killed_while_the_summary_is_written_the_session_is_the_old_one(
    stub, filled, tmp_path, reply
):
    before, after = digests(stub, filled, tmp_path)
    stub.script([reply], model=SUMMARISER, then=Reply(text=SUMMARY))
    seen = len(stub.requests)
    with start_child("once", stub.base_url, filled) as child:
        stub.wait_for_requests(seen + 1)
        os.kill(child.pid, signal.SIGKILL)
        child.communicate(timeout=10)
    assert check_reopened(stub, filled, before, after) == (before, "planned")
    store = SessionDB(db_path=filled)
    statuses = [(row.status, row.failure_class) for row in store.passes("s")]
    store.close()
    assert statuses == [(PassStatus.ABORTED, "crashed"), (PassStatus.COMMITTED, "")]


# -- what raises instead of dying ---------------------------------------------------------------
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
def test_d18_a_step_of_the_store_that_raises_leaves_the_old_session(
    stub, filled, tmp_path, step, late
):
    before, after = digests(stub, filled, tmp_path)
    store = FailingStore(db_path=filled)
    bench = Bench(stub, store, settings_for(stub.base_url, window_tokens=WINDOW))
    store.fails, store.late = step, late
    with pytest.raises(StoreError, match="the disk is full"):
        bench.agent.compress()
    assert digest_of(store) == before
    assert store.get_compression_lock_holder("s") is None
    bench.agent.close()
    store.close()
    found, _status = check_reopened(stub, filled, before, after)
    assert found == before


def test_d18_an_error_inside_the_commits_transaction_rolls_it_back(stub, filled, tmp_path):
    before, after = digests(stub, filled, tmp_path)
    store = SessionDB(db_path=filled)
    bench = Bench(stub, store, settings_for(stub.base_url, window_tokens=WINDOW))
    writer = store._database._writer
    writer.execute(
        "CREATE TRIGGER break_commit BEFORE UPDATE OF generation ON conversations "
        "BEGIN SELECT RAISE(ABORT, 'no space left on device'); END"
    )
    with pytest.raises(StoreError):
        bench.agent.compress()
    assert digest_of(store) == before
    assert bench.store.get_compression_lock_holder("s") is None
    assert len(bench.summary_requests) == 2
    writer.execute("DROP TRIGGER break_commit")
    bench.agent.close()
    store.close()
    found, status = check_reopened(stub, filled, before, after)
    assert (found, status) == (before, "failed")


def test_d18_a_rate_limit_after_everything_was_planned_blanks_nothing(stub, filled, tmp_path):
    """The report's own case: 429 when the rows were to be replaced."""
    before, after = digests(stub, filled, tmp_path)
    stub.script([Reply(status=429)] * 2, model=SUMMARISER, then=Reply(text=SUMMARY))
    store = SessionDB(db_path=filled)
    bench = Bench(stub, store, settings_for(stub.base_url, window_tokens=WINDOW))
    assert bench.agent.compress().status is PassStatus.FAILED
    assert digest_of(store) == before
    bench.agent.close()
    store.close()
    found, status = check_reopened(stub, filled, before, after)
    assert (found, status) == (before, "failed")
