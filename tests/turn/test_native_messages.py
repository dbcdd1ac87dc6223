"""Compaction by the service on the Anthropic wire: a pass like that of any provider, and what a
request must still say is said behind it, since the service reads nothing before it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from agent.base.errors import RequestRefused
from agent.sessions.records import PassKind, PassRecord
from agent.testing.builders import call
from agent.testing.stub_reply import RecordedRequest, Reply
from agent.testing.stub_server import StubModelServer
from agent.testing.summaries import GOOD_SUMMARY
from hermes_state import SessionDB
from run_agent import AIAgent
from tests.turn.native_bench import Open, native_agents

LONG = "words that fill the window " * 120


def answer(request: RecordedRequest) -> Reply:
    return Reply(text=GOOD_SUMMARY if b"<material>" in request.raw else "so")


@pytest.fixture
def open_agent(stub: StubModelServer, store: SessionDB) -> Iterator[Open]:
    """A function that opens an agent on session `s`; all are closed after the test."""
    stub.script(answer)
    with native_agents(stub, store, "anthropic_messages") as start:
        yield start


def kinds(request: RecordedRequest) -> list[list[str]]:
    """Return the types of the blocks of each message."""
    assert request.refusal == ""
    return [[block["type"] for block in message["content"]] for message in request.messages]


def natives(store: SessionDB) -> list[PassRecord]:
    ledger = store.passes("s")
    return [record for record in ledger if record.kind is PassKind.PROVIDER_NATIVE]


def talk_until_compacted(agent: AIAgent, store: SessionDB) -> PassRecord:
    """Send messages until the service has compacted; return the pass."""
    for number in range(8):
        agent.chat(f"{number}: {LONG}")
        if natives(store):
            return natives(store)[0]
    raise AssertionError("the service never compacted")


def test_it_is_asked_for_only_when_it_is_switched_on(
    open_agent: Open, stub: StubModelServer
) -> None:
    open_agent(native=False).chat("hi")
    open_agent(session_id="t").chat("hi")
    off, on = stub.requests
    assert "context_management" not in off.body
    assert "anthropic-beta" not in off.headers
    trigger = {"type": "input_tokens", "value": 4_500}
    edit = {"type": "compact_20260112", "trigger": trigger}
    assert on.body["context_management"] == {"edits": [edit]}
    assert on.headers["anthropic-beta"] == "compact-2026-01-12"


def test_a_request_begins_with_the_block_and_the_ledger_tells_of_it(
    open_agent: Open, stub: StubModelServer, store: SessionDB
) -> None:
    agent = open_agent()
    record = talk_until_compacted(agent, store)
    assert (record.status, record.trigger) == ("committed", "provider")
    rows = len(store.view("s").messages)
    agent.chat("and now?")
    assert kinds(stub.requests[-1]) == [["text"], ["compaction", "text"], ["text"]]
    assert [block["text"] for block in stub.requests[-1].messages[-1]["content"]] == ["and now?"]
    assert len(store.view("s").messages) == rows + 2
    assert store.check().problems == []


def test_the_request_in_progress_and_pins_are_said_behind_it(
    open_agent: Open, stub: StubModelServer
) -> None:
    agent = open_agent(threshold=1_000)
    agent.pin("Answer in Latin.")
    work = call("todo", {"items": []}, call_id="toolu_1")
    stub.script([Reply(text=None, tool_calls=[work]), Reply(text="done")])
    agent.chat(f"begin: {LONG}")
    second = stub.requests[-1]
    assert kinds(second) == [["text"], ["compaction", "tool_use"], ["tool_result", "text"]]
    said = second.messages[-1]["content"][1]["text"]
    assert "Answer in Latin." in said
    assert f"begin: {LONG}".strip() in said


def test_an_undo_brings_all_rows_back(
    open_agent: Open, stub: StubModelServer, store: SessionDB
) -> None:
    agent = open_agent()
    record = talk_until_compacted(agent, store)
    sent = len(store.view("s").messages)
    agent.undo_compaction()
    assert store.pass_record(record.id).status == "undone"
    agent.chat("again")
    assert len(kinds(stub.requests[-1])) == sent + 1
    assert ["compaction", "text"] not in kinds(stub.requests[-1])


def test_switched_off_again_all_rows_are_sent_without_the_block(
    open_agent: Open, stub: StubModelServer, store: SessionDB
) -> None:
    agent = open_agent()
    talk_until_compacted(agent, store)
    sent = len(store.view("s").messages)
    agent.close()
    open_agent(native=False).chat("plainly")
    assert kinds(stub.requests[-1]) == [["text"]] * (sent + 1)


def test_a_block_that_is_refused_is_told_and_never_left_out(
    open_agent: Open, stub: StubModelServer, store: SessionDB
) -> None:
    agent = open_agent()
    talk_until_compacted(agent, store)
    sent = len(stub.requests)
    stub.script([], then=Reply(status=400, error="compaction_signature_invalid"))
    with pytest.raises(RequestRefused, match="compaction_signature_invalid"):
        agent.chat("and now?")
    assert len(stub.requests) == sent + 1
    stub.script(answer)
    agent.undo_compaction()
    assert agent.chat("and now?") == "so"


@pytest.mark.parametrize("said", ["context_management: Extra inputs", "anthropic-beta: unknown"])
def test_our_own_engine_is_armed_behind_it(
    open_agent: Open, stub: StubModelServer, store: SessionDB, said: str
) -> None:
    def refuse(request: RecordedRequest) -> Reply:
        asks = "context_management" in request.body
        return Reply(status=400, error=said) if asks else answer(request)

    stub.script(refuse)
    agent = open_agent()
    for number in range(16):
        agent.chat(f"{number}: {LONG}")
    assert natives(store) == []
    assert store.passes("s")[0].status == "committed"
    assert sum("context_management" in request.body for request in stub.requests) == 1
