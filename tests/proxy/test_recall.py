"""With `proxy.recall` on, the model reads what was condensed, and the client never notices."""

from __future__ import annotations

import orjson
import pytest

from agent.base.messages import text_of
from agent.base.settings import ProxySettings, Settings
from agent.testing.builders import call
from agent.testing.stub_reply import RecordedRequest, Reply
from agent.testing.stub_server import StubModelServer
from agent.testing.summaries import GOOD_SUMMARY
from agent.tools.recall import RECALL
from hermes_state import SessionDB
from tests.proxy.conftest import MakeCaller
from tests.proxy.serving import Caller
from tests.proxy.talk import bodies_of_client, is_summary
from tests.proxy.test_pressure import full, refusals

LOOK = call("recall", {"rows": "7"}, call_id="r1")
OWN = {"type": "function", "function": {"name": "own", "parameters": {"type": "object"}}}
OWN_CALL = call("own", {"a": 1}, call_id="o1")


@pytest.fixture
def settings() -> Settings:
    return Settings(proxy=ProxySettings(context_length=8_192, recall=True))


def plays(stub: StubModelServer, *replies: Reply) -> None:
    """Let the stub answer the client with these replies, in order, the last one for ever."""
    left = list(replies)

    def script(request: RecordedRequest) -> Reply:
        if is_summary(request):
            return Reply(text=GOOD_SUMMARY)
        return left.pop(0) if len(left) > 1 else left[0]

    stub.script(script)


def names(body: dict) -> list[str]:
    return [tool["function"]["name"] for tool in body.get("tools", [])]


def content_of(response_text: str) -> str:
    """Return the text that a client puts together from a stream."""
    parts = [orjson.loads(line[6:]) for line in response_text.splitlines() if line[6:7] == "{"]
    deltas = [part["choices"][0]["delta"] for part in parts if part["choices"]]
    assert not any(delta.get("tool_calls") for delta in deltas)
    return "".join(delta.get("content") or "" for delta in deltas)


def test_nothing_is_offered_while_nothing_was_condensed(
    caller: MakeCaller, stub: StubModelServer
) -> None:
    caller().say("hi")
    assert "tools" not in stub.requests[0].body


@pytest.mark.parametrize("stream", [False, True])
def test_a_recall_is_answered_inside(
    caller: MakeCaller, stub: StubModelServer, store: SessionDB, stream: bool
) -> None:
    plays(stub, Reply(text=None, tool_calls=[LOOK]), Reply(text="note 3 it is"))
    one = caller()
    full(one)
    response = one.post(stream=stream)
    assert response.status_code == 200
    shown = (
        content_of(response.text) if stream else response.json()["choices"][0]["message"]["content"]
    )
    assert (shown, refusals(stub)) == ("note 3 it is", [])
    first, second = bodies_of_client(stub.requests)
    assert (names(first), names(second)) == (["recall"], ["recall"])
    assert second["tools"] == [RECALL.schema()]
    assert second["messages"][:-2] == first["messages"]
    assert second["messages"][-2]["tool_calls"] == [LOOK]
    assert "note 3: alpha" in text_of(second["messages"][-1]["content"])
    assert 'recall(rows="1-' in str(first["messages"])
    [session] = store.sessions()
    newest = store.view(session.id).messages[-1]
    assert (newest["role"], newest["content"], "tool_calls" in newest) == (
        "assistant",
        "note 3 it is",
        False,
    )


def test_after_three_rounds_the_tool_is_not_offered_any_more(
    caller: MakeCaller, stub: StubModelServer
) -> None:
    again = Reply(text=None, tool_calls=[LOOK])
    plays(stub, again, again, again, Reply(text="enough"))
    one = caller()
    full(one)
    assert one.go_on()["content"] == "enough"
    assert [names(body) for body in bodies_of_client(stub.requests)] == [["recall"]] * 3 + [[]]


def test_text_before_a_recall_reaches_the_client_and_the_store(
    caller: MakeCaller, stub: StubModelServer, store: SessionDB
) -> None:
    plays(stub, Reply(text="Let me see. ", tool_calls=[LOOK]), Reply(text="It is note 3."))
    one = caller()
    full(one)
    said = content_of(one.post(stream=True).text)
    assert said == "Let me see. It is note 3."
    one.messages.append({"role": "assistant", "content": said})
    plays(stub, Reply(text="fine"))
    one.say("thanks")
    [session] = store.sessions()
    assert session.message_count == len(one.messages)


@pytest.mark.parametrize("stream", [False, True])
def test_calls_of_the_clients_tools_go_to_the_client(
    caller: MakeCaller, stub: StubModelServer, stream: bool
) -> None:
    plays(stub, Reply(text=None, tool_calls=[OWN_CALL]))
    one = caller(tools=[OWN])
    full(one)
    response = one.post(stream=stream)
    assert ('"own"' in response.text, '"o1"' in response.text) == (True, True)
    [body] = bodies_of_client(stub.requests)
    assert names(body) == ["own", "recall"]


def test_a_recall_beside_a_call_of_the_client_is_answered_first(
    caller: MakeCaller, stub: StubModelServer
) -> None:
    plays(stub, Reply(text=None, tool_calls=[LOOK, OWN_CALL]), Reply(text="done"))
    one = caller(tools=[OWN])
    full(one)
    assert one.go_on()["content"] == "done"
    results = bodies_of_client(stub.requests)[1]["messages"][-2:]
    assert [result["tool_call_id"] for result in results] == ["r1", "o1"]
    assert results[1]["content"].startswith("[not run")
    assert refusals(stub) == []


def test_a_call_that_makes_no_sense_is_told_to_the_model(
    caller: MakeCaller, stub: StubModelServer
) -> None:
    wrong = call("recall", {"rows": "from the start"}, call_id="r1")
    plays(stub, Reply(text=None, tool_calls=[wrong]), Reply(text="oh"))
    one = caller()
    full(one)
    one.go_on()
    result = bodies_of_client(stub.requests)[1]["messages"][-1]["content"]
    assert result.startswith("error: rows 'from the start' is no range")


def test_a_client_with_a_tool_of_that_name_keeps_it(
    caller: MakeCaller, stub: StubModelServer
) -> None:
    theirs = {"type": "function", "function": {"name": "recall", "parameters": {"type": "object"}}}
    plays(stub, Reply(text=None, tool_calls=[LOOK]))
    one: Caller = caller(tools=[theirs])
    full(one)
    assert one.go_on()["tool_calls"] == [LOOK]
    [body] = bodies_of_client(stub.requests)
    assert body["tools"] == [theirs]


def test_an_event_of_odd_shape_goes_through_while_recall_is_offered(
    caller: MakeCaller, stub: StubModelServer
) -> None:
    odd = b'data: {"choices": [null]}\n\ndata: {"choices": [{"delta": null}]}\n\n'
    end = b'data: {"choices": [{"delta": {"content": "yes"}, "finish_reason": "stop"}]}\n\n'
    body = odd + end + b"data: [DONE]\n\n"
    plays(stub, Reply(raw_body=body, headers={"content-type": "text/event-stream"}))
    one = caller()
    full(one)
    response = one.post(stream=True)
    assert response.status_code == 200
    assert response.content.endswith(body)
