"""A summary that failed is not bought again for the same rows until something has changed."""

from __future__ import annotations

from typing import Any

import pytest

from agent.base.errors import AuthError
from agent.base.settings import CompressionSettings, Settings
from agent.compaction.cooldown import (
    MOST_FAILED_RUNGS,
    Ending,
    FailedRung,
    Health,
    Outcome,
    next_health,
)
from agent.sessions.records import PassKind, PassStatus
from agent.testing.clock import FakeClock
from agent.testing.scripted import ScriptedProvider
from agent.testing.summaries import GOOD_SUMMARY
from hermes_state import SessionDB
from run_agent import AIAgent
from tests.field_reports.harness import small_talk

FAILS = AuthError("401", route="r")


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def db(tmp_path, clock):
    store = SessionDB(db_path=tmp_path / "memory.db", clock=clock)
    store.create_session("s", "test")
    store.append("s", small_talk(20, tokens=150))
    yield store
    store.close()


def open_agent(db: SessionDB, clock: FakeClock, *script: Any, model: str = "scripted") -> AIAgent:
    return AIAgent(
        session_db=db,
        session_id="s",
        settings=Settings(compression=CompressionSettings(background=False)),
        provider=ScriptedProvider(script, then=GOOD_SUMMARY, window_tokens=8_000, model=model),
        clock=clock,
        skip_memory=True,
        builtin_tools=False,
        skip_context_files=True,
    )


def calls(agent: AIAgent) -> int:
    provider = agent.provider
    assert isinstance(provider, ScriptedProvider)
    return len(provider.requests)


def fail_and_release(db: SessionDB, clock: FakeClock) -> AIAgent:
    """Let a pass fail, then release the brake as a later commit would."""
    agent = open_agent(db, clock, FAILS)
    agent._compress_context([], "sys")
    assert db.passes("s")[-1].status is PassStatus.FAILED
    db.clear_compression_failure_cooldown("s")
    return agent


def test_the_same_summary_is_not_asked_for_again_before_the_probe(db, clock):
    agent = fail_and_release(db, clock)
    before = db.view("s")
    agent._compress_context([], "sys")
    last = db.passes("s")[-1]
    assert calls(agent) == 1
    assert (last.status, last.failure_class) == (PassStatus.ABORTED, "blocked:failed_rung")
    assert last.detail.startswith("a summary of rows 1-")
    assert db.passes("s")[0].id[:8] in last.detail
    assert db.view("s") == before
    cooldown = db.get_compression_failure_cooldown("s")
    assert cooldown is not None
    assert cooldown["failure_class"] == "summary_auth_failure"
    assert cooldown["remaining_seconds"] == pytest.approx(60)
    clock.advance(61)
    agent._compress_context([], "sys")
    assert db.passes("s")[-1].status is PassStatus.COMMITTED


def test_the_memory_survives_a_restart(db, clock):
    fail_and_release(db, clock).close()
    later = open_agent(db, clock)
    later._compress_context([], "sys")
    assert calls(later) == 0
    assert db.passes("s")[-1].failure_class == "blocked:failed_rung"


def test_new_rows_in_the_range_are_a_reason_to_try_again(db, clock):
    agent = fail_and_release(db, clock)
    db.append("s", small_talk(8, tokens=150, topic="more"))
    agent._compress_context([], "sys")
    assert db.passes("s")[-1].status is PassStatus.COMMITTED


def test_another_model_is_a_reason_to_try_again(db, clock):
    fail_and_release(db, clock)
    other = open_agent(db, clock, model="another")
    other._compress_context([], "sys")
    assert db.passes("s")[-1].status is PassStatus.COMMITTED


def test_a_person_may_always_try_again(db, clock):
    agent = fail_and_release(db, clock)
    assert agent.compress().status is PassStatus.COMMITTED


def test_when_the_request_does_not_fit_the_digest_stands_in_without_a_call(db, clock):
    db.append("s", small_talk(20, tokens=150, topic="more"))
    agent = open_agent(db, clock, FAILS)
    agent._compress_context([], "sys")
    made = db.passes("s")[-1]
    assert (made.kind, made.failure_class) == (PassKind.MECHANICAL, "summary_auth_failure")
    db.undo_pass("s")
    agent._compress_context([], "sys")
    again = db.passes("s")[-1]
    assert (again.status, again.kind, again.failure_class, again.strategy) == (
        PassStatus.COMMITTED,
        PassKind.MECHANICAL,
        "blocked:failed_rung",
        "mechanical",
    )
    assert calls(agent) == 1


def rung(number: int, **fields: Any) -> FailedRung:
    return FailedRung(1, number, number, "m", "r", **fields)


def failed(at: float, number: int) -> Outcome:
    return Outcome(Ending.FAILED, at, "auth", rung=rung(number, pass_id=f"p{number}"))


def test_only_the_newest_failures_are_remembered_and_read_back_equal():
    health = Health()
    for number in range(MOST_FAILED_RUNGS + 4):
        health, guards = next_health(health, failed(100.0, number))
    assert guards.health is not None
    assert Health.from_dict(guards.health) == health
    numbers = [each.last_seq for each in health.failed_rungs]
    assert numbers == list(range(4, MOST_FAILED_RUNGS + 4))
    wanted = rung(MOST_FAILED_RUNGS + 3)
    assert health.failed_before(wanted, 159.0) is health.failed_rungs[-1]
    assert health.failed_before(wanted, 160.0) is None
    assert health.failed_before(rung(1), 159.0) is None


def test_a_failure_that_comes_again_is_remembered_once_and_lapsed_ones_leave():
    health, _guards = next_health(Health(), failed(100.0, 1))
    health, _guards = next_health(health, failed(120.0, 2))
    health, _guards = next_health(health, failed(165.0, 2))
    assert health.failed_rungs == (
        rung(2, pass_id="p2", failure_class="summary_auth_failure", until=225.0),
    )
