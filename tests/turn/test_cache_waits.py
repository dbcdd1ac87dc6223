"""A pass that is due waits while the provider's prompt cache is warm, and the ledger says why."""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from agent.base.events import Event, Notice
from agent.base.settings import CompressionSettings, ModelSettings, Settings
from agent.providers.protocol import TokenUsage
from agent.sessions.records import PassRecord, PassStatus
from agent.testing.clock import FakeClock
from agent.testing.stub_reply import RecordedRequest, Reply
from agent.testing.stub_server import StubModelServer
from agent.testing.summaries import GOOD_SUMMARY
from agent.tui.receipt import pass_lines
from hermes_state import SessionDB
from run_agent import AIAgent

WINDOW = 20_000
MOST_TURNS = 60
Open = Callable[..., AIAgent]


def answers(request: RecordedRequest) -> Reply:
    return Reply(
        text=GOOD_SUMMARY if asks_summary(request) else f"Answer {len(request.messages)}. " * 100
    )


def asks_summary(request: RecordedRequest) -> bool:
    return b"<material>" in request.raw


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def told() -> list[Event]:
    return []


@pytest.fixture
def opened(
    stub: StubModelServer, store: SessionDB, clock: FakeClock, told: list[Event]
) -> Iterator[Open]:
    """A function that opens an agent on a wire; every one is closed after the test."""
    agents: list[AIAgent] = []
    stub.script(answers)

    def open_agent(mode: str, *, background: bool = False) -> AIAgent:
        model = ModelSettings(
            name="m",
            base_url=stub.base_url,
            api_mode=mode,
            context_length=WINDOW,
            prices=(("m", 1.0, 2.0),),
        )
        settings = Settings(model=model, compression=CompressionSettings(background=background))
        options: dict[str, Any] = {"session_db": store, "clock": clock, "on_event": told.append}
        agents.append(AIAgent(settings=settings, skip_context_files=True, **options))
        return agents[-1]

    yield open_agent
    for agent in agents:
        agent.close()


def run_until(agent: AIAgent, is_enough: Callable[[], object]) -> int:
    """Run turns until something has happened and return their number."""
    for number in range(1, MOST_TURNS):
        agent.run_conversation(f"Paragraph {number}: " + "some words of a story. " * 40)
        if is_enough():
            return number
    raise AssertionError(f"nothing happened in {MOST_TURNS} turns")


def committed(agent: AIAgent) -> list[PassRecord]:
    records = agent.store.passes(agent.session_id)
    return [record for record in records if record.status is PassStatus.COMMITTED]


def waits_told(told: list[Event]) -> list[str]:
    return [e.text for e in told if isinstance(e, Notice) and "compaction waits at" in e.text]


def after(agent: AIAgent) -> TokenUsage:
    """Return the usage of the newest answer."""
    return TokenUsage(**agent.store.view(agent.session_id).messages[-1]["_usage"])


def on_ledger(agent: AIAgent) -> tuple[int, int]:
    """Return the predicted and the actual gain of the newest pass, as an export has them."""
    out = io.BytesIO()
    agent.store.export_session(agent.session_id, out)
    lines = [json.loads(line) for line in out.getvalue().splitlines()]
    newest = [line for line in lines if "gain_actual" in line][-1]
    return newest["gain_predicted"], newest["gain_actual"]


def test_a_due_pass_waits_while_the_cache_is_warm_and_never_past_the_safe_part(
    opened: Open, told: list[Event], stub: StubModelServer
) -> None:
    agent = opened("anthropic_messages")
    run_until(agent, lambda: committed(agent))
    trigger, usable = agent.trigger_tokens, WINDOW - agent.reserve_tokens
    [record] = committed(agent)
    gain = record.receipt["gain"]
    assert gain["cache"] == "warm"
    assert 1.05 * trigger < gain["tokens_before"] <= 1.2 * trigger < usable
    assert waits_told(told)[0].startswith("compaction waits at")
    assert gain["actual_tokens"] == gain["tokens_before"] - after(agent).prompt
    assert abs(gain["actual_tokens"] / gain["predicted_tokens"] - 1) < 0.1
    assert gain["predicted_dollars"] == pytest.approx(gain["predicted_tokens"] / 1e6)
    assert gain["actual_dollars"] == pytest.approx(gain["actual_tokens"] / 1e6)
    assert on_ledger(agent) == (gain["predicted_tokens"], gain["actual_tokens"])
    shown = "\n".join(line.text for line in pass_lines(record))
    assert "prompt cache    warm" in shown
    assert f"gain measured   {gain['actual_tokens']:,} tokens a request, $0.0" in shown
    assert [request.refusal for request in stub.requests if request.refusal] == []


def test_a_due_pass_is_done_as_soon_as_the_cache_has_expired(
    opened: Open, told: list[Event], clock: FakeClock
) -> None:
    agent = opened("anthropic_messages")
    run_until(agent, lambda: waits_told(told))
    assert committed(agent) == []
    clock.advance(301)
    run_until(agent, lambda: True)
    [record] = committed(agent)
    assert record.receipt["gain"]["cache"] == "expired"
    assert record.trigger == "turn_start_threshold"


def test_nothing_waits_when_a_person_asks(opened: Open, told: list[Event]) -> None:
    agent = opened("anthropic_messages")
    run_until(agent, lambda: waits_told(told))
    assert agent.compress().status is PassStatus.COMMITTED


def test_a_route_without_a_cache_compacts_at_the_trigger(opened: Open, told: list[Event]) -> None:
    agent = opened("chat_completions")
    run_until(agent, lambda: committed(agent))
    [record] = committed(agent)
    gain = record.receipt["gain"]
    assert (gain["cache"], waits_told(told)) == ("unknown", [])
    assert agent.trigger_tokens <= gain["tokens_before"] < 1.1 * agent.trigger_tokens
    assert gain["actual_tokens"] > 0


def test_a_pass_is_prepared_once_and_late_enough_to_help(
    opened: Open, stub: StubModelServer, store: SessionDB
) -> None:
    agent = opened("anthropic_messages", background=True)
    run_until(agent, lambda: len(committed(agent)) == 2)
    passes = committed(agent)
    assert sum(map(asks_summary, stub.requests)) == 2
    for record in passes:
        assert record.receipt["gain"]["tokens_before"] > agent.trigger_tokens
        left = record.receipt["gain"]["tokens_before"] - record.receipt["gain"]["actual_tokens"]
        assert left < agent.trigger_tokens
    assert store.health(agent.session_id).get("strikes", 0) == 0
    assert [request.refusal for request in stub.requests if request.refusal] == []
