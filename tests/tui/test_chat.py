"""The worker behind both screens: order, failures, and what closing leaves behind."""

from __future__ import annotations

import threading
from collections.abc import Sequence

import pytest

from agent.base.errors import UnknownSession, UsageError
from agent.base.events import Event
from agent.base.settings import Settings
from agent.testing.scripted import Scripted, ScriptedProvider
from agent.tui.chat import Chat, Screen
from agent.tui.failures import Failure
from agent.tui.render import Line
from hermes_state import SessionDB
from run_agent import AIAgent, TurnResult
from tests.tui.conftest import OpenScripted


class Ear:
    """A screen that only remembers."""

    width = 0
    confirm = None

    def __init__(self) -> None:
        self.said: list[str] = []
        self.rest = threading.Semaphore(0)

    def show(self, lines: Sequence[Line]) -> None:
        self.said += [line.text for line in lines]

    def event(self, event: Event) -> None:
        self.said.append(event.type)

    def ended(self, result: TurnResult) -> None:
        self.said.append(f"ended: {result.final_text}")

    def failed(self, failure: Failure) -> None:
        self.said.append(f"failed {failure.exit_code}: {failure.text}")

    def settled(self) -> None:
        self.rest.release()

    def ask(self, question: str) -> str | None:
        return None


def opener(provider: ScriptedProvider, store: SessionDB) -> OpenScripted:
    return OpenScripted(provider, Settings(), store)


def test_jobs_run_in_order_and_a_failure_does_not_end_the_worker(store: SessionDB) -> None:
    ear = Ear()
    chat = Chat(opener(ScriptedProvider(), store), ear, store)

    def wrong() -> None:
        raise UsageError("not like this")

    for job in (lambda: ear.said.append("first"), wrong, lambda: ear.said.append("third")):
        chat.start(job)
    for _ in range(3):
        assert ear.rest.acquire(timeout=10)
    chat.close()
    chat.close()
    assert ear.said == ["first", "failed 2: not like this", "third"]
    assert (chat.busy, chat.jobs_started) == (False, 3)


def test_closing_stops_the_turn_and_keeps_the_messages_that_wait(store: SessionDB) -> None:
    ear = Ear()
    provider = ScriptedProvider([Scripted("never", hold=threading.Event())], then="not asked")
    chat = Chat(opener(provider, store), ear, store)
    chat.switch(None)
    session_id = chat.agent.session_id
    chat.say("one")
    provider.wait_for_requests(1)
    chat.say("two")
    chat.close()
    rows = store.history(session_id)
    assert [row.message["content"] for row in rows] == ["one", "two"]
    assert len(provider.requests) == 1


def test_a_message_is_shown_before_anything_of_its_answer(store: SessionDB) -> None:
    ear = Ear()
    chat = Chat(opener(ScriptedProvider(), store), ear, store)
    chat.switch(None)
    provider = chat.agent.provider
    assert isinstance(provider, ScriptedProvider)

    def shown() -> None:
        stored = store.history(chat.agent.session_id)
        ear.said.append(f"{len(stored)} stored, {len(provider.requests)} asked, {chat.busy}")

    chat.say("one", shown)
    assert ear.rest.acquire(timeout=10)
    chat.close()
    assert ear.said[0] == "1 stored, 0 asked, False"
    assert ear.said[-1] == "ended: ok"


def test_a_session_that_cannot_be_opened_leaves_the_one_before(store: SessionDB) -> None:
    good = opener(ScriptedProvider(), store)

    def open_agent(session_id: str | None, screen: Screen) -> AIAgent:
        if session_id == "gone":
            raise UnknownSession("no session 'gone'")
        return good(session_id, screen)

    chat = Chat(open_agent, Ear(), store)
    with pytest.raises(UsageError, match="no session is open"):
        chat.interrupt()
    chat.switch(None)
    before = chat.agent
    with pytest.raises(UnknownSession):
        chat.switch("gone")
    assert chat.agent is before
    chat.close()
