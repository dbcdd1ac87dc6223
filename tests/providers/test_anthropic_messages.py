"""The Anthropic Messages wire against the stub model server."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.base.errors import (
    AuthError,
    CallCancelled,
    ContextOverflow,
    OverloadError,
    ProviderError,
    QuotaError,
    RateError,
    RequestRefused,
)
from agent.providers.anthropic import AnthropicMessages
from agent.providers.protocol import CallWatch, Delta, Limits, ModelReply, ModelRequest, TokenUsage
from agent.testing.builders import call, image, result, system, user
from agent.testing.stub_anthropic_strict import check_anthropic, hidden, sign
from agent.testing.stub_reply import RecordedRequest, Reply, Strictness
from agent.testing.stub_server import StubModelServer

LIMITS = Limits(connect_s=5, first_byte_s=10, idle_s=10, total_s=20)
QUICK = Limits(connect_s=5, first_byte_s=5, idle_s=5, total_s=20, retries=0)
CUT = {"cache_control": {"type": "ephemeral"}}
TOOL = {
    "type": "function",
    "function": {"name": "f", "description": "does it", "parameters": {"properties": {}}},
}
Open = Callable[..., AnthropicMessages]
Messages = list[dict[str, Any]]


@pytest.fixture
def wire() -> Iterator[Open]:
    """A function that opens a provider for a base URL; all are closed after the test."""
    opened: list[AnthropicMessages] = []

    def open_wire(base_url: str = "", **settings: Any) -> AnthropicMessages:
        given: dict[str, Any] = {"api_key": "k-secret", "model": "m", "window_tokens": 8_192}
        opened.append(AnthropicMessages(base_url=base_url, **given | settings))
        return opened[-1]

    yield open_wire
    for provider in opened:
        provider.close()


def stored(*messages: dict[str, Any]) -> Messages:
    return [
        message | {"_row_id": 100 + place, "_seq": place}
        for place, message in enumerate(messages, start=1)
    ]


def ask(provider: AnthropicMessages, messages: Messages, **fields: Any) -> ModelReply:
    limits = fields.pop("limits", LIMITS)
    request = ModelRequest(messages=messages, **{"max_tokens": 4_000} | fields)
    return provider.complete(request, limits=limits, watch=CallWatch())


def failed(provider: AnthropicMessages, limits: Limits = QUICK) -> ProviderError:
    with pytest.raises(ProviderError) as caught:
        ask(provider, [user("hi")], limits=limits)
    return caught.value


def body_of(provider: AnthropicMessages, messages: Messages, **fields: Any) -> dict[str, Any]:
    request = ModelRequest(messages=messages, **{"max_tokens": 4_000} | fields)
    body: dict[str, Any] = orjson.loads(provider._body(request, frozenset()))
    return body


# -- requests -------------------------------------------------------------------------------------
def test_a_request_carries_what_the_wire_needs(wire: Open, stub: StubModelServer) -> None:
    ask(wire(stub.base_url), [system("be kind"), user("hi")], tools=[TOOL], temperature=0.5)
    [request] = stub.requests
    assert (request.path, request.refusal) == ("/v1/messages", "")
    assert request.body == {
        "model": "m",
        "max_tokens": 4_000,
        "stream": True,
        "temperature": 0.5,
        "system": [{"type": "text", "text": "be kind", **CUT}],
        "tools": [
            {
                "name": "f",
                "description": "does it",
                "input_schema": {"type": "object", "properties": {}},
            }
        ],
        "messages": [{"role": "user", "content": [{"type": "text", "text": "hi", **CUT}]}],
    }
    names = ("authorization", "anthropic-version", "content-type")
    assert [request.headers[name] for name in names] == [
        "Bearer k-secret",
        "2026-10-21",
        "application/json",
    ]


@pytest.mark.parametrize(
    ("given", "root"),
    [
        ("", "https://api.anthropic.com/v1"),
        ("https://api.anthropic.com", "https://api.anthropic.com/v1"),
        ("https://api.anthropic.com/v1/", "https://api.anthropic.com/v1"),
        ("https://host/anthropic/", "https://host/anthropic/v1"),
    ],
)
def test_the_address_is_taken_with_and_without_its_version(
    wire: Open, given: str, root: str
) -> None:
    assert wire(given).route == f"m at {root}"


def test_rows_of_one_side_share_a_message(wire: Open) -> None:
    made = [call("f", {"a": 1}, call_id="x1"), call("f!", "[cut", call_id="x2")]
    messages = [
        user([{"type": "text", "text": "see"}, image(), image("https://host/a.png")]),
        {"role": "assistant", "content": "I look", "tool_calls": made},
        result("x1", "one"),
        {"role": "tool", "tool_call_id": "x2", "content": [image("data:image/bmp;base64,AA==")]},
        user("and?"),
    ]
    assert body_of(wire(), messages)["messages"] == [
        {
            "role": "user",
            "content": [
                {"type": "text", "text": "see"},
                {
                    "type": "image",
                    "source": {"type": "base64", "media_type": "image/png", "data": "aGVsbG8="},
                },
                {"type": "image", "source": {"type": "url", "url": "https://host/a.png"}, **CUT},
            ],
        },
        {
            "role": "assistant",
            "content": [
                {"type": "text", "text": "I look"},
                {"type": "tool_use", "id": "x1", "name": "f", "input": {"a": 1}},
                {"type": "tool_use", "id": "x2", "name": "f_", "input": {"unreadable": "[cut"}},
            ],
        },
        {
            "role": "user",
            "content": [
                {"type": "tool_result", "tool_use_id": "x1", "content": "one"},
                {
                    "type": "tool_result",
                    "tool_use_id": "x2",
                    "content": [{"type": "text", "text": "[image]"}],
                },
                {"type": "text", "text": "and?", **CUT},
            ],
        },
    ]


def test_ids_that_repeat_are_told_apart_by_their_rows(wire: Open) -> None:
    made = call("f", call_id="call.0")
    rounds = [{"role": "assistant", "content": None, "tool_calls": [made]}, result(made, "r")]
    messages = stored(user("a"), *rounds, *rounds)
    provider = wire()
    for _ in range(2):
        blocks = [block for m in body_of(provider, messages)["messages"] for block in m["content"]]
        used = [block["id"] for block in blocks if block["type"] == "tool_use"]
        answered = [block["tool_use_id"] for block in blocks if block["type"] == "tool_result"]
        assert used == answered
        assert len(set(used)) == 2


def test_a_stored_row_is_encoded_once(wire: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    written: list[Any] = []
    write = AnthropicMessages._write_row

    def note(provider: AnthropicMessages, message: Any, replays: bool) -> bytes:
        written.append(message["_seq"])
        return write(provider, message, replays)

    monkeypatch.setattr(AnthropicMessages, "_write_row", note)
    provider = wire()
    made = call("f", call_id="x")
    messages = stored(user("a"), {"role": "assistant", "tool_calls": [made]}, result(made, "r"))
    body_of(provider, messages[:1])
    body_of(provider, messages)
    body_of(provider, messages)
    assert written == [1, 2, 3]


TEXTS = st.sampled_from(["a", " ", "", "日本", "x\ud800", "data:image/png;base64,aGVsbG8="])
CONTENTS = st.one_of(
    TEXTS,
    st.lists(
        st.one_of(
            TEXTS.map(lambda said: {"type": "text", "text": said}),
            st.just(image()),
            st.just(image("data:image/tiff;base64,AA==")),
            st.just({"type": "file", "file": {}}),
        ),
        max_size=3,
    ),
)
ROUNDS = st.lists(
    st.tuples(
        st.lists(st.sampled_from(["x", "call.0", "y z", ""]), max_size=3, unique=True),
        st.sampled_from(["{}", '{"a":1}', '{"a":', "", '{"a":"\\ud800"}']),
        CONTENTS,
    ),
    max_size=4,
)


@given(CONTENTS, ROUNDS, st.booleans(), st.integers(0, 9))
def test_any_conversation_is_one_that_the_service_takes(
    opening: Any, rounds: list[Any], asks: bool, replay_from: int
) -> None:
    messages = [user(opening)]
    for ids, written, content in rounds:
        calls = [call("f", written, call_id=call_id) | {"id": call_id} for call_id in ids]
        said = content if isinstance(content, str) else "said"
        answer: dict[str, Any] = {"role": "assistant", "content": said}
        messages.append(answer | ({"tool_calls": calls} if calls else {}))
        messages += [{**result("", ""), "tool_call_id": i, "content": content} for i in ids]
        if not calls or asks:
            messages.append(user(content))
    provider = AnthropicMessages(base_url="", model="m", window_tokens=9_000, thinking_tokens=2_000)
    messages = [system("s"), *stored(*messages)]
    request = ModelRequest(messages=messages, max_tokens=4_000, replay_from=replay_from)
    raw = provider._body(request, frozenset())
    headers = {"anthropic-version": "x"}
    sent = RecordedRequest("POST", "/v1/messages", headers, raw, 0.0, orjson.loads(raw))
    assert check_anthropic(sent, Strictness()) is None


@given(
    st.lists(
        st.lists(st.tuples(st.integers(1, 6), st.booleans(), st.booleans()), min_size=1),
        min_size=1,
        max_size=5,
    )
)
def test_any_sequence_of_requests_is_written_as_if_nothing_were_kept(
    requests: list[list[tuple[int, bool, bool]]],
) -> None:
    used = AnthropicMessages(base_url="", model="m", window_tokens=9_000)
    for chosen in requests:
        rows = [
            {"role": "assistant" if answers else "user", "content": "same", "_seq": 2 * n + answers}
            | ({"_row_id": 2 * n + answers} if is_stored else {})
            for n, answers, is_stored in chosen
        ]
        fresh = AnthropicMessages(base_url="", model="m", window_tokens=9_000)
        assert _without_cuts(body_of(used, rows)) == _without_cuts(body_of(fresh, rows))


def _without_cuts(body: dict[str, Any]) -> Any:
    for message in body["messages"]:
        for block in message["content"]:
            block.pop("cache_control", None)
    return body["messages"]


# -- answers --------------------------------------------------------------------------------------
@pytest.mark.parametrize("stream", [True, False])
def test_an_answer_is_the_same_streamed_and_whole(
    wire: Open, stub: StubModelServer, stream: bool
) -> None:
    made = call("f", {"a": 1}, call_id="toolu_1")
    stub.script([Reply(text="hello 日本", reasoning="I think", tool_calls=[made])])
    deltas: list[Delta] = []
    provider = wire(stub.base_url)
    reply = provider.complete(
        ModelRequest(messages=[user("go")], max_tokens=9, stream=stream),
        limits=LIMITS,
        watch=CallWatch(on_delta=deltas.append),
    )
    written = reply.message["tool_calls"][0]["function"].pop("arguments")
    thought = {"type": "thinking", "thinking": "I think", "signature": sign("I think")}
    assert orjson.loads(written) == {"a": 1}
    assert orjson.loads(reply.message.pop("_reasoning")) == {
        "route": f"{provider.route} (messages)",
        "fields": {"layout": [thought, 8, None]},
    }
    assert reply == ModelReply(
        {
            "role": "assistant",
            "content": "hello 日本",
            "tool_calls": [{"id": "toolu_1", "type": "function", "function": {"name": "f"}}],
        },
        "tool_calls",
        TokenUsage(prompt=5, completion=2 + 4 + 2, cache_write=5, reasoning=2),
        "m",
        "msg_stub_1",
    )
    assert "".join(delta.text for delta in deltas) == "hello 日本"
    assert "".join(delta.reasoning for delta in deltas) == "I think"


def test_usage_holds_what_the_cache_read_and_wrote(wire: Open, stub: StubModelServer) -> None:
    counts = {
        "input_tokens": 5,
        "cache_read_input_tokens": 1_000,
        "cache_creation_input_tokens": 200,
        "output_tokens": 7,
    }
    stub.script([Reply(usage=counts)])
    assert ask(wire(stub.base_url), [user("hi")]).usage == TokenUsage(
        prompt=1_205, completion=7, cached=1_000, cache_write=200
    )


@pytest.mark.parametrize(
    ("said", "finish"),
    [
        ("stop", "stop"),
        ("stop_sequence", "stop"),
        ("length", "length"),
        ("model_context_window_exceeded", "length"),
        ("pause_turn", "length"),
        ("content_filter", "content_filter"),
        ("tool_calls", "stop"),
        (None, None),
    ],
)
@pytest.mark.parametrize("stream", [True, False])
def test_reasons_to_stop_are_those_of_every_wire(
    wire: Open, stub: StubModelServer, said: str | None, finish: str | None, stream: bool
) -> None:
    stub.script([Reply(finish=said)])
    assert ask(wire(stub.base_url), [user("hi")], stream=stream).finish_reason == finish


def test_an_answer_without_an_end_counts_as_truncated(wire: Open, stub: StubModelServer) -> None:
    stub.script([Reply(text="half", reasoning="r", close_without_finish=True)])
    reply = ask(wire(stub.base_url), [user("hi")])
    assert (reply.message["content"], reply.finish_reason) == ("half", None)


# -- thinking -------------------------------------------------------------------------------------
def thought(provider: AnthropicMessages, stub: StubModelServer, **reply: Any) -> Messages:
    """Return a conversation with an open tool round, begun by an answer that thought."""
    made = call("f", {"a": 1}, call_id="toolu_1")
    given = {"text": "I look", "reasoning": "why not", "tool_calls": [made]} | reply
    stub.script([Reply(**given)])
    answered = ask(provider, stored(user("go")))
    return stored(user("go"), answered.message, result(made, "found"))


@pytest.mark.parametrize("key", ["reasoning_content", "redacted"])
def test_thinking_goes_back_as_it_came(wire: Open, stub: StubModelServer, key: str) -> None:
    provider = wire(stub.base_url, thinking_tokens=2_000)
    messages = thought(provider, stub, reasoning_key=key)
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
    wire: Open, stub: StubModelServer
) -> None:
    provider = wire(stub.base_url, thinking_tokens=2_000)
    messages = thought(provider, stub)
    ask(provider, messages, replay_from=3)
    assert kinds(stub.requests[-1]) == ["text", "tool_use"]
    assert "thinking" not in stub.requests[-1].body
    ask(
        provider,
        [
            *messages,
            *stored(*[user("")] * 3, {"role": "assistant", "content": "so"})[3:],
            user("next"),
        ],
        replay_from=3,
    )
    assert "thinking" in stub.requests[-1].body
    assert [request.refusal for request in stub.requests] == [""] * 3


def test_another_route_gets_no_thinking(wire: Open, stub: StubModelServer) -> None:
    messages = thought(wire(stub.base_url, thinking_tokens=2_000), stub)
    ask(wire(stub.base_url, thinking_tokens=2_000, model="other"), messages)
    assert kinds(stub.requests[-1]) == ["text", "tool_use"]
    assert "thinking" not in stub.requests[-1].body


def test_an_answer_whose_text_gave_way_loses_its_thinking(
    wire: Open, stub: StubModelServer
) -> None:
    provider = wire(stub.base_url, thinking_tokens=2_000)
    opening, answered, told = thought(provider, stub)
    ask(provider, [opening, answered | {"content": "[stub]", "_masked_by": "p1"}, told])
    assert kinds(stub.requests[-1]) == ["text", "tool_use"]


def test_thinking_that_the_endpoint_refuses_is_forgotten_and_blocks_nothing(
    wire: Open, stub: StubModelServer
) -> None:
    provider = wire(stub.base_url, thinking_tokens=2_000)
    messages = thought(provider, stub)
    said = "messages.1.content.0: `thinking` block fails the conversation check"
    stub.script([Reply(status=400, error=said)])
    assert ask(provider, messages).message["content"] == "ok"
    ask(provider, messages)
    assert [kinds(request)[0] for request in stub.requests[1:]] == ["thinking", "text", "text"]


def test_thinking_that_was_cut_off_is_not_kept(wire: Open, stub: StubModelServer) -> None:
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


def test_too_small_an_answer_gets_no_thinking(wire: Open) -> None:
    provider = wire(thinking_tokens=2_000)
    assert "thinking" not in body_of(provider, [user("a")], max_tokens=2_000)
    body = body_of(provider, [user("a")], max_tokens=2_500, temperature=0.2)
    assert (body["thinking"]["budget_tokens"], "temperature" in body) == (1_476, False)


def test_a_model_that_sets_its_thinking_itself_is_asked_so_from_then_on(
    wire: Open, stub: StubModelServer
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


# -- faults ---------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("reply", "kind"),
    [
        (Reply(status=401, error="invalid x-api-key"), AuthError),
        (Reply(status=400, error="Your credit balance is too low"), QuotaError),
        (Reply(status=404, error="model: nope"), RequestRefused),
        (Reply(status=429, error="rate limited"), RateError),
        (Reply(status=529, error="Overloaded"), OverloadError),
        (Reply(status=500, error="Internal server error"), OverloadError),
    ],
)
def test_an_error_is_named_by_its_kind(
    wire: Open, stub: StubModelServer, reply: Reply, kind: type[ProviderError]
) -> None:
    stub.script([reply])
    assert type(failed(wire(stub.base_url))) is kind


@pytest.mark.parametrize(
    ("said", "kind"), [("overloaded_error", OverloadError), ("rate_limit_error", RateError)]
)
def test_an_error_inside_a_stream_is_that_error(
    wire: Open, stub: StubModelServer, said: str, kind: type[ProviderError]
) -> None:
    start = b'event: message_start\ndata: {"type":"message_start","message":{"id":"1"}}\n\n'
    body = {"type": "error", "error": {"type": said, "message": "no"}}
    raw = start + b"event: error\ndata: " + orjson.dumps(body) + b"\n\n"
    stub.script([Reply(raw_body=raw, headers={"content-type": "text/event-stream"})])
    assert type(failed(wire(stub.base_url))) is kind


def test_an_overloaded_endpoint_is_asked_again(wire: Open, stub: StubModelServer) -> None:
    stub.script([Reply(status=529, error="Overloaded", headers={"retry-after": "0"})])
    assert ask(wire(stub.base_url), [user("hi")]).message["content"] == "ok"
    assert [request.status for request in stub.requests] == [529, 200]


def test_an_overflow_names_both_sizes(wire: Open) -> None:
    with StubModelServer(window_tokens=100) as stub:
        provider = wire(stub.base_url)
        with pytest.raises(ContextOverflow) as caught:
            ask(provider, [user("x" * 800)])
    assert (caught.value.request_tokens, caught.value.limit_tokens) == (204, 100)


def test_a_stop_ends_a_call_at_once_and_the_server_hears_it(
    wire: Open, stub: StubModelServer
) -> None:
    stub.script([Reply(text="x" * 400, stall_after_chars=30)])
    watch = CallWatch(on_delta=lambda _delta: begun.set())
    begun = threading.Event()
    caught: list[tuple[float, BaseException]] = []

    def complete() -> None:
        try:
            wire(stub.base_url).complete(
                ModelRequest(messages=[user("hi")]), limits=LIMITS, watch=watch
            )
        except CallCancelled as error:
            caught.append((time.monotonic(), error))

    caller = threading.Thread(target=complete)
    caller.start()
    assert begun.wait(5)
    stopped_at = time.monotonic()
    watch.cancel.cancel()
    caller.join(5)
    [(ended_at, _error)] = caught
    assert ended_at - stopped_at < 0.25
    assert stub.requests[0].done.wait(5)
    assert stub.requests[0].client_closed_at is not None
