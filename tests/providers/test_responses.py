"""What only the Responses wire has: items in their own order, sealed ones, events and quirks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import orjson
import pytest

from agent.base.errors import (
    ContextOverflow,
    NetworkError,
    OverloadError,
    ProviderError,
    RateError,
    RequestRefused,
)
from agent.base.messages import Message
from agent.providers.items import holds_compaction, write_item_row
from agent.providers.protocol import CallWatch, Delta, Limits, ModelReply, ModelRequest
from agent.providers.responses import Responses
from agent.providers.responses_reply import ResponsePieces
from agent.testing.builders import assistant, call, image, result, system, user
from agent.testing.stub_reply import RecordedRequest, Reply
from agent.testing.stub_responses_strict import seal
from agent.testing.stub_server import StubModelServer
from tests.providers.calls import chunk, read_then
from tests.providers.conftest import Wire, openings
from tests.providers.raw_server import STREAM_HEAD, Serve

LIMITS = Limits(connect_s=5, first_byte_s=10, idle_s=10, total_s=20, retries=0)
HELLO = user("hello")
ROUTE = "m at http://here/v1"


@pytest.fixture
def wire() -> Iterator[Wire]:
    yield from openings(Responses)


def ask(provider: Any, *messages: Message, **fields: Any) -> ModelReply:
    request = ModelRequest(**{"messages": messages or [HELLO], "max_tokens": 50, **fields})
    reply: ModelReply = provider.complete(request, limits=LIMITS, watch=CallWatch())
    return reply


# -- requests -----------------------------------------------------------------------------------
def test_a_request_carries_what_the_wire_needs(wire: Wire, stub: StubModelServer) -> None:
    function = {"name": "f", "description": "d", "parameters": {"type": "object"}}
    tools = [{"type": "function", "function": function}]
    ask(wire(stub.base_url), system("Be brief."), HELLO, tools=tools, max_tokens=3)
    [request] = stub.requests
    assert request.body == {
        "input": [{"role": "user", "content": "hello"}],
        "model": "m",
        "instructions": "Be brief.",
        "max_output_tokens": 16,
        "stream": True,
        "store": False,
        "include": ["reasoning.encrypted_content"],
        "reasoning": {"summary": "auto"},
        "tools": [{"type": "function", "strict": False, **function}],
    }
    assert request.headers["authorization"] == "Bearer k-secret"


def items_of(message: Message, *, replays: bool = True, route: str = ROUTE) -> list[Any]:
    """Return the items that a message is sent as."""
    return list(orjson.loads(b"[" + write_item_row(message, replays, route=route)[1:] + b"]"))


def test_parts_have_the_names_of_this_wire() -> None:
    file = {"type": "file", "file": {"filename": "a.pdf", "file_data": "data:x"}}
    detailed = {"type": "image_url", "image_url": {"url": "http://x/y.png", "detail": "low"}}
    parts = [{"type": "text", "text": "a"}, "b", image(), detailed, file]
    [message] = items_of({"role": "user", "content": parts})
    assert message["content"] == [
        {"type": "input_text", "text": "a"},
        {"type": "input_text", "text": "b"},
        {"type": "input_image", "image_url": "data:image/png;base64,aGVsbG8=", "detail": "auto"},
        {"type": "input_image", "image_url": "http://x/y.png", "detail": "low"},
        {"type": "input_file", "filename": "a.pdf", "file_data": "data:x"},
    ]


def test_results_are_outputs_of_their_calls() -> None:
    one = call("f", {"a": 1}, call_id="c1")
    assert items_of(assistant("look", one)) == [
        {"role": "assistant", "content": "look"},
        {"type": "function_call", "call_id": "c1", "name": "f", "arguments": '{"a": 1}'},
    ]
    pictured = [{"type": "text", "text": "x"}, image()]
    assert items_of(result(one, "x") | {"name": "f"}) == [
        {"type": "function_call_output", "call_id": "c1", "output": "x"}
    ]
    [output] = items_of({"role": "tool", "tool_call_id": "c1", "content": pictured})
    assert [part["type"] for part in output["output"]] == ["input_text", "input_image"]


REFUSALS = {
    "reasoning.summary": ("reasoning", "Unsupported parameter: 'reasoning.summary'."),
    "encrypted": ("include", "Encrypted content is not supported with this model."),
}


@pytest.mark.parametrize(("field", "why"), REFUSALS.values(), ids=REFUSALS.keys())
def test_a_model_that_does_not_reason_is_learned_once(
    wire: Wire, stub: StubModelServer, field: str, why: str
) -> None:
    def answer(request: RecordedRequest) -> Reply:
        return Reply(status=400, error=why) if field in request.body else Reply()

    stub.script(answer)
    provider = wire(stub.base_url)
    for _ in range(2):
        assert ask(provider).message["content"] == "ok"
    assert [field in request.body for request in stub.requests] == [True, False, False]


# -- answers from events --------------------------------------------------------------------------
def reasoning_item(name: str = "rs_1", sealed: str | None = "sealed") -> dict[str, Any]:
    summary = [{"type": "summary_text", "text": f"why {name}"}]
    item = {"type": "reasoning", "id": name, "summary": summary, "status": None}
    return item if sealed is None else item | {"encrypted_content": sealed}


def message_item(text: str, **fields: Any) -> dict[str, Any]:
    part = {"type": "output_text", "text": text, "annotations": []}
    said = {"type": "message", "id": "msg", "role": "assistant", "content": [part]}
    return {**said, "status": "completed", **fields}


def call_item(call_id: str) -> dict[str, Any]:
    return {
        "type": "function_call",
        "id": f"fc_{call_id}",
        "call_id": call_id,
        "name": "f",
        "arguments": "{}",
        "status": "completed",
    }


def whole(*output: Mapping[str, Any], **fields: Any) -> dict[str, Any]:
    answer = {"id": "resp_1", "object": "response", "model": "m", "status": "completed"}
    return {**answer, "output": list(output), **fields}


def told(*parts: Mapping[str, Any]) -> tuple[ModelReply, list[Delta]]:
    """Return what these objects make, and the deltas on the way."""
    pieces = ResponsePieces("m", ROUTE)
    deltas = [pieces.add(part) for part in parts]
    return pieces.whole(), [delta for delta in deltas if delta is not None]


MIXED = [
    reasoning_item("rs_1"),
    message_item("First. ", phase="commentary"),
    reasoning_item("rs_2"),
    call_item("c1"),
    message_item("Then."),
    call_item("c2"),
]


def test_items_go_back_in_the_order_in_which_they_came() -> None:
    reply, deltas = told(whole(*MIXED))
    assert deltas == [Delta(text="First. Then.", reasoning="why rs_1\n\nwhy rs_2")]
    assert reply.message["content"] == "First. Then."
    assert reply.finish_reason == "tool_calls"
    summaries = [item["summary"] for item in MIXED if item["type"] == "reasoning"]
    assert items_of(reply.message) == [
        {
            "type": "reasoning",
            "id": "rs_1",
            "summary": summaries[0],
            "encrypted_content": "sealed",
        },
        {"role": "assistant", "content": "First. ", "phase": "commentary"},
        {
            "type": "reasoning",
            "id": "rs_2",
            "summary": summaries[1],
            "encrypted_content": "sealed",
        },
        {"type": "function_call", "call_id": "c1", "name": "f", "arguments": "{}"},
        {"role": "assistant", "content": "Then."},
        {"type": "function_call", "call_id": "c2", "name": "f", "arguments": "{}"},
    ]


CHANGED: dict[str, dict[str, Any]] = {
    "joined with another": {"content": "First. Then.\n\nMore."},
    "without a call": {"tool_calls": [call("f", call_id="c1")]},
    "blank": {"content": "", "tool_calls": None},
}


@pytest.mark.parametrize("change", CHANGED.values(), ids=CHANGED.keys())
def test_an_answer_that_was_changed_goes_back_without_anything_sealed(
    change: dict[str, Any],
) -> None:
    reply, _ = told(whole(*MIXED))
    changed = reply.message | change
    kinds = {item.get("type", "message") for item in items_of(changed)}
    assert kinds <= {"message", "function_call"}
    assert b"sealed" not in write_item_row(changed, True, route=ROUTE)


@pytest.mark.parametrize(
    "output",
    [
        pytest.param([message_item("a"), reasoning_item()], id="nothing follows it"),
        pytest.param([reasoning_item(sealed=None), message_item("a")], id="nothing is in it"),
        pytest.param([message_item("a")], id="there is none"),
    ],
)
def test_reasoning_that_cannot_go_back_is_not_kept(output: list[dict[str, Any]]) -> None:
    reply, _ = told(whole(*output))
    assert items_of(reply.message) == [{"role": "assistant", "content": "a"}]


def test_open_reasoning_is_bound_to_nothing() -> None:
    said = [{"type": "reasoning_text", "text": "hm"}]
    item = {"type": "reasoning", "id": "rs_1", "summary": [], "content": said}
    reply, [delta] = told(whole(item, message_item("a")))
    assert delta == Delta(text="a", reasoning="hm")
    assert items_of(reply.message, replays=False)[0]["content"] == said
    assert items_of(reply.message, route="other") == [{"role": "assistant", "content": "a"}]


def added(index: int, item: Mapping[str, Any]) -> dict[str, Any]:
    return {"type": "response.output_item.added", "output_index": index, "item": item}


def done(index: int | None, item: Mapping[str, Any]) -> dict[str, Any]:
    place = {} if index is None else {"output_index": index}
    return {"type": "response.output_item.done", "item": item, **place}


def test_a_stream_that_breaks_off_gives_what_came() -> None:
    opened = call_item("c1") | {"arguments": ""}
    arguments = {"type": "response.function_call_arguments.delta", "output_index": 1}
    reply, deltas = told(
        added(0, message_item("")),
        {"type": "response.output_text.delta", "output_index": 0, "delta": "half"},
        added(1, opened),
        {**arguments, "delta": '{"a":'},
        {**arguments, "delta": "1"},
    )
    assert deltas == [Delta("half")]
    assert (reply.message["content"], reply.finish_reason) == ("half", None)
    assert reply.message["tool_calls"][0]["function"]["arguments"] == '{"a":1'


def test_servers_may_leave_out_deltas_indexes_and_the_last_output() -> None:
    end = {"type": "response.completed", "response": whole()}
    only_done, deltas = told(done(None, message_item("a")), done(None, call_item("c1")), end)
    assert (only_done.message["content"], deltas) == ("a", [Delta("a")])
    assert only_done.finish_reason == "tool_calls"
    only_end, deltas = told(
        {"type": "response.completed", "response": whole(message_item("b"), call_item("c1"))}
    )
    assert (only_end.message["content"], deltas) == ("b", [Delta("b")])
    no_call_id = {key: value for key, value in call_item("c1").items() if key != "call_id"}
    named, _ = told(whole(no_call_id))
    assert named.message["tool_calls"][0]["id"] == "fc_c1"


@pytest.mark.parametrize("is_whole", [True, False])
def test_a_refusal_is_content_filtered_and_its_words_are_the_text(is_whole: bool) -> None:
    refused = message_item("") | {"content": [{"type": "refusal", "refusal": "I cannot."}]}
    spoken = {"type": "response.refusal.delta", "output_index": 0, "delta": "I cannot."}
    end = {"type": "response.completed", "response": whole(refused)}
    parts = [whole(refused)] if is_whole else [added(0, message_item("")), spoken, done(0, refused)]
    reply, deltas = told(*parts, *([] if is_whole else [end]))
    assert deltas == [Delta("I cannot.")]
    assert (reply.message["content"], reply.finish_reason) == ("I cannot.", "content_filter")


def failed_event(code: str, text: str) -> dict[str, Any]:
    answer = whole(status="failed", error={"code": code, "message": text})
    return {"type": "response.failed", "response": answer}


FAULTS: dict[str, tuple[dict[str, Any], type[ProviderError]]] = {
    "failed": (failed_event("server_error", "busy"), OverloadError),
    "limited": (failed_event("rate_limit_exceeded", "slow down"), RateError),
    "overflow": (
        {
            "type": "error",
            "code": "context_length_exceeded",
            "message": "Your input exceeds the context window of this model.",
            "param": "input",
        },
        ContextOverflow,
    ),
    "wrapped": (
        {"type": "error", "error": {"type": "invalid_request_error", "message": "no"}},
        RequestRefused,
    ),
    "no reason": ({"type": "response.failed", "response": {"status": "failed"}}, OverloadError),
}


@pytest.mark.parametrize(("event", "kind"), FAULTS.values(), ids=FAULTS.keys())
def test_an_error_inside_a_stream_is_raised(
    wire: Wire, stub: StubModelServer, event: dict[str, Any], kind: type[ProviderError]
) -> None:
    begun = {"type": "response.created", "response": whole(status="in_progress", error=None)}
    body = b"".join(b"data: " + orjson.dumps(part) + b"\n\n" for part in (begun, event))
    stub.script([Reply(raw_body=body)])
    with pytest.raises(ProviderError) as caught:
        ask(wire(stub.base_url))
    assert type(caught.value) is kind


def test_a_failed_answer_that_comes_whole_is_raised(wire: Wire, stub: StubModelServer) -> None:
    answer = whole(status="failed", error={"code": "server_error", "message": "busy"})
    stub.script([Reply(raw_body=orjson.dumps(answer))])
    with pytest.raises(OverloadError, match="busy"):
        ask(wire(stub.base_url), stream=False)


def test_an_answer_that_is_still_under_way_has_no_finish() -> None:
    reply, _ = told(whole(message_item("a"), status="in_progress"))
    assert reply.finish_reason is None


def test_a_connection_that_stays_open_after_the_end_is_not_waited_for(
    wire: Wire, serve: Serve
) -> None:
    end = orjson.dumps({"type": "response.completed", "response": whole(message_item("a"))})
    server = serve(read_then(STREAM_HEAD, chunk(b"data: " + end + b"\n\n")))
    assert ask(wire(server.base_url)).message["content"] == "a"
    assert server.peer(1).gone.wait(10)


def test_events_without_an_answer_are_none(wire: Wire, stub: StubModelServer) -> None:
    stub.script([Reply(raw_body=b'{"hello": "world"}')])
    with pytest.raises(NetworkError, match="sent an answer that cannot be read"):
        ask(wire(stub.base_url))


# -- compaction items -----------------------------------------------------------------------------
def test_a_compaction_item_is_kept_whole_and_goes_back_first() -> None:
    item = {"type": "compaction", "id": "cmp_1", "encrypted_content": seal("all", "m")}
    reply, _ = told(whole(item, message_item("a")))
    assert holds_compaction(reply.message, ROUTE)
    assert not holds_compaction(reply.message, "m at http://other/v1")
    assert not holds_compaction(reply.message | {"content": "a\n\nb"}, ROUTE)
    assert items_of(reply.message) == [item, {"role": "assistant", "content": "a"}]
    assert items_of(reply.message, replays=False) == [{"role": "assistant", "content": "a"}]
