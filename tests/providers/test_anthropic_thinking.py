"""Thinking on the Anthropic wire: sent back whole, as it came, or not at all."""

from __future__ import annotations

from collections.abc import Iterator

import orjson
import pytest

from agent.base.errors import ProviderError
from agent.providers.anthropic import AnthropicMessages
from agent.providers.http_model import HttpModel
from agent.providers.protocol import Limits
from agent.testing.builders import assistant, call, result, user
from agent.testing.stub_anthropic_blocks import hidden, sign
from agent.testing.stub_reply import RecordedRequest, Reply
from agent.testing.stub_server import StubModelServer
from tests.providers.anthropic_calls import Messages, ask, body_of, stored
from tests.providers.conftest import Wire, openings


@pytest.fixture
def wire() -> Iterator[Wire]:
    yield from openings(AnthropicMessages)


def thought(provider: HttpModel, stub: StubModelServer, key: str = "reasoning_content") -> Messages:
    """Return a conversation with an open tool round, begun by an answer that thought."""
    made = call("f", {"a": 1}, call_id="toolu_1")
    stub.script([Reply(text="I look", reasoning="why not", reasoning_key=key, tool_calls=[made])])
    answered = ask(provider, stored(user("go")))
    return stored(user("go"), answered.message, result(made, "found"))


@pytest.mark.parametrize("key", ["reasoning_content", "redacted"])
def test_thinking_goes_back_as_it_came(wire: Wire, stub: StubModelServer, key: str) -> None:
    provider = wire(stub.base_url, thinking_tokens=2_000)
    messages = thought(provider, stub, key)
    ask(provider, messages)
    sent = stub.requests[-1]
    block = {
        "reasoning_content": {
            "type": "thinking",
            "thinking": "why not",
            "signature": sign("why not"),
        },
        "redacted": {"type": "redacted_thinking", "data": hidden("why not")},
    }[key]
    assert sent.messages[1]["content"] == [
        block,
        {"type": "text", "text": "I look"},
        {"type": "tool_use", "id": "toolu_1", "name": "f", "input": {"a": 1}},
    ]
    assert sent.body["thinking"] == {"type": "enabled", "budget_tokens": 2_000}
    assert [request.refusal for request in stub.requests] == ["", ""]


def kinds(request: RecordedRequest) -> list[str]:
    return [block["type"] for block in request.messages[1]["content"]]


def test_thinking_is_dropped_whole_after_a_pass_and_not_asked_for_in_that_round(
    wire: Wire, stub: StubModelServer
) -> None:
    provider = wire(stub.base_url, thinking_tokens=2_000)
    messages = thought(provider, stub)
    ask(provider, messages, replay_from=3)
    assert kinds(stub.requests[-1]) == ["text", "tool_use"]
    assert "thinking" not in stub.requests[-1].body
    ask(provider, [*messages, assistant("so"), user("next")], replay_from=3)
    assert "thinking" in stub.requests[-1].body
    assert [request.refusal for request in stub.requests] == [""] * 3


def test_another_route_gets_no_thinking(wire: Wire, stub: StubModelServer) -> None:
    messages = thought(wire(stub.base_url, thinking_tokens=2_000), stub)
    ask(wire(stub.base_url, thinking_tokens=2_000, model="other"), messages)
    assert kinds(stub.requests[-1]) == ["text", "tool_use"]
    assert "thinking" not in stub.requests[-1].body


def test_an_answer_whose_text_gave_way_loses_its_thinking(
    wire: Wire, stub: StubModelServer
) -> None:
    provider = wire(stub.base_url, thinking_tokens=2_000)
    opening, answered, told = thought(provider, stub)
    ask(provider, [opening, answered | {"content": "[stub]", "_masked_by": "p1"}, told])
    assert kinds(stub.requests[-1]) == ["text", "tool_use"]


def test_thinking_that_the_endpoint_refuses_is_forgotten_and_blocks_nothing(
    wire: Wire, stub: StubModelServer
) -> None:
    provider = wire(stub.base_url, thinking_tokens=2_000)
    messages = thought(provider, stub)
    said = "messages.1.content.0: `thinking` block fails the conversation check"
    stub.script([Reply(status=400, error=said)])
    assert ask(provider, messages).message["content"] == "ok"
    ask(provider, messages)
    assert [kinds(request)[0] for request in stub.requests[1:]] == ["thinking", "text", "text"]


def test_thinking_that_was_cut_off_is_not_kept(wire: Wire, stub: StubModelServer) -> None:
    stub.script([Reply(text="", reasoning="x" * 99, stall_after_chars=30)])
    provider = wire(stub.base_url)
    limits = Limits(connect_s=5, first_byte_s=5, idle_s=0.05, total_s=20, retries=0)
    with pytest.raises(ProviderError, match="fell silent"):
        ask(provider, [user("hi")], limits=limits)
    stub.script([Reply(raw_body=_cut_thought(), headers={"content-type": "text/event-stream"})])
    reply = ask(provider, [user("hi")])
    assert reply.message == {"role": "assistant", "content": ""}
    assert reply.finish_reason == "length"


def _cut_thought() -> bytes:
    block = {"type": "thinking", "thinking": "half", "signature": ""}
    parts = [
        {"type": "message_start", "message": {"id": "1", "model": "m"}},
        {"type": "content_block_start", "index": 0, "content_block": block},
        {"type": "message_delta", "delta": {"stop_reason": "max_tokens"}},
    ]
    return b"".join(b"data: " + orjson.dumps(part) + b"\n\n" for part in parts)


def test_too_small_an_answer_gets_no_thinking(wire: Wire) -> None:
    provider = wire("", thinking_tokens=2_000)
    assert "thinking" not in body_of(provider, [user("a")], max_tokens=2_000)
    body = body_of(provider, [user("a")], max_tokens=2_500, temperature=0.2)
    assert (body["thinking"]["budget_tokens"], "temperature" in body) == (1_476, False)


def test_a_model_that_sets_its_thinking_itself_is_asked_so_from_then_on(
    wire: Wire, stub: StubModelServer
) -> None:
    said = 'thinking.type: "enabled" is not supported by this model, use "adaptive"'
    stub.strict = False
    stub.script([Reply(status=400, error=said)])
    provider = wire(stub.base_url, thinking_tokens=2_000)
    for _ in range(2):
        ask(provider, [user("a")])
    assert [request.body["thinking"]["type"] for request in stub.requests] == [
        "enabled",
        "adaptive",
        "adaptive",
    ]
