"""When the window fills before the pass is ready, the turn waits, says so and counts it apart."""

from __future__ import annotations

import math
import threading
from concurrent.futures import ThreadPoolExecutor

from agent.sessions.records import PassKind, PassStatus
from agent.testing.stub_reply import Reply
from agent.testing.stub_server import StubModelServer
from tests.background.harness import (
    OVER_TRIGGER,
    WAIT_S,
    fill_near,
    held_summary,
    settings,
    settle,
    wait_for_summary_request,
)
from tests.field_reports.conftest import OpenBench
from tests.field_reports.harness import SUMMARISER, Bench, small_talk

FULL = 7_800


class Watch:
    """Sets `waits` once the turn says that it waits."""

    def __init__(self, bench: Bench) -> None:
        self.waits = threading.Event()
        bench.listener = self.hear

    def hear(self, event: object) -> None:
        if "the turn waits" in getattr(event, "text", ""):
            self.waits.set()


def full_bench(stub: StubModelServer, open_bench: OpenBench) -> Bench:
    """Return a bench whose window has filled while its pass gets no answer."""
    bench = open_bench(settings(stub))
    fill_near(bench)
    bench.agent.chat("first")
    wait_for_summary_request(bench)
    bench.fill(small_talk(14, tokens=100, topic="more"))
    return bench


def test_above_the_trigger_a_request_that_fits_is_sent_while_the_pass_is_prepared(stub, open_bench):
    release = held_summary(stub)
    bench = open_bench(settings(stub))
    fill_near(bench)
    bench.agent.chat("first")
    wait_for_summary_request(bench)
    fill_near(bench, OVER_TRIGGER)
    result = bench.agent.run_conversation("second")
    assert (result.final_text, result.waited_ms, result.passes) == ("ok", 0, [])
    release.set()
    settle(bench)
    assert len(bench.agent.run_conversation("third").passes) == 1
    assert len(bench.summary_requests) == 1


def test_a_full_window_waits_for_the_running_pass_and_says_so(stub, open_bench):
    release = held_summary(stub)
    bench = full_bench(stub, open_bench)
    watch = Watch(bench)
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(bench.agent.run_conversation, "second")
        assert watch.waits.wait(WAIT_S)
        assert not running.done()
        release.set()
        result = running.result(WAIT_S)
    [committed] = bench.committed
    assert result.final_text == "ok"
    assert result.passes == [committed.id]
    assert result.waited_ms > 0
    assert committed.durations["waited"] == result.waited_ms
    assert len(bench.summary_requests) == 1
    assert len([text for text in bench.notices if "the turn waits" in text]) == 1


def test_a_stop_while_the_turn_waits_ends_both(stub, open_bench):
    held_summary(stub)
    bench = full_bench(stub, open_bench)
    watch = Watch(bench)
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(bench.agent.run_conversation, "second")
        assert watch.waits.wait(WAIT_S)
        bench.agent.interrupt()
        assert running.result(WAIT_S).stop_reason == "interrupted"
    settle(bench)
    [row] = bench.passes
    assert (row.status, row.failure_class) == (PassStatus.ABORTED, "explicit_interrupt")
    assert len(bench.main_requests) == 1


def test_when_the_running_pass_fails_the_turn_goes_on_without_a_model(stub, open_bench):
    release = threading.Event()
    failing = Reply(status=401, error="no key", before_first_byte_s=math.inf, release=release)
    stub.script([], model=SUMMARISER, then=failing)
    bench = full_bench(stub, open_bench)
    watch = Watch(bench)
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(bench.agent.run_conversation, "second")
        assert watch.waits.wait(WAIT_S)
        release.set()
        assert running.result(WAIT_S).final_text == "ok"
    assert [(row.status, row.kind) for row in bench.passes] == [
        (PassStatus.FAILED, PassKind.SUMMARY),
        (PassStatus.COMMITTED, PassKind.MECHANICAL),
    ]
    told = [text for text in bench.notices if "compaction failed" in text]
    assert len(told) == 1
    assert len(bench.summary_requests) == 1


def test_an_overflow_of_the_provider_waits_for_the_running_pass(stub, open_bench):
    release = held_summary(stub)
    bench = open_bench(settings(stub))
    fill_near(bench)
    bench.agent.chat("first")
    wait_for_summary_request(bench)
    too_long = Reply(status=400, error="maximum context length is 6000 tokens")
    stub.script([too_long])
    watch = Watch(bench)
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(bench.agent.run_conversation, "second")
        assert watch.waits.wait(WAIT_S)
        release.set()
        result = running.result(WAIT_S)
    assert result.final_text == "ok"
    assert len(result.passes) == 1
    assert len(bench.summary_requests) == 1
