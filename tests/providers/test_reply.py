"""How an answer is put together from what servers really send."""

from __future__ import annotations

from typing import Any

import orjson
import pytest

from agent.providers.protocol import Delta, TokenUsage
from agent.providers.reasoning import replayed
from agent.providers.reply import ReplyPieces

ROUTE = "m at http://here/v1"


def put_together(*parts: dict[str, Any]) -> ReplyPieces:
    pieces = ReplyPieces("m", ROUTE)
    for part in parts:
        pieces.add(part)
    return pieces


def delta(finish: str | None = None, **said: Any) -> dict[str, Any]:
    return {"choices": [{"index": 0, "delta": said, "finish_reason": finish}]}


def piece(
    index: int | None = None, call_id: str = "", name: str = "", arguments: Any = ""
) -> dict[str, Any]:
    function = {"name": name, "arguments": arguments}
    call: dict[str, Any] = {"function": {key: value for key, value in function.items() if value}}
    if index is not None:
        call["index"] = index
    if call_id:
        call["id"] = call_id
    return call


def call(call_id: str, name: str, arguments: str) -> dict[str, Any]:
    return {
        "id": call_id,
        "type": "function",
        "function": {"name": name, "arguments": arguments},
    }


A, B = call("a", "find", '{"x":1}'), call("b", "read", '{"y":2}')

CALLS = {
    "in pieces by index": (
        [
            [piece(0, "a", "find")],
            [piece(0, arguments='{"x"')],
            [piece(0, arguments=":1}")],
            [piece(1, "b", "read", '{"y":2}')],
        ],
        [A, B],
    ),
    "interleaved": (
        [
            [piece(0, "a", "find"), piece(1, "b", "read")],
            [piece(1, arguments='{"y":')],
            [piece(0, arguments='{"x":1}')],
            [piece(1, arguments="2}")],
        ],
        [A, B],
    ),
    "id and name repeated": (
        [[piece(0, "a", "find", '{"x"')], [piece(0, "a", "find", ":1}")]],
        [A],
    ),
    "no index, ids": (
        [[piece(None, "a", "find", '{"x":1}')], [piece(None, "b", "read", '{"y":2}')]],
        [A, B],
    ),
    "no index, pieces go to the last": (
        [[piece(None, "a", "find")], [piece(None, arguments='{"x":1}')]],
        [A],
    ),
    "no index, id repeated": (
        [[piece(None, "a", "find", '{"x"')], [piece(None, "a", arguments=":1}")]],
        [A],
    ),
    "every call at index 0": (
        [[piece(0, "a", "find", '{"x":1}')], [piece(0, "b", "read", '{"y":2}')]],
        [A, B],
    ),
    "a whole call sent twice is one": (
        [[piece(0, "a", "find", '{"x":1}')], [piece(0, "a", "find", '{"x":1}')]],
        [A],
    ),
    "name in pieces": ([[piece(0, "a", "fi")], [piece(0, name="nd", arguments='{"x":1}')]], [A]),
    "arguments as an object": ([[piece(0, "a", "find", {"x": 1})]], [A]),
    "no arguments": ([[piece(0, "a", "find")]], [call("a", "find", "{}")]),
    "junk is left out": ([[piece(0, "a", "find", '{"x":1}')], [None, 3]], [A]),
}


@pytest.mark.parametrize(("chunks", "calls"), CALLS.values(), ids=CALLS.keys())
def test_tool_calls_are_put_together(
    chunks: list[list[dict[str, Any]]], calls: list[dict[str, Any]]
) -> None:
    parts = [delta(tool_calls=chunk) for chunk in chunks]
    reply = put_together(*parts, delta("stop")).whole()
    assert reply.message == {"role": "assistant", "content": "", "tool_calls": calls}
    assert reply.finish_reason == "tool_calls"


REPEATED = [call("x", "find", '{"x":1}'), call("x", "read", '{"y":2}')]
SAME_ID = {
    "none, at index 0": [delta(tool_calls=[one | {"index": 0, "id": ""}]) for one in REPEATED],
    "none, without index": [delta(tool_calls=[one | {"id": ""} for one in REPEATED])],
    "by index": [delta(tool_calls=[{"index": 0} | REPEATED[0], {"index": 1} | REPEATED[1]])],
    "without index": [delta(tool_calls=[one]) for one in REPEATED],
    "in a whole answer": [{"choices": [{"message": {"tool_calls": REPEATED}}]}],
    "in a whole answer, none": [
        {"choices": [{"message": {"tool_calls": [one | {"id": ""} for one in REPEATED]}}]}
    ],
}


@pytest.mark.parametrize("parts", SAME_ID.values(), ids=SAME_ID.keys())
def test_two_calls_never_share_an_id(parts: list[dict[str, Any]]) -> None:
    made = put_together(*parts).whole().message["tool_calls"]
    assert len({one["id"] for one in made}) == 2
    assert [one["function"] for one in made] == [one["function"] for one in REPEATED]


def test_calls_without_ids_get_their_own() -> None:
    parts = delta(tool_calls=[piece(0, name="f"), piece(1, name="f")])
    first, second = put_together(parts).whole().message["tool_calls"]
    assert first["id"].startswith("call_")
    assert first["id"] != second["id"]


FINISHES = {
    "stop": "stop",
    "eos": "stop",
    "length": "length",
    "MAX_TOKENS": "length",
    "content_filter": "content_filter",
    "SAFETY": "content_filter",
    "tool_calls": "stop",
}


@pytest.mark.parametrize(("said", "meant"), FINISHES.items())
def test_words_for_a_finish_are_understood(said: str, meant: str) -> None:
    """Tool calls that are announced and do not come are an ordinary stop."""
    assert put_together(delta(said, content="x")).whole().finish_reason == meant


def test_a_stream_without_a_finish_has_none() -> None:
    reply = put_together(delta(content="half")).whole()
    assert (reply.message["content"], reply.finish_reason) == ("half", None)


@pytest.mark.parametrize(
    "part",
    [{}, {"choices": []}, {"choices": None}, {"choices": [None]}, delta(content=None), delta()],
)
def test_no_choices_and_no_content_are_an_empty_answer(part: dict[str, Any]) -> None:
    reply = put_together(part).whole()
    assert reply.message == {"role": "assistant", "content": ""}
    assert reply.finish_reason is None


def test_a_whole_answer_is_read_like_a_stream() -> None:
    reply = put_together(
        {
            "id": "r1",
            "model": "m-2026",
            "choices": [
                {"message": {"content": "hi", "tool_calls": [A]}, "finish_reason": "tool_calls"}
            ],
            "usage": {"prompt_tokens": 5, "completion_tokens": 2},
        }
    ).whole()
    assert reply.message == {"role": "assistant", "content": "hi", "tool_calls": [A]}
    assert (reply.model, reply.request_id) == ("m-2026", "r1")
    assert reply.usage == TokenUsage(prompt=5, completion=2)


def test_text_parts_are_text() -> None:
    parts = [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]
    assert put_together(delta(content=parts)).whole().message["content"] == "ab"


def test_a_refusal_is_shown_and_counts_as_filtered() -> None:
    reply = put_together(delta(refusal="I will "), delta("stop", refusal="not")).whole()
    assert (reply.message["content"], reply.finish_reason) == ("I will not", "content_filter")


def test_halves_of_a_surrogate_pair_are_joined() -> None:
    reply = put_together(delta(content="a\ud83d"), delta(content="\ude00b\ud800")).whole()
    assert reply.message["content"] == "a\U0001f600b\ufffd"


def test_the_last_usage_counts() -> None:
    parts = [{"usage": {"prompt_tokens": 1, "completion_tokens": n}} for n in (1, 2)]
    assert put_together(*parts, {"usage": None}).whole().usage == TokenUsage(1, 2)


def test_counts_that_say_nothing_do_not_replace_those_that_do() -> None:
    said = {"usage": {"prompt_tokens": 7, "completion_tokens": 2}}
    zero = {"usage": {"prompt_tokens": 0, "completion_tokens": 0}}
    assert put_together(said, zero).whole().usage == TokenUsage(7, 2)


def test_timings_count_where_no_usage_was_sent() -> None:
    timings = {"timings": {"cache_n": 90, "prompt_n": 10, "predicted_n": 4}}
    assert put_together(delta("stop", content="a") | timings).whole().usage == TokenUsage(
        100, 4, cached=90
    )
    usage = {"usage": {"prompt_tokens": 101, "completion_tokens": 4}}
    assert put_together(usage, timings).whole().usage == TokenUsage(101, 4)


def test_deltas_carry_what_is_new() -> None:
    pieces = ReplyPieces("m", ROUTE)
    said = [delta(role="assistant"), delta(reasoning="hm"), delta(content="a"), delta("stop")]
    assert [pieces.add(part) for part in said] == [None, Delta(reasoning="hm"), Delta("a"), None]


# -- reasoning ----------------------------------------------------------------------------------
DETAILS = [
    {"type": "reasoning.text", "index": 0, "text": "Let me", "format": "x"},
    {"type": "reasoning.text", "index": 0, "text": " see \u2028", "signature": "sig=="},
    {"type": "reasoning.encrypted", "index": 1, "data": "AAA="},
]
JOINED = [
    {
        "type": "reasoning.text",
        "index": 0,
        "text": "Let me see \u2028",
        "format": "x",
        "signature": "sig==",
    },
    {"type": "reasoning.encrypted", "index": 1, "data": "AAA="},
]


def test_reasoning_is_kept_and_given_back_to_its_own_route_only() -> None:
    parts = [delta(reasoning_content=text) for text in ("think", "ing\u2028")]
    kept = put_together(*parts, delta("stop", content="x")).whole().message["_reasoning"]
    assert replayed(kept, ROUTE) == {"reasoning_content": "thinking\u2028"}
    assert replayed(kept, "m at http://elsewhere/v1") == {}
    assert replayed(None, ROUTE) == {}


def test_reasoning_details_are_joined_and_sent_back_alone() -> None:
    parts = [delta(reasoning="Let me", reasoning_details=[detail]) for detail in DETAILS]
    reply = put_together(*parts, delta("stop", content="x")).whole()
    assert replayed(reply.message["_reasoning"], ROUTE) == {"reasoning_details": JOINED}
    assert orjson.loads(reply.message["_reasoning"])["fields"]["reasoning"] == "Let me" * 3


def test_reasoning_under_two_names_is_shown_once() -> None:
    pieces = ReplyPieces("m", ROUTE)
    assert pieces.add(delta(reasoning="a", reasoning_content="a")) == Delta(reasoning="a")
