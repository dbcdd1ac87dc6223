"""D03: a stop of a stalled pass is remembered, an early stop of a healthy one is not punished."""

from __future__ import annotations

import itertools
import math
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

from agent.base.settings import CompressionSettings
from agent.conversation_compression import CompressionCommitFence
from agent.sessions.records import PassStatus
from agent.testing.clock import FakeClock
from agent.testing.stub_reply import Reply
from tests.best_of import best_of
from tests.field_reports.harness import SUMMARISER, SUMMARY, Bench, settings_for, small_talk

IDLE_S, SILENT_S, EARLY_S, PIECE_EVERY_S = 1.0, 2.0, 0.5, 0.2
WINDOW = 8_000
STOPPED_WITHIN_S = 4 * 0.25
_sessions = itertools.count(1)

SILENT_BEFORE = Reply(text=SUMMARY, before_first_byte_s=math.inf)
SILENT_WITHIN = Reply(text=SUMMARY, stall_after_chars=100)
HEALTHY = Reply(text=SUMMARY, chunk_delay_s=PIECE_EVERY_S)


@pytest.fixture
def open_stalling(stub, open_bench):
    """A bench with a history above the trigger."""

    def open_one(reply, **options):
        stub.script([], model=SUMMARISER, then=reply)
        compression = CompressionSettings(context_timeout_seconds=IDLE_S)
        settings = settings_for(stub.base_url, window_tokens=WINDOW, compression=compression)
        bench = open_bench(settings, **options)
        bench.fill(small_talk(20, tokens=150))
        return bench

    return open_one


def in_a_turn(bench: Bench, _fence: CompressionCommitFence) -> object:
    return bench.agent.run_conversation("go on").stop_reason


def by_hand(bench: Bench, _fence: CompressionCommitFence) -> object:
    return bench.agent.compress().status


def from_outside(bench: Bench, fence: CompressionCommitFence) -> object:
    given = bench.view
    result, _prompt = bench.agent._compress_context(given, "sys", commit_fence=fence)
    return result is given


WAYS = {"in a turn": in_a_turn, "by hand": by_hand, "from outside": from_outside}
ANSWERS = {"in a turn": "interrupted", "by hand": PassStatus.ABORTED, "from outside": True}


def stop_during(bench: Bench, way: str, wait: Callable[[], object]) -> tuple[object, float]:
    """Run a pass one way, stop it once `wait` returned, and return what it gave and how long it
    took until both it and its connection had ended."""
    fence = CompressionCommitFence(clock=bench.agent.clock)
    seen, summaries = len(bench.stub.requests), len(bench.summary_requests)
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(WAYS[way], bench, fence)
        bench.stub.wait_for_requests(seen + 1)
        wait()
        asked_at = time.monotonic()
        bench.agent.interrupt()
        outcome = running.result(10)
        ended_at = time.monotonic()
    [request] = bench.summary_requests[summaries:]
    assert request.done.wait(10)
    assert request.client_closed_at is not None
    return outcome, max(request.client_closed_at, ended_at) - asked_at


@pytest.mark.parametrize("way", WAYS)
def test_d03_a_stop_after_a_silence_is_a_durable_stall_with_class_and_message_count(
    open_stalling, way
):
    def stop_one() -> float:
        clock = FakeClock(time.time())
        bench = open_stalling(SILENT_BEFORE, clock=clock, session_id=f"s{next(_sessions)}")
        return stop_in_silence(bench, way, clock)

    assert best_of(stop_one, STOPPED_WITHIN_S) < STOPPED_WITHIN_S


def stop_in_silence(bench: Bench, way: str, clock: FakeClock) -> float:
    """Stop a pass that is silent, check what stays of it, and return how long that took."""
    before = bench.state
    outcome, took_s = stop_during(bench, way, lambda: clock.advance(SILENT_S))
    assert outcome == ANSWERS[way]
    said = 1 if way == "in a turn" else 0
    assert bench.view[: len(before["view"])] == before["view"]
    assert len(bench.rows) == len(before["rows"]) + said
    assert bench.state["holder"] is None
    assert bench.store.head(bench.session_id).generation == 0
    [attempt] = bench.passes
    assert (attempt.status, attempt.failure_class) == (PassStatus.ABORTED, "stall_interrupted")
    messages = len(before["view"]) + said
    brake = bench.cooldown
    assert brake is not None
    assert brake["error"].startswith(f"stall_interrupted:msgs={messages}:")
    assert brake["failure_class"] == "stall_interrupted"
    return took_s


def test_d03_the_turn_after_a_stalled_pass_does_not_run_it_again(stub, store, open_stalling):
    clock = FakeClock(time.time())
    bench = open_stalling(SILENT_BEFORE, clock=clock)
    stop_during(bench, "in a turn", lambda: clock.advance(SILENT_S))
    stub.script([Reply(text="after the stop")])
    assert bench.agent.chat("what now?") == "after the stop"
    assert len(bench.summary_requests) == 1
    assert store.passes("s")[-1].failure_class == "blocked:cooldown"


@pytest.mark.parametrize("way", WAYS)
def test_d03_an_early_stop_of_a_healthy_pass_arms_no_brake(open_stalling, way):
    def stop_one() -> float:
        return stop_early(open_stalling(HEALTHY, session_id=f"s{next(_sessions)}"), way)

    assert best_of(stop_one, STOPPED_WITHIN_S) < STOPPED_WITHIN_S


def stop_early(bench: Bench, way: str) -> float:
    """Stop a pass that goes well, check that the next may run, and return how long it took."""
    before = bench.state
    outcome, took_s = stop_during(bench, way, lambda: threading.Event().wait(EARLY_S))
    assert outcome == ANSWERS[way]
    assert bench.view[: len(before["view"])] == before["view"]
    assert bench.state["holder"] is None
    assert bench.cooldown is None
    assert bench.store.health(bench.session_id) == {}
    assert bench.passes[-1].failure_class == "explicit_interrupt"
    bench.stub.script([], model=SUMMARISER, then=Reply(text=SUMMARY))
    bench.agent.chat("again")
    assert len(bench.committed) == 1
    return took_s


def test_d03_a_silence_inside_the_answer_ends_at_the_idle_limit_and_brakes(open_stalling):
    def fall_silent() -> float:
        bench = open_stalling(SILENT_WITHIN, session_id=f"s{next(_sessions)}")
        before, seen = bench.state, len(bench.summary_requests)
        asked_at = time.monotonic()
        record = bench.agent.compress()
        took_s = time.monotonic() - asked_at
        assert took_s >= IDLE_S
        assert record.status is PassStatus.FAILED
        assert bench.state == before
        assert f":msgs={len(before['view'])}:" in bench.cooldown["error"]
        assert bench.cooldown["remaining_seconds"] > IDLE_S
        assert len(bench.summary_requests) == seen + 1
        return took_s

    assert best_of(fall_silent, 4 * IDLE_S) < 4 * IDLE_S


@pytest.mark.parametrize("seconds", [90, 900, 7_200])
def test_d03_a_longer_brake_is_never_shortened(open_stalling, seconds):
    clock = FakeClock(time.time())
    bench = open_stalling(SILENT_BEFORE, clock=clock)
    bench.store.record_compression_failure_cooldown("s", clock.now() + seconds, "prior timeout")
    before = bench.cooldown["cooldown_until"]
    stop_during(bench, "by hand", lambda: clock.advance(SILENT_S))
    assert bench.cooldown["cooldown_until"] == before
    assert "stall_interrupted:msgs=40:" in bench.cooldown["error"]


def test_d03_an_early_stop_leaves_a_brake_that_runs_as_it_is(open_stalling):
    bench = open_stalling(HEALTHY)
    bench.store.record_compression_failure_cooldown("s", time.time() + 900, "prior timeout")
    before = bench.cooldown
    stop_during(bench, "by hand", lambda: threading.Event().wait(EARLY_S))
    after = bench.cooldown
    assert (after["cooldown_until"], after["error"]) == (
        before["cooldown_until"],
        "prior timeout",
    )
