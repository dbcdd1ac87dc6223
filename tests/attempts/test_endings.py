"""How an attempt that does not commit ends: stops, failures, refusals, and what they brake."""

from __future__ import annotations

import copy
import threading
import time
from typing import Any

import pytest

from agent.base.errors import AuthError, OverloadError
from agent.base.messages import Message
from agent.base.settings import CompressionSettings
from agent.conversation_compression import (
    STALL_INTERRUPTED_FAILURE_CLASS,
    CompressionCommitFence,
    compress_context,
    compression_attempt_stalled,
    resolve_context_compression_timeouts,
)
from agent.sessions.records import PassStatus
from agent.testing.builders import user
from agent.testing.clock import FakeClock
from hermes_state import SessionDB
from run_agent import AIAgent
from tests.attempts.harness import (
    CEILING_S,
    IDLE_S,
    SUMMARY,
    make_agent,
    messages,
    state_of,
    stop_after,
    use_engine,
)
from tests.best_of import best_of


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock(time.time())


@pytest.fixture
def db(tmp_path, clock):
    store = SessionDB(db_path=tmp_path / "endings.db", clock=clock)
    yield store
    store.close()


@pytest.fixture
def fence(clock) -> CompressionCommitFence:
    return CompressionCommitFence(clock=clock)


@pytest.fixture
def agent(db, clock) -> AIAgent:
    return make_agent(db, clock=clock)


def test_a_stop_before_the_stall_limit_leaves_no_trace_but_its_ledger_row(db, agent, fence):
    calls = use_engine(agent, stop_after(IDLE_S - 0.1, fence))
    before, live = state_of(db), messages()
    given = copy.deepcopy(live)
    result, _prompt = compress_context(agent, live, "sys", approx_tokens=50_000, commit_fence=fence)
    assert result is live
    assert live == given
    assert len(calls) == 1
    assert state_of(db) == before
    assert agent.context_compressor.should_compress(50_000)
    [row] = db.passes("s")
    assert (row.status, row.failure_class) == (PassStatus.ABORTED, "explicit_interrupt")


def test_a_stop_after_the_stall_limit_arms_the_brake_with_class_and_message_count(db, agent, fence):
    calls = use_engine(agent, stop_after(IDLE_S, fence))
    compress_context(agent, messages(), "sys", approx_tokens=50_000, commit_fence=fence)
    cooldown = db.get_compression_failure_cooldown("s")
    assert cooldown is not None
    assert cooldown["error"].startswith(f"{STALL_INTERRUPTED_FAILURE_CLASS}:msgs=20:")
    assert cooldown["remaining_seconds"] == pytest.approx(60)
    assert not agent.context_compressor.should_compress(50_000)
    compress_context(agent, messages(), "sys", approx_tokens=50_000)
    assert len(calls) == 1
    assert [row.status for row in db.passes("s")] == [PassStatus.ABORTED, PassStatus.BLOCKED]


def test_the_idle_clock_stands_still_from_the_moment_of_the_stop(db, agent, fence, clock):
    cancel = fence.token.cancel

    def cancel_late() -> None:
        clock.advance(IDLE_S)
        cancel()

    def stop(_rows: list[Message], **_options: Any) -> list[Message]:
        fence.touch_progress()
        clock.advance(IDLE_S - 0.5)
        fence.cancel_before_commit()
        return SUMMARY

    fence.token.cancel = cancel_late
    use_engine(agent, stop)
    compress_context(agent, messages(), "sys", commit_fence=fence)
    assert fence.seconds_since_progress() == IDLE_S - 0.5
    assert db.passes("s")[-1].failure_class == "explicit_interrupt"
    assert db.get_compression_failure_cooldown("s") is None


def test_a_longer_brake_is_never_shortened_and_takes_the_newest_error(db, agent, fence):
    agent.context_compressor._record_compression_failure_cooldown(900.0, "prior timeout")
    before = db.get_compression_failure_cooldown("s")
    calls = use_engine(agent, stop_after(IDLE_S, fence))
    compress_context(agent, messages(), "sys", force=True, commit_fence=fence)
    after = db.get_compression_failure_cooldown("s")
    assert len(calls) == 1
    assert calls[0]["force"] is True
    assert before is not None
    assert after is not None
    assert after["cooldown_until"] == before["cooldown_until"]
    assert STALL_INTERRUPTED_FAILURE_CLASS in after["error"]


@pytest.mark.parametrize(
    ("candidate", "reason"),
    [
        (lambda rows: rows, "no_progress"),
        (lambda _rows: [], "empty_transcript"),
        (lambda rows: [user("word " * 5_000), *rows[10:]], "would_grow"),
    ],
    ids=["the same", "empty", "grown"],
)
def test_a_candidate_that_helps_nobody_is_refused_and_strikes(db, agent, candidate, reason):
    use_engine(agent, lambda rows, **_: candidate(rows))
    live = messages()
    result, _ = compress_context(agent, live, "sys", approx_tokens=50_000)
    assert result is live
    assert db.passes("s")[-1].failure_class == reason
    assert db.health("s")["strikes"] == 1
    assert db.get_compression_failure_cooldown("s") is None
    assert db.view("s").messages == []


def test_two_useless_automatic_attempts_brake_and_a_manual_one_still_runs(db, agent):
    calls = use_engine(agent, lambda rows, **_: rows)
    for _ in range(4):
        compress_context(agent, messages(), "sys")
    assert len(calls) == 2
    blocked = db.passes("s")[-1]
    assert (blocked.status, blocked.failure_class) == (PassStatus.BLOCKED, "blocked:ineffective")
    assert blocked.count == 2
    compress_context(agent, messages(), "sys", force=True)
    assert len(calls) == 3


@pytest.mark.parametrize(
    ("error", "failure_class", "seconds"),
    [
        (AuthError("401", route="r"), "summary_auth_failure", 60),
        (OverloadError("529", route="r"), "summary_overload_failure", 60),
    ],
)
def test_a_summariser_that_fails_leaves_everything_and_arms_the_brake(
    db, clock, error, failure_class, seconds
):
    events: list[Any] = []
    agent = make_agent(db, clock=clock, on_event=events.append)
    db.append("s", messages())
    before = state_of(db)

    def fail(_rows: list[Message], **_options: Any) -> list[Message]:
        raise error

    use_engine(agent, fail)
    compress_context(agent, [], "sys")
    cooldown = db.get_compression_failure_cooldown("s")
    assert cooldown is not None
    assert cooldown["remaining_seconds"] == pytest.approx(seconds)
    assert {**state_of(db), "cooldown": None} == before
    row = db.passes("s")[-1]
    assert (row.status, row.failure_class) == (PassStatus.FAILED, failure_class)
    told = [event for event in events if event.type in ("notice", "compaction_finished")]
    assert [event.type for event in told] == ["compaction_finished", "notice"]
    assert failure_class in told[1].text
    assert str(error) in told[1].text


def test_a_broken_engine_is_on_record_and_its_error_reaches_the_caller(db, agent):

    def break_down(_rows: list[Message], **_options: Any) -> list[Message]:
        raise ZeroDivisionError("engine bug")

    use_engine(agent, break_down)
    with pytest.raises(ZeroDivisionError):
        compress_context(agent, messages(), "sys")
    assert db.passes("s")[-1].failure_class == "exception:ZeroDivisionError"
    assert db.get_compression_lock_holder("s") is None
    db.append_message("s", "user", "still writable")


def test_an_engine_that_hangs_is_left_alone_as_soon_as_somebody_stops(db, agent):
    def stop_one() -> float:
        started, release = threading.Event(), threading.Event()

        def hang(rows: list[Message], **_options: Any) -> list[Message]:
            started.set()
            release.wait(20)
            return rows

        use_engine(agent, hang)
        worker = threading.Thread(target=compress_context, args=(agent, messages(), "sys"))
        worker.start()
        assert started.wait(10)
        asked = time.monotonic()
        agent.interrupt()
        worker.join(10)
        ended_after_s = time.monotonic() - asked
        assert db.get_compression_lock_holder("s") is None
        assert db.passes("s")[-1].failure_class == "explicit_interrupt"
        release.set()
        return ended_after_s

    assert best_of(stop_one, 1.0) < 1.0


def test_the_total_ceiling_ends_an_engine_that_trickles_for_ever(db, agent, clock):
    release = threading.Event()

    def trickle(rows: list[Message], *, attempt: Any, **_options: Any) -> list[Message]:
        clock.advance(CEILING_S)
        while not release.wait(0.02):
            attempt.fence.touch_progress()
        return rows

    agent.context_compressor.compress = trickle
    compress_context(agent, messages(), "sys")
    release.set()
    row = db.passes("s")[-1]
    assert (row.status, row.failure_class) == (PassStatus.FAILED, "summary_network_failure")
    assert "context_total_ceiling_seconds" in row.detail


def test_what_an_engine_returns_after_the_total_ceiling_is_no_stop_of_a_person(db, agent, clock):
    def be_late(rows: list[Message], **_options: Any) -> list[Message]:
        clock.advance(CEILING_S)
        return [user("notes"), rows[-1]]

    use_engine(agent, be_late)
    compress_context(agent, messages(), "sys")
    row = db.passes("s")[-1]
    assert (row.status, row.failure_class) == (PassStatus.FAILED, "summary_network_failure")
    assert "context_total_ceiling_seconds" in row.detail
    assert db.view("s").messages == []


def test_stalls_are_judged_by_the_fence_and_by_time_only_without_one():
    fence = CompressionCommitFence()
    long_ago = time.monotonic() - 50
    judge = compression_attempt_stalled
    assert not judge(commit_fence=fence, started_at=long_ago, idle_timeout_seconds=50)
    assert judge(commit_fence=None, started_at=long_ago, idle_timeout_seconds=50)
    assert not judge(commit_fence=None, started_at=long_ago, idle_timeout_seconds=0)
    assert not judge(commit_fence=None, started_at=long_ago)


def test_the_total_limit_is_never_shorter_than_the_idle_limit():
    assert resolve_context_compression_timeouts() == (120.0, 600.0)
    settings = CompressionSettings(context_timeout_seconds=50.0, context_total_ceiling_seconds=20.0)
    assert resolve_context_compression_timeouts(settings) == (50.0, 50.0)
