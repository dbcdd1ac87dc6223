"""The Anthropic Messages wire against the stub model server."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.base.errors import OverloadError, ProviderError, QuotaError, RateError
from agent.providers.anthropic import AnthropicMessages
from agent.providers.http_model import HttpModel
from agent.providers.protocol import CallWatch, Delta, Limits, ModelReply, ModelRequest, TokenUsage
from agent.testing.builders import call, image, result, system, user
from agent.testing.stub_anthropic_blocks import sign
from agent.testing.stub_anthropic_strict import check_anthropic
from agent.testing.stub_reply import RecordedRequest, Reply, Strictness
from agent.testing.stub_server import StubModelServer
from tests.providers.anthropic_calls import LIMITS, ask, body_of, stored
from tests.providers.conftest import Wire, openings

QUICK = Limits(connect_s=5, first_byte_s=5, idle_s=5, total_s=20, retries=0)
CUT = {"cache_control": {"type": "ephemeral"}}
TOOL = {
    "type": "function",
    "function": {"name": "f", "description": "does it", "parameters": {"properties": {}}},
}


@pytest.fixture
def wire() -> Iterator[Wire]:
    yield from openings(AnthropicMessages)


# -- requests -------------------------------------------------------------------------------------
def test_a_request_carries_what_the_wire_needs(wire: Wire, stub: StubModelServer) -> None:
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
    wire: Wire, given: str, root: str
) -> None:
    assert wire(given).route == f"m at {root}"


def test_rows_of_one_side_share_a_message(wire: Wire) -> None:
    made = [call("f", {"a": 1}, call_id="x1"), call("f!", "[cut", call_id="x2")]
    messages = [
        user([{"type": "text", "text": "see"}, image(), image("https://host/a.png")]),
        {"role": "assistant", "content": "I look", "tool_calls": made},
        result("x1", "one"),
        {"role": "tool", "tool_call_id": "x2", "content": [image("data:image/bmp;base64,AA==")]},
        user("and?"),
    ]
    assert body_of(wire(""), messages)["messages"] == [
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


def test_ids_that_repeat_are_told_apart_by_their_rows(wire: Wire) -> None:
    made = call("f", call_id="call.0")
    rounds = [{"role": "assistant", "content": None, "tool_calls": [made]}, result(made, "r")]
    messages = stored(user("a"), *rounds, *rounds)
    provider = wire("")
    for _ in range(2):
        blocks = [block for m in body_of(provider, messages)["messages"] for block in m["content"]]
        used = [block["id"] for block in blocks if block["type"] == "tool_use"]
        answered = [block["tool_use_id"] for block in blocks if block["type"] == "tool_result"]
        assert used == answered
        assert len(set(used)) == 2


def test_a_stored_row_is_encoded_once(wire: Wire, monkeypatch: pytest.MonkeyPatch) -> None:
    written: list[Any] = []
    write = AnthropicMessages._write_row

    def note(provider: AnthropicMessages, message: Any, replays: bool) -> bytes:
        written.append(message["_seq"])
        return write(provider, message, replays)

    monkeypatch.setattr(AnthropicMessages, "_write_row", note)
    provider = wire("")
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
    wire: Wire, stub: StubModelServer, stream: bool
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


def test_usage_holds_what_the_cache_read_and_wrote(wire: Wire, stub: StubModelServer) -> None:
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
    wire: Wire, stub: StubModelServer, said: str | None, finish: str | None, stream: bool
) -> None:
    stub.script([Reply(finish=said)])
    assert ask(wire(stub.base_url), [user("hi")], stream=stream).finish_reason == finish


def test_an_answer_without_an_end_counts_as_truncated(wire: Wire, stub: StubModelServer) -> None:
    stub.script([Reply(text="half", reasoning="r", close_without_finish=True)])
    reply = ask(wire(stub.base_url), [user("hi")])
    assert (reply.message["content"], reply.finish_reason) == ("half", None)


# -- faults ---------------------------------------------------------------------------------------
def failed(provider: HttpModel, limits: Limits = QUICK) -> ProviderError:
    with pytest.raises(ProviderError) as caught:
        ask(provider, [user("hi")], limits=limits)
    return caught.value


@pytest.mark.parametrize(
    ("said", "kind"), [("overloaded_error", OverloadError), ("rate_limit_error", RateError)]
)
def test_an_error_inside_a_stream_is_that_error(
    wire: Wire, stub: StubModelServer, said: str, kind: type[ProviderError]
) -> None:
    start = b'event: message_start\ndata: {"type":"message_start","message":{"id":"1"}}\n\n'
    body = {"type": "error", "error": {"type": said, "message": "no"}}
    raw = start + b"event: error\ndata: " + orjson.dumps(body) + b"\n\n"
    stub.script([Reply(raw_body=raw, headers={"content-type": "text/event-stream"})])
    assert type(failed(wire(stub.base_url))) is kind


def test_credit_that_is_used_up_is_named(wire: Wire, stub: StubModelServer) -> None:
    stub.script([Reply(status=400, error="Your credit balance is too low")])
    assert type(failed(wire(stub.base_url))) is QuotaError
