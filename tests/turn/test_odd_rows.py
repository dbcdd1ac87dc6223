"""Rows that programs hand over in odd forms never make a provider refuse the conversation."""

from __future__ import annotations

from typing import Any

import pytest

from agent.base.messages import Message
from agent.testing.builders import assistant, image, result, user
from agent.testing.stub_server import StubModelServer
from agent.turn.request import LOST_RESULT, ShapeLimits, shape
from hermes_state import SessionDB
from run_agent import AIAgent
from tests.providers.wires import WIRES

FUNCTION = {"name": "f", "arguments": "{}"}


def made(call_id: Any = "a", **fields: Any) -> dict[str, Any]:
    return {"id": call_id, "type": "function", "function": FUNCTION, **fields}


def answered(call_id: Any, content: Any = "r") -> Message:
    return {"role": "tool", "tool_call_id": call_id, "content": content}


NO_ID = {"type": "function", "function": FUNCTION}
ROWS: dict[str, list[Message]] = {
    "a call without an id": [assistant("t", NO_ID)],
    "two calls without ids": [assistant("t", NO_ID, NO_ID)],
    "an empty id": [assistant("t", made("")), answered("")],
    "an id that is null": [assistant("t", made(None)), answered(None)],
    "an id that is a number": [assistant("t", made(7)), answered(7)],
    "a very long id": [assistant("t", made("a" * 200)), answered("a" * 200)],
    "two calls with one id": [assistant("t", made(), made()), answered("a"), answered("a")],
    "a call without a type": [assistant("t", {"id": "a", "function": FUNCTION}), answered("a")],
    "a call without a function": [assistant("t", {"id": "a", "type": "function"})],
    "a call without a name": [assistant("t", made(function={"name": None, "arguments": "{}"}))],
    "a call with an empty name": [assistant("t", made(function={"name": "", "arguments": "{}"}))],
    "arguments that are an object": [assistant("t", made(function={"name": "f", "arguments": {}}))],
    "arguments that are a list": [assistant("t", made(function={"name": "f", "arguments": "[]"}))],
    "a call of another type": [assistant("t", {"id": "a", "type": "custom"}), answered("a")],
    "a result of no call": [answered("zz")],
    "a result without an id": [{"role": "tool", "content": "r"}],
    "a result in parts": [
        assistant(None, made()),
        answered("a", ["s", {"type": "text", "text": "x"}]),
    ],
    "a result that is null": [assistant(None, made()), answered("a", None)],
    "a content that is an object": [{"role": "user", "content": {"type": "text", "text": "x"}}],
    "a content that is a number": [{"role": "user", "content": 5}],
    "a system message in the middle": [{"role": "system", "content": "be kind"}],
    "a developer's message": [{"role": "developer", "content": "be kind"}],
    "another role": [{"role": "function", "name": "f", "content": "x"}],
    "an answer in parts": [
        {
            "role": "assistant",
            "content": [{"type": "text", "text": "a"}, {"type": "refusal", "refusal": "no"}],
        }
    ],
    "an answer with an image": [{"role": "assistant", "content": ["a", image()]}],
    "no parts": [user([]), {"role": "assistant", "content": []}],
    "no calls": [{"role": "assistant", "content": "x", "tool_calls": []}],
    "calls that are null": [{"role": "assistant", "content": "x", "tool_calls": None}],
}


@pytest.mark.parametrize("case", WIRES.values(), ids=WIRES.keys())
def test_no_row_makes_a_request_that_is_refused(
    stub: StubModelServer, store: SessionDB, case: Any
) -> None:
    for name, rows in ROWS.items():
        agent = AIAgent(
            base_url=stub.base_url,
            model="m",
            api_mode=case.mode,
            session_db=store,
            session_id=name,
            skip_memory=True,
        )
        agent.submit("begin")
        store.append(name, rows)
        assert (name, agent.chat("go on")) == (name, "ok")
        assert (name, agent.chat("and again")) == (name, "ok")
        agent.close()
    assert [request.refusal for request in stub.requests if request.refusal] == []


def test_calls_that_share_an_id_get_ids_and_results_of_their_own() -> None:
    rows = [user("go"), assistant(None, made(), made(), made()), answered("a", "1")]
    view = [row | {"_seq": seq} for seq, row in enumerate([*rows, answered("a", "2")], 1)]
    shaped = shape(view, ShapeLimits(10_000, 10_000)).messages
    assert [each["id"] for each in shaped[1]["tool_calls"]] == ["call_2_0", "call_2_1", "call_2_2"]
    told = [(row["tool_call_id"], row["content"]) for row in shaped[2:]]
    assert told == [("call_2_0", "1"), ("call_2_1", "2"), ("call_2_2", LOST_RESULT)]


def test_calls_with_ids_of_their_own_go_as_they_are() -> None:
    one, two = made("x"), made("y")
    rows = [user("go"), assistant(None, one, two), result(two, "2"), result(one, "1")]
    shaped = shape(rows, ShapeLimits(10_000, 10_000)).messages
    assert [shaped[1], *shaped[2:]] == [rows[1], rows[3], rows[2]]
    assert shaped[1] is rows[1]
