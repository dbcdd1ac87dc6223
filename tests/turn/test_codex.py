"""A conversation on the Codex app-server: ours only grows, its compactions are recorded."""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from agent.base.errors import UndoRefused
from agent.base.events import Event, TextDelta
from agent.base.settings import CompressionSettings, ModelSettings, Settings
from agent.compaction_events import Payload
from agent.pass_events import PassContext, payload_of_pass
from agent.providers.handover import CLOSING, MEANWHILE, OPENING
from agent.sessions.records import PassKind, PassRecord
from agent.testing.stub_server import StubModelServer
from hermes_state import SessionDB
from run_agent import AIAgent

Open = Callable[..., AIAgent]
LONG = "words that fill the window " * 300


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The stand-in's folder."""
    path = tmp_path / "codex"
    path.mkdir()
    return path


@pytest.fixture
def open_agent(folder: Path, store: SessionDB) -> Iterator[Open]:
    """A function that opens an agent on session `s`; all are closed after the test."""
    command = shlex.join([sys.executable, "-m", "agent.testing.codex_app_server", str(folder)])
    model = ModelSettings(api_mode="codex_app_server", command=command, context_length=8_192)
    opened: list[AIAgent] = []

    def start(*, auto: str = "native", **given: Any) -> AIAgent:
        compression = CompressionSettings(codex_app_server_auto=auto)
        settings = Settings(model=model, compression=compression)
        keywords = {"settings": settings, "session_db": store, "session_id": "s", **given}
        opened.append(AIAgent(**keywords))
        return opened[-1]

    yield start
    for agent in opened:
        agent.close()


def inputs(folder: Path) -> list[str]:
    """Return what each turn of the app-server was given."""
    lines = map(json.loads, (folder / "received.jsonl").read_text().splitlines())
    turns = [line["params"] for line in lines if line.get("method") == "turn/start"]
    return ["\n".join(each.get("text", "") for each in turn["input"]) for turn in turns]


def natives(store: SessionDB) -> list[PassRecord]:
    return [each for each in store.passes("s") if each.kind is PassKind.PROVIDER_NATIVE]


def mark(record: PassRecord) -> Payload:
    return payload_of_pass(record, PassContext())


def test_our_transcript_is_never_rewritten_however_long_it_gets(
    open_agent: Open, folder: Path, store: SessionDB
) -> None:
    agent = open_agent()
    for number in range(6):
        agent.chat(f"{number}: {LONG}")
    assert store.passes("s") == []
    assert store.head("s").generation == 0
    assert [len(text) for text in inputs(folder)] == [len(f"0: {LONG}")] * 6
    agent.close()
    open_agent().chat("after a restart")
    assert inputs(folder)[-1] == "after a restart"


def test_a_conversation_moves_there_and_back(
    open_agent: Open, folder: Path, stub: StubModelServer, store: SessionDB
) -> None:
    before = AIAgent(base_url=stub.base_url, model="m", session_db=store, session_id="s")
    before.chat("the door is green")
    before.close()
    agent = open_agent()
    agent.chat("what is green?")
    agent.chat("sure?")
    first, second = inputs(folder)
    assert first.startswith(OPENING)
    assert "the door is green" in first
    assert second == "sure?"
    agent.close()
    after = AIAgent(base_url=stub.base_url, model="m", session_db=store, session_id="s")
    after.chat("and here?")
    after.close()
    answered = [request for request in stub.requests if request.method == "POST"]
    assert [request.refusal for request in answered] == ["", ""]
    assert len(answered[-1].messages) == 8
    open_agent().chat("there again")
    told = [MEANWHILE, "user: and here?", "assistant: ok", CLOSING]
    assert inputs(folder)[-1] == "\n\n".join(told) + "\nthere again"


def test_its_own_compaction_is_a_pass_and_the_thread_goes_on(
    open_agent: Open, folder: Path, store: SessionDB
) -> None:
    (folder / "script.json").write_text(json.dumps([{}, {"text": "a", "compact": True}]))
    agent = open_agent()
    agent.chat("one")
    turn = agent.run_conversation("two")
    [record] = natives(store)
    assert turn.passes == [record.id]
    payload = mark(record)
    assert (payload["kind"], payload["scope"], payload["trigger"], payload["official"]) == (
        "provider_native",
        "provider",
        "provider",
        False,
    )
    agent.chat("three")
    assert inputs(folder) == ["one", "two", "three"]
    assert store.check().problems == []


def test_a_person_can_ask_for_it_and_undo_it(
    open_agent: Open, folder: Path, store: SessionDB
) -> None:
    agent = open_agent()
    nothing = agent.compress()
    assert (nothing.status, nothing.failure_class) == ("skipped", "codex_no_thread")
    agent.chat("one")
    record = agent.compress()
    assert (record.status, record.kind, record.trigger) == (
        "committed",
        PassKind.PROVIDER_NATIVE,
        "manual",
    )
    payload = mark(record)
    assert (payload["kind"], payload["trigger"], payload["official"]) == (
        "provider_native",
        "manual",
        True,
    )
    agent.chat("two")
    assert inputs(folder) == ["one", "two"]
    agent.undo_compaction(record.id)
    agent.chat("three")
    assert inputs(folder)[-1].startswith(OPENING)
    with pytest.raises(UndoRefused):
        agent.undo_compaction(record.id)
    assert store.check().problems == []


@pytest.mark.parametrize("auto", ["native", "off"])
def test_what_it_does_by_itself_is_a_setting(open_agent: Open, folder: Path, auto: str) -> None:
    agent = open_agent(auto=auto)
    agent.chat("one")
    lines = map(json.loads, (folder / "received.jsonl").read_text().splitlines())
    [begun] = [line["params"] for line in lines if line.get("method") == "thread/start"]
    assert ("config" in begun) is (auto == "off")
    _messages, _prompt = agent._compress_context([], "")
    assert agent.store.passes("s")[-1].failure_class == f"codex_auto_{auto}"


def test_approvals_are_asked_of_the_agents_own_person(open_agent: Open, folder: Path) -> None:
    steps = [{"text": "it was", "approve": "rm"}] * 3
    (folder / "script.json").write_text(json.dumps(steps))
    asked: list[str] = []

    def confirm(_call_id: str, why: str) -> bool:
        asked.append(why)
        return True

    assert open_agent(confirm=confirm).chat("do it") == "it was (accept)"
    assert asked == ["codex wants to run 'rm' (risky)"]
    assert open_agent().chat("do it") == "it was (decline)"
    agent = open_agent()
    agent.settings = replace(agent.settings, tools=replace(agent.settings.tools, approval="off"))
    assert agent.chat("do it") == "it was (accept)"


def test_a_turn_that_was_stopped_is_not_told_again(open_agent: Open, folder: Path) -> None:
    (folder / "script.json").write_text(json.dumps([{}, {"text": "half", "hang": True}]))
    heard: list[str] = []

    def stop(event: Event) -> None:
        heard.append(event.text if isinstance(event, TextDelta) else "")
        if heard[-1] == "half":
            agent.interrupt()

    agent = open_agent(on_event=stop)
    agent.chat("one")
    assert agent.run_conversation("two").stop_reason == "interrupted"
    agent.chat("three")
    assert inputs(folder) == ["one", "two", "three"]


def test_pins_stand_before_each_request(open_agent: Open, folder: Path) -> None:
    agent = open_agent()
    agent.chat("one")
    agent.pin("Answer in Latin.")
    agent.chat("two")
    agent.chat("three")
    first, second, third = inputs(folder)
    assert "Latin" not in first
    for text, request in ((second, "two"), (third, "three")):
        assert "Answer in Latin." in text
        assert text.endswith(f"\n\n{request}")
