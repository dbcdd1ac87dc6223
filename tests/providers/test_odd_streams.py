"""Streams that are odd but legal, on each wire: what arrives is the same answer."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import orjson
import pytest

from agent.base.errors import ProviderError
from agent.providers.protocol import CallWatch, Cleared, Delta, Limits, ModelReply, ModelRequest
from agent.testing.builders import user
from agent.testing.stub_reply import Reply
from agent.testing.stub_server import StubModelServer
from tests.providers.conftest import Wire, openings
from tests.providers.wires import WIRES, WireCase

Event = dict[str, Any]
ARGUMENTS = '{"path":"a","lines":[1,2]}'
LIMITS = Limits(connect_s=5, first_byte_s=10, idle_s=10, total_s=20, retries=0)


@pytest.fixture
def wire(request: pytest.FixtureRequest) -> Iterator[Wire]:
    case: WireCase = request.param
    yield from openings(case.opens)


def body(*events: Event | bytes) -> bytes:
    """Return a stream; bytes stand in it as they are."""
    return b"".join(
        event if isinstance(event, bytes) else b"data: " + orjson.dumps(event) + b"\n\n"
        for event in events
    )


def read(provider: Any, stub: StubModelServer, raw: bytes) -> tuple[ModelReply, str]:
    """Return the answer that a wire reads of a stream, and the text that was heard meanwhile."""
    stub.script([Reply(raw_body=raw, headers={"content-type": "text/event-stream"})])
    heard: list[Delta] = []
    request = ModelRequest(messages=[user("hi")], max_tokens=50)
    watch = CallWatch(on_delta=heard.append)
    reply = provider.complete(request, limits=LIMITS, watch=watch)
    return reply, "".join(delta.text for delta in heard)


def told(reply: ModelReply) -> tuple[str, list[tuple[str, Any]], str | None]:
    """Return text, calls (name, arguments) and finish of an answer."""
    made = [call["function"] for call in reply.message.get("tool_calls", ())]
    calls = [(each["name"], orjson.loads(each["arguments"])) for each in made]
    return reply.message["content"], calls, reply.finish_reason


# -- the three wires' events ----------------------------------------------------------------------
def chunk(finish: str | None = None, **delta: Any) -> Event:
    return {"id": "c", "choices": [{"index": 0, "delta": delta, "finish_reason": finish}]}


def piece(index: int, written: str, name: str = "", call_id: str = "") -> Event:
    function = {"arguments": written} | ({"name": name} if name else {})
    call = {"index": index, "function": function} | ({"id": call_id} if call_id else {})
    return chunk(tool_calls=[call])


def response(kind: str, **fields: Any) -> Event:
    return {"type": f"response.{kind}", **fields}


def item(kind: str, **fields: Any) -> Event:
    return {"type": kind, "status": "completed", **fields}


def completed(*output: Event, **fields: Any) -> Event:
    answer = {"id": "r", "object": "response", "status": "completed", "output": list(output)}
    return response("completed", response=answer | fields)


def spoken(said: str) -> Event:
    return item("message", role="assistant", content=[{"type": "output_text", "text": said}])


def called(name: str, written: str = ARGUMENTS) -> Event:
    return item("function_call", id=f"i{name}", call_id=name, name=name, arguments=written)


def start(**fields: Any) -> Event:
    return {"type": "message_start", "message": {"id": "m", "content": [], **fields}}


def block(index: int, kind: str, **fields: Any) -> Event:
    opened = {"type": kind, **fields}
    return {"type": "content_block_start", "index": index, "content_block": opened}


def delta(index: int, kind: str, **fields: Any) -> Event:
    return {"type": "content_block_delta", "index": index, "delta": {"type": kind, **fields}}


def stop(reason: str = "end_turn", **fields: Any) -> tuple[Event, Event]:
    return (
        {"type": "message_delta", "delta": {"stop_reason": reason}, **fields},
        {"type": "message_stop"},
    )


CALL = ("f", {"path": "a", "lines": [1, 2]})
OTHER = ("g", {"path": "a", "lines": [1, 2]})
ONE_BY_ONE = list(ARGUMENTS)
NOISE = b": a comment\n\nevent: heartbeat\ndata:\n\nid: 7\nretry: 10\n\n\r\n\r\n"

Case = tuple[str, bytes, tuple[str, list[Any], str | None]]
CASES: dict[str, Case] = {
    "chat, empty deltas and noise": (
        "chat completions",
        body(
            NOISE,
            {"id": "c", "choices": []},
            chunk(role="assistant", content=""),
            chunk(content="one"),
            chunk(),
            chunk(content=None),
            {"id": "c", "choices": [{"index": 0, "delta": None}]},
            {"type": "unheard-of", "x": 1},
            NOISE,
            chunk(content=" two", refusal=None, tool_calls=None),
            chunk("stop"),
            {"id": "c", "choices": [], "usage": {"prompt_tokens": 3, "completion_tokens": 2}},
            b"data: [DONE]\n\n",
            chunk(content="too late"),
        ),
        ("one two", [], "stop"),
    ),
    "chat, arguments by the character": (
        "chat completions",
        body(
            piece(0, "", "f", "c1"), *(piece(0, char) for char in ONE_BY_ONE), chunk("tool_calls")
        ),
        ("", [CALL], "tool_calls"),
    ),
    "chat, parallel calls interleaved": (
        "chat completions",
        body(
            piece(0, "", "f", "c1"),
            piece(1, "", "g", "c2"),
            *(piece(index, char) for char in ONE_BY_ONE for index in (1, 0)),
            chunk("tool_calls"),
        ),
        ("", [CALL, OTHER], "tool_calls"),
    ),
    "chat, text after calls": (
        "chat completions",
        body(piece(0, ARGUMENTS, "f", "c1"), chunk(content="done"), chunk("stop")),
        ("done", [CALL], "tool_calls"),
    ),
    "chat, a finish beside the last text": (
        "chat completions",
        body(chunk("stop", content="all")),
        ("all", [], "stop"),
    ),
    "chat, lines that end in carriage returns": (
        "chat completions",
        body(chunk(content="all"), chunk("stop")).replace(b"\n", b"\r\n"),
        ("all", [], "stop"),
    ),
    "responses, deltas without an index": (
        "responses",
        body(
            NOISE,
            response("created", response={"status": "in_progress"}),
            response("output_item.added", output_index=0, item=item("message", id="i")),
            response("output_text.delta", item_id="i", delta=""),
            response("output_text.delta", item_id="i", delta="one"),
            response("unheard.of", delta="x"),
            response("output_text.delta", item_id="i", delta=" two"),
            response("output_item.done", output_index=0, item=spoken("one two") | {"id": "i"}),
            completed(spoken("one two")),
        ),
        ("one two", [], "stop"),
    ),
    "responses, items that are never done": (
        "responses",
        body(
            response("output_item.added", output_index=0, item=item("message", id="i")),
            response("output_item.added", output_index=1, item=called("f", "")),
            completed(spoken("all"), called("f")),
        ),
        ("all", [CALL], "tool_calls"),
    ),
    "responses, an item that only the end tells": (
        "responses",
        body(
            response("output_item.done", output_index=0, item=called("f")),
            completed(called("f"), spoken("after"), called("g")),
        ),
        ("after", [CALL, OTHER], "tool_calls"),
    ),
    "responses, parallel calls interleaved": (
        "responses",
        body(
            response("output_item.added", output_index=0, item=called("f", "")),
            response("output_item.added", output_index=1, item=called("g", "")),
            *(
                response("function_call_arguments.delta", output_index=index, delta=char)
                for char in ONE_BY_ONE
                for index in (1, 0)
            ),
            completed(),
        ),
        ("", [CALL, OTHER], "tool_calls"),
    ),
    "responses, two messages": (
        "responses",
        body(
            response("output_item.done", output_index=0, item=spoken("one ")),
            response("output_item.done", output_index=1, item=spoken("two")),
            completed(),
        ),
        ("one two", [], "stop"),
    ),
    "messages, two texts and noise": (
        "anthropic messages",
        body(
            NOISE,
            start(),
            {"type": "ping"},
            block(0, "text", text="one"),
            delta(0, "text_delta", text=""),
            delta(0, "unheard_of_delta", text="x"),
            delta(0, "citations_delta", citation={}),
            {"type": "content_block_stop", "index": 0},
            block(1, "unheard_of", text="x"),
            {"type": "unheard_of"},
            block(2, "text"),
            delta(2, "text_delta", text=" two"),
            *stop(),
        ),
        ("one two", [], "stop"),
    ),
    "messages, calls interleaved, and text after them": (
        "anthropic messages",
        body(
            start(),
            block(0, "tool_use", id="c1", name="f", input={}),
            block(1, "tool_use", id="c2", name="g", input={}),
            *(
                delta(index, "input_json_delta", partial_json=char)
                for char in ["", *ONE_BY_ONE]
                for index in (1, 0)
            ),
            block(2, "text", text=""),
            delta(2, "text_delta", text="done"),
            *stop("tool_use"),
        ),
        ("done", [CALL, OTHER], "tool_calls"),
    ),
    "messages, arguments that came at once": (
        "anthropic messages",
        body(start(), block(0, "tool_use", id="c", name="f", input=CALL[1]), *stop("tool_use")),
        ("", [CALL], "tool_calls"),
    ),
    "chat, a call without a name": (
        "chat completions",
        body(chunk(content="all"), piece(0, ARGUMENTS, "", "c1"), chunk("tool_calls")),
        ("all", [], "stop"),
    ),
    "responses, a call without a name": (
        "responses",
        body(
            response("output_item.done", output_index=0, item=spoken("all")),
            response("output_item.done", output_index=1, item=called("")),
            completed(),
        ),
        ("all", [], "stop"),
    ),
    "messages, a call without a name": (
        "anthropic messages",
        body(
            start(),
            block(0, "text", text="all"),
            block(1, "tool_use", id="c", name="", input={}),
            *stop("tool_use"),
        ),
        ("all", [], "stop"),
    ),
    "messages, a text whose block was not opened": (
        "anthropic messages",
        body(start(), delta(0, "text_delta", text="all"), *stop()),
        ("all", [], "stop"),
    ),
}


@pytest.mark.parametrize(
    ("wire", "raw", "expected"),
    [(WIRES[name], raw, expected) for name, raw, expected in CASES.values()],
    ids=CASES.keys(),
    indirect=["wire"],
)
def test_an_odd_stream_is_the_answer_that_it_means(
    wire: Wire, stub: StubModelServer, raw: bytes, expected: tuple[str, list[Any], str | None]
) -> None:
    reply, heard = read(wire(stub.base_url), stub, raw)
    assert told(reply) == expected
    assert heard == expected[0]


HALVES: dict[str, list[Event]] = {
    "chat completions": [chunk(content="half")],
    "responses": [
        response("output_item.added", output_index=0, item=item("message")),
        response("output_text.delta", output_index=0, delta="half"),
    ],
    "anthropic messages": [start(), block(0, "text", text=""), delta(0, "text_delta", text="half")],
}
FAULTS: dict[str, dict[str, Event]] = {
    "an object": {name: {"error": {"message": "it broke"}} for name in WIRES},
    "a text": {name: {"error": "it broke"} for name in WIRES},
    "as the wire has it": {
        "chat completions": {
            "choices": [{"index": 0, "delta": {}, "error": {"message": "it broke", "code": 500}}]
        },
        "responses": response("failed", response={"error": {"code": "x", "message": "it broke"}}),
        "anthropic messages": {"type": "error", "error": {"type": "x", "message": "it broke"}},
    },
}


@pytest.mark.parametrize("fault", FAULTS.values(), ids=FAULTS.keys())
@pytest.mark.parametrize(
    ("wire", "name"), [(case, name) for name, case in WIRES.items()], indirect=["wire"]
)
def test_an_error_after_half_an_answer_is_that_error_and_the_half_was_heard(
    wire: Wire, name: str, stub: StubModelServer, fault: dict[str, Event]
) -> None:
    stub.script(
        [
            Reply(
                raw_body=body(*HALVES[name], fault[name]),
                headers={"content-type": "text/event-stream"},
            )
        ]
    )
    heard: list[Delta] = []
    request = ModelRequest(messages=[user("hi")], max_tokens=50)
    with pytest.raises(ProviderError, match="it broke"):
        wire(stub.base_url).complete(request, limits=LIMITS, watch=CallWatch(on_delta=heard.append))
    assert heard == [Delta("half")]


@pytest.mark.parametrize(
    ("wire", "name"), [(case, name) for name, case in WIRES.items()], indirect=["wire"]
)
def test_a_stream_without_a_finish_is_half_an_answer(
    wire: Wire, name: str, stub: StubModelServer
) -> None:
    reply, _heard = read(wire(stub.base_url), stub, body(*HALVES[name], NOISE))
    assert told(reply) == ("half", [], None)


@pytest.mark.parametrize(
    ("edits", "cleared"),
    [
        ([{"cleared_input_tokens": 9, "cleared_tool_uses": 2}], Cleared(9, 2)),
        ([{"cleared_input_tokens": 9}, {"cleared_thinking_turns": 1}], Cleared(9, 0, 1)),
        ([{"cleared_input_tokens": "9", "cleared_tool_uses": -2}, "x", None], Cleared()),
        ({"cleared_input_tokens": 9}, Cleared()),
        (None, Cleared()),
    ],
)
@pytest.mark.parametrize("wire", [WIRES["anthropic messages"]], indirect=True)
def test_what_the_service_says_it_left_out_is_read_as_far_as_it_can_be_believed(
    wire: Wire, stub: StubModelServer, edits: Any, cleared: Cleared
) -> None:
    ending = stop(context_management={"applied_edits": edits})
    reply, _heard = read(wire(stub.base_url), stub, body(start(), *ending))
    assert reply.cleared == cleared
