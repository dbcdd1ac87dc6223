"""kill -9 of a process that prepares: what was paid for is used by the next one."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from agent.sessions.records import PassStatus
from agent.testing.stub_reply import Reply
from agent.testing.stub_server import StubModelServer
from hermes_state import SessionDB
from tests.background.harness import fill_near, settings, settle
from tests.field_reports.conftest import OpenBench
from tests.field_reports.harness import SUMMARISER, SUMMARY, Bench

ROOT = Path(__file__).parents[2]


@pytest.fixture
def bench_after(stub: StubModelServer, store: SessionDB, open_bench: OpenBench):
    """A function that lets a process die at a moment and returns a bench on the same session."""

    def after(moment: str) -> Bench:
        stub.script([], model=SUMMARISER, then=Reply(text=SUMMARY))
        bench = open_bench(settings(stub))
        fill_near(bench)
        command = [sys.executable, "-m", "tests.background.child"]
        ended = subprocess.run(
            [*command, stub.base_url, str(store.path), moment],
            cwd=ROOT,
            capture_output=True,
            timeout=20,
            check=False,
        )
        assert ended.returncode == -signal.SIGKILL, ended.stderr.decode()
        return bench

    return after


def test_a_prepared_pass_survives_and_is_committed_by_the_next_process(bench_after):
    bench = bench_after("prepared")
    [prepared] = bench.passes
    assert prepared.status is PassStatus.PREPARED
    result = bench.agent.run_conversation("second")
    assert result.passes == [prepared.id]
    assert bench.store.pass_record(prepared.id).status is PassStatus.COMMITTED
    assert len(bench.summary_requests) == 1
    assert bench.store.check().problems == []


def test_a_pass_that_was_not_prepared_yet_is_closed_and_prepared_anew(bench_after):
    bench = bench_after("planned")
    [planned] = bench.passes
    assert planned.status is PassStatus.PLANNED
    bench.agent.chat("second")
    settle(bench)
    assert [(row.status, row.failure_class) for row in bench.passes] == [
        (PassStatus.ABORTED, "crashed"),
        (PassStatus.PREPARED, ""),
    ]
    bench.agent.chat("third")
    assert len(bench.committed) == 1
    assert bench.store.check().problems == []
