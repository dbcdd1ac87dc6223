"""The stub server's Anthropic Messages shape, over real HTTP, read by the stdlib's client."""

from __future__ import annotations

import http.client
import json
from collections.abc import Iterable
from typing import Any
from urllib.parse import urlsplit

import pytest

from agent.testing.builders import call
from agent.testing.stub_anthropic_blocks import blocks_of, hidden, sign
from agent.testing.stub_anthropic_edits import CLEARED, edited, edits_fault
from agent.testing.stub_reply import Reply
from agent.testing.stub_server import StubModelServer

Blocks = list[dict[str, Any]]
Messages = list[dict[str, Any]]
CUT = {"type": "ephemeral"}


def text(said: str, **fields: Any) -> dict[str, Any]:
    return {"type": "text", "text": said, **fields}


def use(call_id: str, **given: Any) -> dict[str, Any]:
    return {"type": "tool_use", "id": call_id, "name": "f", "input": given}


def result(call_id: str, content: Any = "done") -> dict[str, Any]:
    return {"type": "tool_result", "tool_use_id": call_id, "content": content}


def thinking(said: str) -> dict[str, Any]:
    return {"type": "thinking", "thinking": said, "signature": sign(said)}


def turns(*contents: Any) -> Messages:
    return [
        {"role": "assistant" if index % 2 else "user", "content": content}
        for index, content in enumerate(contents)
    ]


def post(stub: StubModelServer, *contents: Any, **fields: Any) -> tuple[int, Any]:
    given = {"model": "m", "max_tokens": 9, "messages": turns(*contents)} | fields
    body = {name: value for name, value in given.items() if value is not None}
    headers = {"anthropic-version": "2026-10-21", "authorization": "Bearer k"}
    connection = http.client.HTTPConnection(urlsplit(stub.base_url).netloc, timeout=10)
    try:
        connection.request("POST", "/v1/messages", json.dumps(body), headers)
        response = connection.getresponse()
        raw = response.read()
        return response.status, raw if body.get("stream") else json.loads(raw)
    finally:
        connection.close()


def events(raw: bytes) -> Iterable[dict[str, Any]]:
    for piece in raw.decode().strip().split("\n\n"):
        name, data = piece.split("\n")
        event = json.loads(data.removeprefix("data: "))
        assert name == f"event: {event['type']}"
        yield event


def test_a_whole_answer_has_thinking_text_calls_and_usage(stub: StubModelServer) -> None:
    made = call("f", {"a": 1}, call_id="toolu_1")
    stub.script([Reply(text="good morning", reasoning="think", tool_calls=[made])])
    status, answer = post(stub, "hello", system="be kind")
    assert (status, answer) == (
        200,
        {
            "id": "msg_stub_1",
            "type": "message",
            "role": "assistant",
            "model": "m",
            "content": [thinking("think"), text("good morning"), use("toolu_1", a=1)],
            "stop_reason": "tool_use",
            "stop_sequence": None,
            "usage": {
                "input_tokens": 4 + 2 + 2,
                "cache_read_input_tokens": 0,
                "cache_creation_input_tokens": 0,
                "output_tokens": 2 + 3 + 2,
                "output_tokens_details": {"thinking_tokens": 2},
            },
        },
    )


def test_a_stream_comes_in_the_events_of_the_service(stub: StubModelServer) -> None:
    made = call("f", {"a": 1}, call_id="toolu_1")
    stub.script([Reply(chunks=["hi ", "there"], reasoning="think", tool_calls=[made])])
    _status, raw = post(stub, "hello", stream=True)
    first, *rest = events(raw)
    assert first["message"]["content"] == []
    assert rest[:12] == [
        {
            "type": "content_block_start",
            "index": 0,
            "content_block": {"type": "thinking", "thinking": "", "signature": ""},
        },
        _delta(0, type="thinking_delta", thinking="think"),
        _delta(0, type="signature_delta", signature=sign("think")),
        {"type": "ping"},
        {"type": "content_block_stop", "index": 0},
        {"type": "content_block_start", "index": 1, "content_block": text("")},
        _delta(1, type="text_delta", text="hi "),
        _delta(1, type="text_delta", text="there"),
        {"type": "content_block_stop", "index": 1},
        {"type": "content_block_start", "index": 2, "content_block": use("toolu_1")},
        _delta(2, type="input_json_delta", partial_json='{"a": 1}'),
        {"type": "content_block_stop", "index": 2},
    ]
    assert rest[12:] == [
        {
            "type": "message_delta",
            "delta": {"stop_reason": "tool_use", "stop_sequence": None},
            "usage": {"output_tokens": 2 + 2 + 2},
        },
        {"type": "message_stop"},
    ]


def _delta(index: int, **delta: Any) -> dict[str, Any]:
    return {"type": "content_block_delta", "index": index, "delta": delta}


@pytest.mark.parametrize(
    ("status", "kind"), [(401, "authentication_error"), (529, "overloaded_error")]
)
def test_an_error_has_the_type_of_its_status(stub: StubModelServer, status: int, kind: str) -> None:
    stub.script([Reply(status=status, error="no")])
    assert post(stub, "hello") == (
        status,
        {"type": "error", "error": {"type": kind, "message": "no"}, "request_id": "req_stub"},
    )


TOOLS: Blocks = [{"name": "f", "description": "", "input_schema": {"type": "object"}}]
ROUND = ("go", [thinking("a"), use("x"), use("y")], [result("x"), result("y"), text("and?")])
THINK = {"type": "enabled", "budget_tokens": 1_024}
PIXEL = {"type": "base64", "media_type": "image/png", "data": "aGVsbG8="}

GOOD: dict[str, tuple[tuple[Any, ...], dict[str, Any]]] = {
    "a round": (ROUND, {"tools": TOOLS, "thinking": THINK, "max_tokens": 2_000}),
    "hidden thinking": (
        ("go", [{"type": "redacted_thinking", "data": hidden("a")}, use("x")], [result("x")]),
        {"thinking": THINK, "max_tokens": 2_000},
    ),
    "an answered turn": (("go", "done", "on"), {"thinking": THINK, "max_tokens": 2_000}),
    "images": (
        (
            [text("see"), {"type": "image", "source": PIXEL}],
            [use("x")],
            [result("x", [{"type": "image", "source": PIXEL}])],
        ),
        {},
    ),
    "four breakpoints": (
        ([text("a", cache_control=CUT), text("b", cache_control=CUT)],),
        {"system": [text("s", cache_control=CUT)], "tools": [{**TOOLS[0], "cache_control": CUT}]},
    ),
}


@pytest.mark.parametrize(("contents", "fields"), GOOD.values(), ids=GOOD.keys())
def test_what_the_service_takes_is_answered(
    stub: StubModelServer, contents: tuple[Any, ...], fields: dict[str, Any]
) -> None:
    status, answer = post(stub, *contents, **fields)
    assert (status, answer.get("error")) == (200, None)


BAD: dict[str, tuple[tuple[Any, ...], dict[str, Any], str]] = {
    "no limit": (("a",), {"max_tokens": None}, "max_tokens: Field required"),
    "a field too much": (("a",), {"n": 1}, "n: Extra inputs are not permitted"),
    "nothing": ((), {}, "messages: at least one message is required"),
    "blank text": (([text(" ")],), {}, "must contain non-whitespace text"),
    "no content": (([],), {}, "messages.0: content must not be empty"),
    "the assistant's end": (("a", "b"), {}, "must end with a user message"),
    "two of a role": (
        (),
        {"messages": [*turns("a"), *turns("b")]},
        "messages.1: roles must alternate",
    ),
    "the assistant first": (
        (),
        {"messages": turns("a", "b", "c")[1:]},
        "messages.0: first message must use the user role",
    ),
    "no result": (("a", [use("x")], "b"), {}, "ids were found without `tool_result` blocks: x"),
    "a result too much": (("a", "b", [result("x")]), {}, "unexpected `tool_use_id`"),
    "a late result": (
        ("a", [use("x")], [text("b"), result("x")]),
        {},
        "tool_result blocks must stand first",
    ),
    "an id twice": (
        ("a", [use("x")], [result("x")], [use("x")], [result("x")]),
        {},
        "messages.3: `tool_use` ids must be unique",
    ),
    "an id of other characters": (
        ("a", [use("x.1")], [result("x.1")]),
        {},
        "tool_use.id: String should match pattern",
    ),
    "a changed thought": (
        ("a", [{**thinking("b"), "thinking": "c"}, text("d")], "e"),
        {},
        "messages.1: content.0: Invalid `signature` in `thinking` block",
    ),
    "a changed hidden thought": (
        ("a", [{"type": "redacted_thinking", "data": "x.y"}, text("d")], "e"),
        {},
        "Invalid `data` in `redacted_thinking` block",
    ),
    "a round without thinking": (
        ("a", [use("x")], [result("x")]),
        {"thinking": THINK, "max_tokens": 2_000},
        "Expected `thinking` or `redacted_thinking`, but found `tool_use`",
    ),
    "no room beside thinking": (
        ("a",),
        {"thinking": THINK, "max_tokens": 1_024},
        "`max_tokens` must be greater than `thinking.budget_tokens`",
    ),
    "five breakpoints": (
        ([text(str(number), cache_control=CUT) for number in range(5)],),
        {},
        "A maximum of 4 blocks with cache_control may be provided. Found 5.",
    ),
    "a cached thought": (
        ("a", [{**thinking("b"), "cache_control": CUT}], "c"),
        {},
        "cache_control: Extra inputs are not permitted",
    ),
    "an image by file": (
        ([{"type": "image", "source": {"type": "url", "url": "file:///a"}}],),
        {},
        "only http and https URLs",
    ),
    "a chat tool": (("a",), {"tools": [{"name": "f", "parameters": {}}]}, "tools.0.input_schema"),
    "too long": (("a" * 600_000,), {}, "prompt is too long: 150004 tokens > 128000 maximum"),
}


@pytest.mark.parametrize(("contents", "fields", "said"), BAD.values(), ids=BAD.keys())
def test_what_the_service_refuses_is_refused(
    stub: StubModelServer, contents: tuple[Any, ...], fields: dict[str, Any], said: str
) -> None:
    status, answer = post(stub, *contents, **fields)
    assert (status, answer["error"]["type"]) == (400, "invalid_request_error")
    assert said in answer["error"]["message"]


# -- the prompt cache -----------------------------------------------------------------------------
def counted(stub: StubModelServer, *contents: Any, **fields: Any) -> tuple[int, int, int]:
    """Return (read from the cache, written to it, neither) of one request."""
    _status, answer = post(stub, *contents, **fields)
    usage = answer["usage"]
    names = ("cache_read_input_tokens", "cache_creation_input_tokens", "input_tokens")
    return (usage[names[0]], usage[names[1]], usage[names[2]])


def test_a_prefix_is_read_once_it_was_written(stub: StubModelServer) -> None:
    long = text("x" * 400, cache_control=CUT)
    system = [text("y" * 40, cache_control=CUT)]
    assert counted(stub, [long], system=system) == (0, 114, 0)
    assert counted(stub, [long], system=system) == (114, 0, 0)
    assert counted(stub, [text("x" * 400)], "a", [long], system=system) == (114, 109, 0)
    assert counted(stub, [text("z" * 40)], system=system) == (10, 0, 14)
    assert counted(stub, [long]) == (0, 104, 0)


def test_a_breakpoint_finds_what_ended_at_most_20_blocks_before_it(stub: StubModelServer) -> None:
    first = text("x" * 400)
    counted(stub, [text("x" * 400, cache_control=CUT)])
    for more, read in ((20, 104), (21, 0)):
        blocks = [text(f"{more} {number}") for number in range(more)]
        blocks[-1]["cache_control"] = CUT
        assert counted(stub, [first, *blocks])[0] == read


# -- edits ----------------------------------------------------------------------------------------
LOOKED = [
    "look",
    *(block for n in range(4) for block in ([use(f"t{n}")], [result(f"t{n}", "x" * 4_000)])),
]
TOKENS = {"type": "input_tokens", "value": 1_000}
CLEARS: dict[str, Any] = {"type": "clear_tool_uses_20250919", "trigger": TOKENS}
FORGETS = {"type": "clear_thinking_20251015", "keep": {"type": "thinking_turns", "value": 1}}


def edited_by(*edits: dict[str, Any], contents: Any = LOOKED, thinking: Any = None) -> Any:
    body = {"messages": turns(*contents), "context_management": {"edits": edits}}
    return edited(body | {"thinking": thinking})


@pytest.mark.parametrize(
    ("edit", "cleared"),
    [
        (CLEARS, 1),
        (CLEARS | {"keep": {"type": "tool_uses", "value": 0}}, 4),
        (CLEARS | {"trigger": {"type": "input_tokens", "value": 9_000}}, 0),
        (CLEARS | {"trigger": {"type": "tool_uses", "value": 4}}, 1),
        (CLEARS | {"clear_at_least": {"type": "input_tokens", "value": 1_001}}, 0),
    ],
)
def test_old_results_are_left_out_from_the_trigger_on(edit: dict[str, Any], cleared: int) -> None:
    body, applied = edited_by(edit)
    contents = [block for message in body["messages"] for block in blocks_of(message["content"])]
    assert sum(block.get("content") == CLEARED for block in contents) == cleared
    assert [each["cleared_tool_uses"] for each in applied] == [cleared] * bool(cleared)
    assert [each["cleared_input_tokens"] for each in applied] == [993 * cleared] * bool(cleared)


def test_thinking_is_left_out_of_all_but_the_newest_turns() -> None:
    contents = ("a", [thinking("one"), text("1")], "b", [thinking("two"), text("2")], "c")
    body, applied = edited_by(FORGETS, contents=contents)
    assert body["messages"] == turns(
        [text("a")], [text("1")], [text("b")], [thinking("two"), text("2")], [text("c")]
    )
    assert applied == [
        {"type": FORGETS["type"], "cleared_thinking_turns": 1, "cleared_input_tokens": 1}
    ]


@pytest.mark.parametrize(
    ("edits", "betas", "said"),
    [
        ([CLEARS], "compact-2026-01-12", "context_management: Extra inputs"),
        ([CLEARS | {"until": 1}], "context-management-2025-06-27", "edits.0.until: Extra inputs"),
        ([CLEARS, FORGETS], "context-management-2025-06-27", "must be the first of the edits"),
        ([FORGETS], "context-management-2025-06-27", "needs `thinking` to be enabled"),
    ],
)
def test_edits_that_the_service_does_not_take_are_refused(
    edits: list[dict[str, Any]], betas: str, said: str
) -> None:
    fault = edits_fault({"anthropic-beta": betas}, {"context_management": {"edits": edits}})
    assert said in fault
