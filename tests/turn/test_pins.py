"""Pins on the wire and in the agent."""

from __future__ import annotations

from typing import Any

import pytest

from agent.base.errors import UsageError
from agent.base.events import Event, Notice
from agent.base.messages import text_of
from agent.base.settings import ContextSettings, Settings
from agent.testing.builders import assistant, user
from agent.testing.scripted import ScriptedProvider
from hermes_state import SessionDB
from run_agent import AIAgent


def make_agent(store: SessionDB, events: list[Event] | None = None, **options: Any) -> AIAgent:
    provider = ScriptedProvider(then="Understood.", window_tokens=8_192)
    return AIAgent(
        session_db=store,
        session_id="s",
        provider=provider,
        skip_memory=True,
        skip_context_files=True,
        on_event=(events if events is not None else []).append,
        **options,
    )


def sent(agent: AIAgent) -> list[str]:
    provider = agent.provider
    assert isinstance(provider, ScriptedProvider)
    return [text_of(message.get("content")) for message in provider.requests[-1].messages[1:]]


def test_a_pin_set_by_hand_opens_the_request_until_it_is_taken_off(store: SessionDB) -> None:
    agent = make_agent(store)
    pin = agent.pin("Answer in metric units.")
    agent.chat("How tall is it?")
    assert sent(agent)[0].startswith("Standing instructions of the user")
    assert "- Answer in metric units. (by hand)\n\nHow tall is it?" in sent(agent)[0]
    assert agent.pins() == [pin]
    assert agent.unpin(pin.id) == pin
    agent.chat("And how wide?")
    assert sent(agent)[0] == "How tall is it?"


def test_before_a_pass_a_recognised_pin_adds_nothing_to_the_request(store: SessionDB) -> None:
    agent = make_agent(store)
    agent.chat("Never push to main.")
    agent.chat("What now?")
    assert sent(agent) == ["Never push to main.", "Understood.", "What now?"]
    assert [(pin.text, pin.source_seq) for pin in agent.pins()] == [("Never push to main.", 1)]


def test_pins_can_be_switched_off(store: SessionDB) -> None:
    agent = make_agent(store, settings=Settings(context=ContextSettings(pins=False)))
    agent.pin("Answer in metric units.")
    agent.chat("How tall is it?")
    assert sent(agent) == ["How tall is it?"]


def test_recognised_pins_past_the_budget_are_told_once(store: SessionDB) -> None:
    events: list[Event] = []
    agent = make_agent(store, events)
    agent.chat("Hello.")
    for number in range(40):
        rule = f"Never touch module number {number} of the old warehouse system without asking me."
        store.append("s", [user(rule), assistant("Understood.")])
    agent.chat("What now?")
    agent.chat("And now?")
    agent.chat("And after that?")
    told = [event.text for event in events if isinstance(event, Notice) and "pin" in event.text]
    assert len(told) == 1
    assert "do not fit into the pin budget" in told[0]


@pytest.mark.parametrize("text", ["Use ghp_" + "a1B2" * 9, " "])
def test_what_cannot_be_a_pin_is_refused(store: SessionDB, text: str) -> None:
    agent = make_agent(store)
    with pytest.raises(UsageError):
        agent.pin(text)
    assert agent.pins() == []
