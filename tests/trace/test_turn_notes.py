from __future__ import annotations

import logging

import pytest

from agent.agent_runtime_helpers import note_turn_persisted, note_turn_start


class Agent:
    """What the notes are kept on."""

    def __init__(self, session_id: str, *, persist_disabled: bool = False) -> None:
        self.session_id = session_id
        self._persist_disabled = persist_disabled
        self._inflight_turn_id: str | None = None
        self._inflight_turn_started_at: float | None = None
        self._inflight_turn_session_id: str | None = None

    def notes(self) -> tuple[str | None, bool, str | None]:
        started = self._inflight_turn_started_at is not None
        return self._inflight_turn_id, started, self._inflight_turn_session_id


def test_a_turn_remembers_the_session_in_which_it_began() -> None:
    agent = Agent("parent")
    assert note_turn_start(agent, "t1") is None
    agent.session_id = "child"

    assert agent.notes() == ("t1", True, "parent")
    note_turn_persisted(agent)
    assert agent.notes() == (None, False, None)


def test_a_second_turn_in_a_session_is_told_of_the_first(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    first, second = Agent("s1"), Agent("s1")
    note_turn_start(first, "t1")

    assert note_turn_start(second, "t2") == "t1"
    assert caplog.messages == ["turn t2 began in session s1 while t1 runs there"]
    note_turn_persisted(second)
    note_turn_persisted(first)


def test_a_rotation_leaves_no_turn_behind_under_either_id() -> None:
    agent = Agent("parent")
    note_turn_start(agent, "t1")
    agent.session_id = "child"
    note_turn_persisted(agent)

    assert note_turn_start(Agent("parent"), "t2") is None
    assert note_turn_start(Agent("child"), "t3") is None
    for session_id in ("parent", "child"):
        last = Agent(session_id)
        note_turn_start(last, "t4")
        note_turn_persisted(last)


def test_an_agent_that_only_looks_on_takes_no_place_and_frees_none() -> None:
    live, looker = Agent("s1"), Agent("s1", persist_disabled=True)
    note_turn_start(live, "t1")
    assert note_turn_start(looker, "t2") is None
    note_turn_persisted(looker)

    assert note_turn_start(Agent("s1"), "t3") == "t1"
    note_turn_persisted(live)


def test_forgetting_twice_is_forgetting_once() -> None:
    agent = Agent("s1")
    note_turn_start(agent, "t1")
    note_turn_persisted(agent)
    note_turn_persisted(agent)

    assert agent.notes() == (None, False, None)
