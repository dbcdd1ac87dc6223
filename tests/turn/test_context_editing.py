"""Context editing by the service on the Anthropic wire: what it leaves out of its reading is on the
ledger, counts nothing for the window, and changes no row of ours."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from agent.base.settings import CompressionSettings, ModelSettings, Settings
from agent.sessions.records import CONTEXT_EDITING, PassKind, PassRecord
from agent.testing.builders import call
from agent.testing.stub_anthropic_edits import edited
from agent.testing.stub_reply import RecordedRequest, Reply
from agent.testing.stub_server import StubModelServer
from agent.testing.summaries import GOOD_SUMMARY
from agent.tui.changes import changes_lines, undo_lines
from hermes_state import SessionDB
from run_agent import AIAgent

Open = Callable[..., AIAgent]
WINDOW = 16_384
ROUNDS = 6


@pytest.fixture
def open_agent(stub: StubModelServer, store: SessionDB, tmp_path: Path) -> Iterator[Open]:
    """A function that opens an agent on session `s`; all are closed after the test."""
    (tmp_path / "a.txt").write_text("a line of the file that is read\n" * 220)
    opened: list[AIAgent] = []

    def start(*, editing: str = "tools", **given: Any) -> AIAgent:
        keywords = {
            "base_url": stub.base_url,
            "model": "m",
            "api_mode": "anthropic_messages",
            "context_length": WINDOW,
            "session_db": store,
            "session_id": "s",
            "cwd": tmp_path,
            "skip_memory": True,
            "settings": Settings(
                compression=CompressionSettings(
                    anthropic_context_editing=editing, background=False
                ),
            ),
            **given,
        }
        opened.append(AIAgent(**keywords))
        return opened[-1]

    yield start
    for agent in opened:
        agent.close()


def read_rounds(stub: StubModelServer, rounds: int = ROUNDS, refusal: str = "") -> None:
    """Let the model read the file that often in a turn before it answers; edits meet `refusal`."""

    def answer(request: RecordedRequest) -> Reply:
        if refusal and "context_management" in request.body:
            return Reply(status=400, error=refusal)
        if b"<material>" in request.raw:
            return Reply(text=GOOD_SUMMARY)
        since = 0
        for message in reversed(request.messages):
            since += any(block["type"] == "tool_result" for block in message["content"])
            if any(block["type"] == "text" for block in message["content"]):
                break
        number = len(stub.requests)
        calls = [call("read_file", {"path": "a.txt"}, call_id=f"c{number}")]
        if since < rounds:
            return Reply(text=None, reasoning=f"why {number}", tool_calls=calls)
        return Reply(text="so", reasoning="well")

    stub.script(answer, window_tokens=WINDOW)


def edits(store: SessionDB) -> list[PassRecord]:
    return [record for record in store.passes("s") if record.strategy == CONTEXT_EDITING]


def refusals(stub: StubModelServer) -> list[str]:
    return [request.refusal for request in stub.requests if request.refusal]


def test_it_is_asked_for_only_when_it_is_switched_on(
    open_agent: Open, stub: StubModelServer
) -> None:
    open_agent(editing="off").chat("hi")
    agent = open_agent(session_id="t")
    agent.chat("hi")
    off, on = stub.requests
    assert "context_management" not in off.body
    assert "anthropic-beta" not in off.headers
    begins = int(agent.trigger_tokens * 0.7)
    edit = {
        "type": "clear_tool_uses_20250919",
        "trigger": {"type": "input_tokens", "value": begins},
        "keep": {"type": "tool_uses", "value": 3},
        "clear_at_least": {"type": "input_tokens", "value": begins // 10},
    }
    assert on.body["context_management"] == {"edits": [edit]}
    assert on.headers["anthropic-beta"] == "context-management-2025-06-27"


def test_thinking_is_cleared_only_where_it_is_asked_for(
    open_agent: Open, stub: StubModelServer
) -> None:
    compression = CompressionSettings(anthropic_context_editing="all", codex_responses_native=True)
    thinks = ModelSettings(thinking_tokens=1_024, max_output_tokens=2_048)
    for model in (thinks, ModelSettings()):
        settings = Settings(model=model, compression=compression)
        open_agent(session_id=f"t{model.thinking_tokens}", settings=settings).chat("hi")
    kinds = [
        [edit["type"] for edit in request.body["context_management"]["edits"]]
        for request in stub.requests
    ]
    both = ["clear_tool_uses_20250919", "compact_20260112"]
    assert kinds == [["clear_thinking_20251015", *both], both]
    assert refusals(stub) == []
    betas = "compact-2026-01-12,context-management-2025-06-27"
    assert {request.headers["anthropic-beta"] for request in stub.requests} == {betas}


def test_what_is_left_out_is_a_pass_when_it_grew_and_fills_no_window(
    open_agent: Open, stub: StubModelServer, store: SessionDB
) -> None:
    agent = open_agent()
    read_rounds(stub)
    for number in range(3):
        assert agent.run_conversation(f"read on, {number}").stop_reason == "stop"
    assert refusals(stub) == []
    recorded = edits(store)
    assert [record.id for record in store.passes("s")] == [record.id for record in recorded]
    assert {record.kind for record in recorded} == {PassKind.PROVIDER_NATIVE}
    cleared = [record.receipt["cleared"]["tokens"] for record in recorded]
    steps = [later - earlier for earlier, later in zip(cleared, cleared[1:], strict=False)]
    assert len(recorded) < len(stub.requests)
    assert min(steps) >= agent.trigger_tokens // 10
    last = edited(stub.requests[-1].body)[1][0]
    assert cleared[-1] <= last["cleared_input_tokens"]
    assert (recorded[-1].tokens_after or 0) < (recorded[-1].tokens_before or 0)
    assert agent.context().total < agent.trigger_tokens
    rows = store.view("s").messages
    assert sum("a line of the file" in str(row["content"]) for row in rows) == 3 * ROUNDS
    assert store.check().problems == []


def test_a_restart_goes_on_from_the_same_count(
    open_agent: Open, stub: StubModelServer, store: SessionDB
) -> None:
    agent = open_agent()
    read_rounds(stub)
    agent.chat("read")
    agent.chat("read more")
    told, counted = len(edits(store)), agent.context().total
    assert told
    agent.close()
    again = open_agent()
    assert again.context().total == counted
    read_rounds(stub, rounds=0)
    again.chat("and?")
    assert len(edits(store)) == told
    again.close()
    plain = open_agent(editing="off")
    assert plain.context().total > plain.trigger_tokens
    plain.chat("plainly")
    assert store.passes("s")[-1].kind is not PassKind.PROVIDER_NATIVE
    assert refusals(stub) == []


def test_an_undo_switches_it_off_for_the_conversation_and_says_so(
    open_agent: Open, stub: StubModelServer, store: SessionDB
) -> None:
    agent = open_agent()
    read_rounds(stub)
    agent.chat("read")
    agent.chat("read more")
    record = edits(store)[-1]
    said = [line.text for line in changes_lines(agent.diff(record.id))]
    left = record.receipt["cleared"]
    told = f"read {left['tokens']:,} tokens ({left['tool_uses']} tool results)"
    head = f"pass {record.id[:8]} (provider's own), committed"
    assert said == [f"{head}: no row changed, the provider did not {told}"]
    result = agent.undo_compaction()
    assert undo_lines(result)[0].text == (
        f"undid pass {record.id[:8]}: no row had changed; context editing is off in this "
        "conversation from the next request on"
    )
    read_rounds(stub, rounds=0)
    agent.chat("and?")
    assert "context_management" not in stub.requests[-1].body
    open_agent(session_id="other").chat("hi")
    assert "context_management" in stub.requests[-1].body
    assert store.check().problems == []
    assert refusals(stub) == []


def test_an_older_pass_of_it_can_be_undone_behind_one_of_ours(
    open_agent: Open, stub: StubModelServer, store: SessionDB
) -> None:
    agent = open_agent()
    read_rounds(stub)
    agent.chat("read")
    agent.chat("read more")
    agent.compress()
    first = edits(store)[0]
    agent.undo_compaction(first.id)
    assert store.pass_record(first.id).status == "undone"
    assert store.check().problems == []


@pytest.mark.parametrize("said", ["context_management: Extra inputs", "anthropic-beta: unknown"])
def test_our_own_engine_is_armed_behind_it(
    open_agent: Open, stub: StubModelServer, store: SessionDB, said: str
) -> None:
    agent = open_agent()
    read_rounds(stub, refusal=said)
    for number in range(3):
        assert agent.run_conversation(f"read on, {number}").stop_reason == "stop"
    assert edits(store) == []
    assert store.passes("s")[0].status == "committed"
    assert sum("context_management" in request.body for request in stub.requests) == 1
