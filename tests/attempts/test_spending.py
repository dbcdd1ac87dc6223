"""The spend limit of a conversation: what counts, what it stops, and what still runs."""

from __future__ import annotations

from typing import Any

import pytest

from agent.base.events import Notice
from agent.base.settings import CompressionSettings, Settings
from agent.sessions.records import PassKind, PassStatus
from agent.testing.clock import FakeClock
from agent.testing.scripted import Scripted, ScriptedProvider
from agent.testing.summaries import GOOD_SUMMARY
from hermes_state import SessionDB
from run_agent import AIAgent
from tests.field_reports.harness import small_talk

WINDOW = 8_000
PRICES = (1_000.0, 1_000.0)


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def db(tmp_path, clock):
    store = SessionDB(db_path=tmp_path / "spend.db", clock=clock)
    yield store
    store.close()


def open_agent(db: SessionDB, clock: FakeClock, limit: float, **options: Any) -> AIAgent:
    provider = ScriptedProvider(
        then=Scripted(text=GOOD_SUMMARY), window_tokens=WINDOW, prices=PRICES
    )
    settings = Settings(
        compression=CompressionSettings(spend_limit_per_hour=limit, background=False)
    )
    return AIAgent(
        session_db=db,
        session_id="s",
        settings=settings,
        provider=provider,
        clock=clock,
        skip_memory=True,
        builtin_tools=False,
        skip_context_files=True,
        **options,
    )


def summaries(agent: AIAgent) -> int:
    provider = agent.provider
    assert isinstance(provider, ScriptedProvider)
    return sum(request.messages[0]["role"] != "system" for request in provider.requests)


def test_a_conversation_that_reached_its_limit_waits_and_says_so_once(db, clock):
    events: list[Any] = []
    agent = open_agent(db, clock, 0.5, on_event=events.append)
    db.create_session("s", "test")
    db.append("s", small_talk(20, tokens=150))
    paid = agent.compress()
    assert paid.status is PassStatus.COMMITTED
    assert paid.cost is not None
    assert paid.cost > 0.5
    db.append("s", small_talk(12, tokens=150, topic="more"))
    for _ in range(3):
        assert agent.compress().failure_class == "blocked:spend_limit"
    agent._compress_context([], "sys")
    agent.chat("go on")
    assert summaries(agent) == 1
    [row] = [row for row in db.passes("s") if row.status is PassStatus.BLOCKED]
    assert (row.failure_class, row.count) == ("blocked:spend_limit", 5)
    said = [e.text for e in events if isinstance(e, Notice) and "spend_limit" in e.text]
    assert len(said) == 1
    assert "$0.5 or more in the last hour (compression.spend_limit_per_hour)" in said[0]
    assert row.detail == said[0]


def test_the_limit_looks_back_one_hour_also_after_a_restart(db, clock):
    agent = open_agent(db, clock, 0.5)
    db.create_session("s", "test")
    db.append("s", small_talk(20, tokens=150))
    agent.compress()
    agent.close()
    db.append("s", small_talk(12, tokens=150, topic="more"))
    clock.advance(3_599)
    later = open_agent(db, clock, 0.5)
    assert later.compress().failure_class == "blocked:spend_limit"
    clock.advance(2)
    assert later.compress().status is PassStatus.COMMITTED


def test_over_the_limit_a_request_that_does_not_fit_is_digested_without_a_model(db, clock):
    agent = open_agent(db, clock, 0.5)
    db.create_session("s", "test")
    db.append("s", small_talk(20, tokens=150))
    agent.compress()
    db.append("s", small_talk(30, tokens=150, topic="more"))
    assert agent.chat("go on") == GOOD_SUMMARY
    last = db.passes("s")[-1]
    assert (last.status, last.kind, last.failure_class) == (
        PassStatus.COMMITTED,
        PassKind.MECHANICAL,
        "blocked:spend_limit",
    )
    assert summaries(agent) == 1


def test_a_prepared_pass_counts_when_it_was_paid_and_is_committed_over_the_limit(db, clock):
    agent = open_agent(db, clock, 0.5)
    db.create_session("s", "test")
    db.append("s", small_talk(20, tokens=150))
    preview = agent.compress(preview=True)
    assert preview.status is PassStatus.PREPARED
    assert preview.cost == pytest.approx(db.spent_since("s", clock.now() - 1))
    assert agent.commit_prepared().status is PassStatus.COMMITTED
    assert db.spent_since("s", clock.now() - 1) == pytest.approx(preview.cost)
    assert db.spent_since("s", clock.now() + 1) == 0.0


def test_a_prepared_pass_that_is_dropped_stays_paid(db, clock):
    agent = open_agent(db, clock, 0.5)
    db.create_session("s", "test")
    db.append("s", small_talk(20, tokens=150))
    preview = agent.compress(preview=True)
    db.rewind("s", 30)
    assert db.pass_record(preview.id).status is PassStatus.SUPERSEDED
    assert db.spent_since("s", clock.now() - 1) == pytest.approx(preview.cost)


def test_without_a_limit_nothing_is_stopped(db, clock):
    agent = open_agent(db, clock, 0.0)
    db.create_session("s", "test")
    for topic in ("one", "two", "three"):
        db.append("s", small_talk(20, tokens=150, topic=topic))
        assert agent.compress().status is PassStatus.COMMITTED
