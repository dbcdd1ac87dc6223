"""The official `anthropic` client as judge of our wire's requests and of the stub's answers."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from agent.providers.anthropic import AnthropicMessages
from agent.providers.protocol import CallWatch, Cleared, Limits, ModelRequest
from agent.testing.builders import assistant, call, image, result, system, user
from agent.testing.stub_anthropic_blocks import sign
from agent.testing.stub_reply import Reply
from agent.testing.stub_server import StubModelServer

# A client alone takes seconds to start, more on a busy machine.
pytestmark = [pytest.mark.oracles, pytest.mark.timeout(240)]

PYTHON = Path(__file__).parents[2] / ".venv-oracles" / "bin" / "python"

CLIENT = """
import json, sys
import anthropic
given = json.load(sys.stdin)
client = anthropic.Anthropic(base_url=given["base_url"], api_key="k-secret", max_retries=0)
out = []
for asked in given["calls"]:
    messages = client.beta.messages if "betas" in asked else client.messages
    try:
        if asked.pop("streamed"):
            with messages.stream(**asked) as stream:
                kinds = [event.type for event in stream]
                answer = stream.get_final_message()
        else:
            kinds = []
            answer = messages.create(**asked)
        names = [type(block).__name__ for block in answer.content]
        classes = [name.removeprefix("Parsed").removeprefix("Beta") for name in names]
        dumped = answer.model_dump(exclude_none=True)
        out.append({"answer": dumped, "classes": classes, "kinds": kinds})
    except anthropic.APIStatusError as error:
        out.append({"error": type(error).__name__, "status": error.status_code})
json.dump(out, sys.stdout)
"""


def by_client(stub: StubModelServer, *calls: dict[str, Any]) -> list[dict[str, Any]]:
    """Return what the official client made of the stub's answers to these calls."""
    given = {"base_url": stub.base_url.removesuffix("/v1"), "calls": calls}
    done = subprocess.run(
        [PYTHON, "-c", CLIENT], input=json.dumps(given), capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    answers: list[dict[str, Any]] = json.loads(done.stdout)
    return answers


MADE = call("read_file", {"path": "a", "lines": [1, 2]}, call_id="toolu_01")
THINKING = {"type": "enabled", "budget_tokens": 2_000}
PARAMETERS = {"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]}

OURS = ModelRequest(
    messages=[
        system("Be brief."),
        user([{"type": "text", "text": "see"}, image(), image("https://host/a.png")]),
        assistant("I look.", MADE),
        {**result(MADE, ""), "content": [{"type": "text", "text": "found"}, image()]},
        user("and?"),
    ],
    tools=[
        {
            "type": "function",
            "function": {"name": "read_file", "description": "Reads.", "parameters": PARAMETERS},
        }
    ],
    max_tokens=4_000,
)
PIXEL = {
    "type": "image",
    "source": {"type": "base64", "media_type": "image/png", "data": "aGVsbG8="},
}
THEIRS: dict[str, Any] = {
    "model": "m",
    "max_tokens": 4_000,
    "system": [{"type": "text", "text": "Be brief."}],
    "tools": [{"name": "read_file", "description": "Reads.", "input_schema": PARAMETERS}],
    "thinking": THINKING,
    "messages": [
        {
            "role": "user",
            "content": [
                {"type": "text", "text": "see"},
                PIXEL,
                {"type": "image", "source": {"type": "url", "url": "https://host/a.png"}},
            ],
        },
        {
            "role": "assistant",
            "content": [
                {"type": "thinking", "thinking": "hm", "signature": sign("hm")},
                {"type": "text", "text": "I look."},
                {
                    "type": "tool_use",
                    "id": "toolu_01",
                    "name": "read_file",
                    "input": {"path": "a", "lines": [1, 2]},
                },
            ],
        },
        {
            "role": "user",
            "content": [
                {
                    "type": "tool_result",
                    "tool_use_id": "toolu_01",
                    "content": [{"type": "text", "text": "found"}, PIXEL],
                },
                {"type": "text", "text": "and?"},
            ],
        },
    ],
}


def plain(value: Any) -> Any:
    """Return a body without what the two are allowed to differ in: where the cache is cut."""
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items() if key != "cache_control"}
    return [plain(item) for item in value] if isinstance(value, list) else value


def test_our_requests_are_the_clients(stub: StubModelServer) -> None:
    provider = AnthropicMessages(
        base_url=stub.base_url,
        api_key="k-secret",
        model="m",
        window_tokens=9_000,
        thinking_tokens=2_000,
    )
    stub.script([Reply(text="I look.", reasoning="hm", tool_calls=[MADE])])
    opening = ModelRequest(messages=OURS.messages[:2], max_tokens=4_000)
    answered = provider.complete(opening, limits=Limits(), watch=CallWatch()).message
    messages = [*OURS.messages[:2], answered, *OURS.messages[3:]]
    for stream in (True, False):
        request = ModelRequest(messages, OURS.tools, max_tokens=4_000, stream=stream)
        provider.complete(request, limits=Limits(), watch=CallWatch())
    provider.close()
    by_client(stub, *({**THEIRS, "streamed": streamed} for streamed in (True, False)))
    assert [request.refusal for request in stub.requests] == [""] * 5
    for ours, theirs in zip(stub.requests[1:3], stub.requests[3:], strict=True):
        assert plain(ours.body) == {"stream": False, **plain(theirs.body)}
        assert ours.path == theirs.path
        for name in ("authorization", "anthropic-version", "content-type"):
            assert ours.headers[name] == theirs.headers[name]


def test_the_client_reads_what_the_stub_answers(stub: StubModelServer) -> None:
    rich = Reply(text="I look.", reasoning="hm", tool_calls=[MADE])
    hides = Reply(text="so", reasoning="hm", reasoning_key="redacted", finish="length")
    faults = [Reply(status=status, error="no") for status in (401, 404, 429, 529)]
    stub.script([rich, rich, hides, *faults])
    asked = {"model": "m", "max_tokens": 9, "messages": [{"role": "user", "content": "hi"}]}
    too_long = {**asked, "messages": [{"role": "user", "content": "x" * 600_000}]}
    calls = [{**asked, "streamed": streamed} for streamed in (False, True, True, *[False] * 4)]
    whole, stream, hidden, *failed = by_client(stub, *calls, {**too_long, "streamed": False})
    content = [
        {"type": "thinking", "thinking": "hm", "signature": sign("hm")},
        {"type": "text", "text": "I look."},
        {
            "type": "tool_use",
            "id": "toolu_01",
            "name": "read_file",
            "input": {"path": "a", "lines": [1, 2]},
        },
    ]
    for answer in (whole, stream):
        assert answer["answer"]["content"] == content
        assert answer["classes"] == ["ThinkingBlock", "TextBlock", "ToolUseBlock"]
        assert answer["answer"]["stop_reason"] == "tool_use"
        assert answer["answer"]["usage"]["output_tokens"] == 1 + 2 + 9
    assert {"message_start", "signature", "input_json", "message_stop"} <= set(stream["kinds"])
    assert hidden["classes"] == ["RedactedThinkingBlock", "TextBlock"]
    assert hidden["answer"]["stop_reason"] == "max_tokens"
    assert failed == [
        {"error": "AuthenticationError", "status": 401},
        {"error": "NotFoundError", "status": 404},
        {"error": "RateLimitError", "status": 429},
        {"error": "OverloadedError", "status": 529},
        {"error": "BadRequestError", "status": 400},
    ]


def test_the_services_compaction_is_asked_for_and_read_as_the_client_does(
    stub: StubModelServer,
) -> None:
    provider = AnthropicMessages(base_url=stub.base_url, model="m", window_tokens=9_000)
    long = "words " * 900
    request = ModelRequest([user(long)], max_tokens=9, compact_at=1_000)
    answered = provider.complete(request, limits=Limits(), watch=CallWatch()).message
    stored = [row | {"_seq": n} for n, row in enumerate((answered, user("on")), 2)]
    request = ModelRequest(stored, max_tokens=9, compact_at=1_000)
    provider.complete(request, limits=Limits(), watch=CallWatch())
    provider.close()
    trigger = {"type": "input_tokens", "value": 1_000}
    asked: dict[str, Any] = {
        "model": "m",
        "max_tokens": 9,
        "betas": ["compact-2026-01-12"],
        "context_management": {"edits": [{"type": "compact_20260112", "trigger": trigger}]},
        "messages": [{"role": "user", "content": [{"type": "text", "text": long}]}],
    }
    whole, stream = by_client(
        stub, *({**asked, "streamed": streamed} for streamed in (False, True))
    )
    assert whole["classes"] == stream["classes"] == ["CompactionBlock", "TextBlock"]
    assert whole["answer"]["content"] == stream["answer"]["content"]
    first, second, _whole, theirs = stub.requests
    assert [request.refusal for request in stub.requests] == [""] * 4
    assert plain(first.body) == plain(theirs.body)
    assert first.headers["anthropic-beta"] == theirs.headers["anthropic-beta"]
    assert plain(second.messages[1]["content"]) == whole["answer"]["content"]


def test_the_services_context_editing_is_asked_for_and_read_as_the_client_does(
    stub: StubModelServer,
) -> None:
    provider = AnthropicMessages(
        base_url=stub.base_url, model="m", window_tokens=9_000, thinking_tokens=1_024
    )
    stub.script([Reply(text="I look.", reasoning=f"why {n}", tool_calls=[MADE]) for n in range(2)])
    messages = [user("look")]
    for number in range(5):
        made = {**MADE, "id": f"toolu_{number}"}
        if number < 2:
            opening = ModelRequest(messages, max_tokens=4_000)
            answered = provider.complete(opening, limits=Limits(), watch=CallWatch()).message
        else:
            answered = assistant("I look.")
        messages += [{**answered, "tool_calls": [made]}, result(made, "found " * 400), user("on")]
    replies = [
        provider.complete(
            ModelRequest(
                messages, max_tokens=4_000, clear_at=1_000, clear_thinking=True, stream=stream
            ),
            limits=Limits(),
            watch=CallWatch(),
        )
        for stream in (True, False)
    ]
    provider.close()
    ours = stub.requests[-2:]
    asked = {
        **{name: value for name, value in ours[0].body.items() if name != "stream"},
        "betas": ours[0].headers["anthropic-beta"].split(","),
    }
    whole, stream = by_client(
        stub, *({**asked, "streamed": streamed} for streamed in (False, True))
    )
    assert [request.refusal for request in stub.requests] == [""] * 6
    for answer in (whole, stream):
        thinking, tools = answer["answer"]["context_management"]["applied_edits"]
        assert thinking["type"] == "clear_thinking_20251015"
        assert tools["type"] == "clear_tool_uses_20250919"
        told = Cleared(
            tools["cleared_input_tokens"] + thinking["cleared_input_tokens"],
            tools["cleared_tool_uses"],
            thinking["cleared_thinking_turns"],
        )
        assert told.tool_uses == 2
        assert told.thinking_turns == 1
        assert [reply.cleared for reply in replies] == [told, told]
    for theirs in stub.requests[-2:]:
        assert theirs.body["context_management"] == ours[0].body["context_management"]
        assert theirs.headers["anthropic-beta"] == ours[0].headers["anthropic-beta"]
