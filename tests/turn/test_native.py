"""Compaction by the provider: one more kind of pass, behind which our own engine stays armed."""

from __future__ import annotations

import io
from collections.abc import Iterator

import pytest

from agent.base.errors import UndoRefused
from agent.base.events import CompactionFinished, Event
from agent.base.messages import Message
from agent.sessions.records import NativePass, PassKind, PassRecord
from agent.testing.builders import call
from agent.testing.stub_reply import RecordedRequest, Reply
from agent.testing.stub_server import StubModelServer
from agent.testing.summaries import GOOD_SUMMARY
from hermes_state import SessionDB
from run_agent import AIAgent
from tests.providers.wires import text_in
from tests.turn.native_bench import Open, native_agents

LONG = "words that fill the window " * 120


@pytest.fixture
def open_agent(stub: StubModelServer, store: SessionDB) -> Iterator[Open]:
    """A function that opens an agent on session `s`; all are closed after the test."""
    stub.script(lambda r: Reply(text=GOOD_SUMMARY if b"<material>" in r.raw else "so"))
    with native_agents(stub, store, "responses") as start:
        yield start


def kinds(request: RecordedRequest) -> list[str]:
    """Return the items of a request, each by its role or type."""
    assert request.refusal == ""
    return [item.get("role") or item["type"] for item in request.body["input"]]


def natives(store: SessionDB) -> list[PassRecord]:
    ledger = store.passes("s")
    return [record for record in ledger if record.kind is PassKind.PROVIDER_NATIVE]


def talk_until_compacted(agent: AIAgent, store: SessionDB) -> PassRecord:
    """Send messages until the provider has compacted; return the pass."""
    for number in range(8):
        agent.chat(f"{number}: {LONG}")
        if natives(store):
            return natives(store)[0]
    raise AssertionError("the provider never compacted")


def test_it_is_asked_for_only_when_it_is_switched_on(
    open_agent: Open, stub: StubModelServer
) -> None:
    open_agent(native=False).chat("hi")
    open_agent(threshold=0, session_id="t").chat("hi")
    off, on = stub.requests
    assert "context_management" not in off.body
    [asked] = on.body["context_management"]
    assert asked["type"] == "compaction"
    assert 1_000 < asked["compact_threshold"] < 0.75 * 16_384


def test_a_request_begins_with_the_item_and_the_ledger_tells_of_it(
    open_agent: Open, stub: StubModelServer, store: SessionDB
) -> None:
    events: list[Event] = []
    agent = open_agent(on_event=events.append)
    record = talk_until_compacted(agent, store)
    rows = len(store.view("s").messages)
    assert (record.status, record.trigger, record.route) == (
        "committed",
        "provider",
        agent.provider.route,
    )
    assert record.tokens_before is not None
    assert record.tokens_after is not None
    assert record.tokens_after < record.tokens_before
    [told] = [event for event in events if isinstance(event, CompactionFinished)]
    assert (told.pass_id, told.tokens_after) == (record.id, record.tokens_after)
    turn = agent.run_conversation("and now?")
    assert kinds(stub.requests[-1]) == ["user", "compaction", "assistant", "user"]
    assert turn.passes == []
    assert len(store.view("s").messages) == rows + 2
    assert agent.recall(rows="1")[0]["content"].startswith("0: words")
    assert agent.context().total < record.tokens_before
    assert store.session("s").pass_count == 1
    assert store.check().problems == []


def test_it_lasts_over_a_restart_and_in_a_fork_and_can_be_exported(
    open_agent: Open, stub: StubModelServer, store: SessionDB
) -> None:
    agent = open_agent()
    talk_until_compacted(agent, store)
    agent.close()
    agent = open_agent()
    agent.chat("after a restart")
    assert kinds(stub.requests[-1])[1] == "compaction"
    agent.branch()
    agent.chat("in a fork")
    assert kinds(stub.requests[-1])[1] == "compaction"
    agent.undo_compaction()
    agent.chat("and undone there")
    assert "compaction" not in kinds(stub.requests[-1])
    out = io.BytesIO()
    store.export_session("s", out)
    out.seek(0)
    copied = store.import_session(out)
    other = open_agent(session_id=copied.session.id)
    other.chat("in a copy")
    assert kinds(stub.requests[-1])[-1] == "user"
    assert store.check().problems == []


def test_the_request_in_progress_stays_word_for_word(
    open_agent: Open, stub: StubModelServer, store: SessionDB
) -> None:
    agent = open_agent(threshold=1_000)
    agent.pin("Answer in Latin.")
    work = call("todo", {"items": []}, call_id="c1")
    stub.script([Reply(text=None, tool_calls=[work]), Reply(text="done")])
    agent.chat(f"begin: {LONG}")
    first, second = stub.requests
    assert kinds(second) == ["user", "compaction", "function_call", "function_call_output"]
    assert f"begin: {LONG}".strip() in str(second.body["input"][0]["content"])
    assert "Answer in Latin." in str(second.body["input"][0]["content"])
    assert kinds(first) == ["user"]


def test_an_undo_brings_all_rows_back(
    open_agent: Open, stub: StubModelServer, store: SessionDB
) -> None:
    agent = open_agent()
    record = talk_until_compacted(agent, store)
    sent = len(store.view("s").messages)
    agent.undo_compaction()
    assert store.pass_record(record.id).status == "undone"
    stub.script([])
    agent.chat("again")
    assert kinds(stub.requests[-1])[:sent].count("user") == sent // 2
    with pytest.raises(UndoRefused, match="was undone already"):
        agent.undo_compaction(record.id)
    assert store.check().problems == []


def test_a_change_of_the_view_ends_it_and_says_so(
    open_agent: Open, stub: StubModelServer, store: SessionDB
) -> None:
    agent = open_agent()
    record = talk_until_compacted(agent, store)
    agent.undo_turn()
    with pytest.raises(UndoRefused, match="was the provider's own and ended"):
        agent.undo_compaction(record.id)
    with pytest.raises(UndoRefused, match="has no compaction in force"):
        agent.undo_compaction()
    agent.chat("short")
    assert "compaction" not in kinds(stub.requests[-1])


def test_another_model_gets_all_rows(
    open_agent: Open, stub: StubModelServer, store: SessionDB
) -> None:
    agent = open_agent()
    talk_until_compacted(agent, store)
    rows = len(store.view("s").messages)
    agent.switch_model("another")
    stub.script([], model="another")
    agent.chat("short")
    [request] = stub.requests_for("another")
    assert [kind for kind in kinds(request) if kind != "compaction"] == ["user", "assistant"] * (
        rows // 2
    ) + ["user"]


@pytest.mark.parametrize("mode", ["chat_completions", "anthropic_messages"])
def test_the_same_model_by_another_wire_gets_all_rows(
    mode: str, open_agent: Open, stub: StubModelServer, store: SessionDB
) -> None:
    agent = open_agent()
    talk_until_compacted(agent, store)
    agent.close()
    rows = [row["content"] for row in store.view("s").messages]
    open_agent(api_mode=mode).chat("short")
    request = stub.requests[-1]
    said = [m for m in request.body["messages"] if m["role"] != "system"]
    assert [text_in(message["content"]) for message in said] == [*rows, "short"]
    assert (request.refusal, b"compaction" in request.raw.partition(b'"tools"')[0]) == ("", False)


def test_our_own_engine_is_armed_behind_it(
    open_agent: Open, stub: StubModelServer, store: SessionDB
) -> None:
    def refuse(request: RecordedRequest) -> Reply:
        if "context_management" in request.body:
            return Reply(status=400, error="Unknown parameter: 'context_management'.")
        return Reply(text=GOOD_SUMMARY if b"<material>" in request.raw else "so")

    stub.script(refuse)
    agent = open_agent()
    for number in range(16):
        agent.chat(f"{number}: {LONG}")
    assert natives(store) == []
    assert [record.status for record in store.passes("s")][:1] == ["committed"]
    assert sum("context_management" in request.body for request in stub.requests) == 1


def test_an_answer_whose_view_has_changed_meanwhile_brings_no_pass(store: SessionDB) -> None:
    store.create_session("s", "test")
    message: Message = {"role": "assistant", "content": "a", "_reasoning": "{}", "_generation": 3}
    late = NativePass(3, 10, 5, 2, 1, "m", "m at x")
    [row] = store.append("s", [message], late)
    assert (row["_generation"], "_brought" in row, store.passes("s")) == (3, False, [])
    [row] = store.append("s", [message], NativePass(0, 10, 5, 2, 1, "m", "m at x"))
    [record] = store.passes("s")
    assert (row["_generation"], row["_brought"]) == (1, record.id)
    assert store.head("s").generation == record.generation == 1
    assert record.receipt == {"brought_by": 2}
