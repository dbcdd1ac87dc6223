"""What ends a preparation: a stop, a closed agent, a pass by hand, another change of the view."""

from __future__ import annotations

import time
from typing import Any

from agent.base.settings import CompressionSettings
from agent.sessions.records import PassStatus
from agent.testing.clock import FakeClock
from agent.testing.stub_reply import Reply
from agent.testing.stub_server import StubModelServer
from tests.background.harness import (
    WAIT_S,
    background_threads,
    fill_near,
    held_summary,
    settings,
    settle,
    wait_for_summary_request,
)
from tests.best_of import best_of
from tests.field_reports.conftest import OpenBench
from tests.field_reports.harness import SUMMARISER, SUMMARY, Bench

WITHIN_S = 4 * 0.25


def preparing(stub: StubModelServer, open_bench: OpenBench, **options: Any) -> Bench:
    """Return a bench whose agent prepares a pass that gets no answer."""
    held_summary(stub)
    asked = len(stub.requests_for(SUMMARISER))
    bench = open_bench(settings(stub), **options)
    fill_near(bench)
    bench.agent.chat("first")
    wait_for_summary_request(bench, asked + 1)
    return bench


def assert_ended(bench: Bench) -> float:
    """The socket was closed and no thread, lease or brake is left; return when it was closed."""
    request = bench.summary_requests[-1]
    assert request.done.wait(WAIT_S)
    assert request.client_closed_at is not None
    assert background_threads() == []
    assert bench.store.get_compression_lock_holder(bench.session_id) is None
    assert bench.cooldown is None
    [row] = bench.passes
    assert (row.status, row.failure_class) == (PassStatus.ABORTED, "explicit_interrupt")
    return request.client_closed_at


def test_a_stop_ends_the_preparation_at_once_and_leaves_nothing(stub, open_bench):
    benches: list[Bench] = []

    def stop_one() -> float:
        bench = preparing(stub, open_bench, session_id=f"s{len(benches)}")
        benches.append(bench)
        before = bench.state | {"holder": None}
        asked_at = time.monotonic()
        bench.agent.interrupt()
        settle(bench)
        settled_at = time.monotonic()
        closed_at = assert_ended(bench)
        assert bench.state == before
        return max(settled_at, closed_at) - asked_at

    assert best_of(stop_one, WITHIN_S) < WITHIN_S
    assert benches[-1].agent.chat("second") == "ok"


def test_closing_the_agent_ends_the_preparation_and_waits_for_its_thread(stub, open_bench):
    names = iter("abcde")

    def close_one() -> float:
        bench = preparing(stub, open_bench, session_id=next(names))
        asked_at = time.monotonic()
        bench.agent.close()
        closed_at = time.monotonic()
        assert not bench.agent.background.running
        return max(closed_at, assert_ended(bench)) - asked_at

    assert best_of(close_one, WITHIN_S) < WITHIN_S


def test_nothing_is_prepared_by_an_agent_that_was_closed(stub, open_bench):
    bench = open_bench(settings(stub))
    fill_near(bench)
    bench.agent.close()
    bench.agent.background.consider(5_000)
    assert bench.agent.background._job is None


def test_a_stop_after_a_silence_counts_as_a_stall_and_brakes(stub, open_bench):
    clock = FakeClock(time.time())
    bench = preparing(stub, open_bench, clock=clock)
    clock.advance(CompressionSettings().context_timeout_seconds + 1)
    bench.agent.interrupt()
    settle(bench)
    [row] = bench.passes
    assert (row.status, row.failure_class) == (PassStatus.ABORTED, "stall_interrupted")
    assert bench.cooldown is not None
    assert bench.cooldown["failure_class"] == "stall_interrupted"
    bench.agent.chat("second")
    assert len(bench.summary_requests) == 1


def test_a_manual_pass_ends_the_preparation_and_runs(stub, open_bench):
    bench = preparing(stub, open_bench)
    stub.script([], model=SUMMARISER, then=Reply(text=SUMMARY))
    record = bench.agent.compress()
    assert record.status is PassStatus.COMMITTED
    assert [row.status for row in bench.passes] == [PassStatus.ABORTED, PassStatus.COMMITTED]
    assert background_threads() == []


def test_a_preview_ends_the_preparation_and_is_never_taken_by_a_turn(stub, open_bench):
    bench = preparing(stub, open_bench)
    stub.script([], model=SUMMARISER, then=Reply(text=SUMMARY))
    preview = bench.agent.compress(preview=True)
    assert preview.status is PassStatus.PREPARED
    bench.agent.chat("second")
    settle(bench)
    assert bench.store.pass_record(preview.id).status is PassStatus.PREPARED
    assert bench.agent.commit_prepared().id == preview.id


def test_another_model_ends_the_preparation(stub, open_bench):
    bench = preparing(stub, open_bench)
    bench.agent.switch_model("another")
    assert bench.passes[0].failure_class == "explicit_interrupt"
    assert background_threads() == []


def test_a_rewind_supersedes_what_is_being_prepared_and_nothing_is_committed(stub, open_bench):
    release = held_summary(stub)
    bench = open_bench(settings(stub))
    fill_near(bench)
    bench.agent.chat("first")
    wait_for_summary_request(bench)
    bench.store.rewind("s", 5)
    after = bench.view
    release.set()
    settle(bench)
    bench.agent.chat("second")
    assert bench.passes[0].status is PassStatus.SUPERSEDED
    assert bench.view[: len(after)] == after
    assert bench.cooldown is None
    assert bench.store.check().problems == []


def test_a_rewind_supersedes_what_was_prepared_and_the_turn_costs_nothing(stub, open_bench):
    release = held_summary(stub)
    release.set()
    bench = open_bench(settings(stub))
    fill_near(bench)
    bench.agent.chat("first")
    settle(bench)
    bench.store.rewind("s", 5)
    bench.agent.chat("second")
    assert [row.status for row in bench.passes][0] is PassStatus.SUPERSEDED
    assert len(bench.summary_requests) == 1
    assert bench.committed[-1].kind == "rewind"
