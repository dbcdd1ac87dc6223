"""The provider in memory."""

from __future__ import annotations

import threading

import pytest

from agent.base.cancel import CancelToken
from agent.base.errors import CallCancelled, RateError
from agent.providers.protocol import (
    CallWatch,
    Delta,
    Limits,
    ModelReply,
    ModelRequest,
    Provider,
    TokenUsage,
)
from agent.testing.builders import call, user
from agent.testing.scripted import Scripted, ScriptedProvider

ASK = ModelRequest([{**user("hello"), "_row_id": 1}])


def _complete(provider: Provider, watch: CallWatch | None = None) -> ModelReply:
    return provider.complete(ASK, limits=Limits(), watch=watch or CallWatch())


def test_replies_come_in_order_and_then_the_last_one() -> None:
    provider = ScriptedProvider(["one", Scripted(text="two", finish="length")], then="more")
    replies = [_complete(provider) for _ in range(4)]
    assert [reply.message["content"] for reply in replies] == ["one", "two", "more", "more"]
    assert [reply.finish_reason for reply in replies] == ["stop", "length", "stop", "stop"]
    assert provider.requests == [ASK] * 4


def test_a_reply_carries_calls_reasoning_and_the_strict_count() -> None:
    made = call("f", {"a": 1}, call_id="t1")
    provider = ScriptedProvider(
        [Scripted(text=None, tool_calls=[made], reasoning="hmm")], prices=(2.0, 10.0)
    )
    usage = TokenUsage(prompt=6, completion=4, reasoning=1)
    assert _complete(provider) == ModelReply(
        message={
            "role": "assistant",
            "content": None,
            "tool_calls": [made],
            "_reasoning": '{"route":"scripted/scripted","fields":{"reasoning":"hmm"}}',
        },
        finish_reason="tool_calls",
        usage=usage,
        model="scripted",
        request_id="scripted-1",
    )
    assert provider.price(usage) == pytest.approx(52 / 1_000_000)
    assert ScriptedProvider().price(usage) is None


def test_an_answer_arrives_in_pieces_that_join_to_it() -> None:
    deltas: list[Delta] = []
    sizes: list[int] = []
    provider = ScriptedProvider([Scripted(text="x" * 30 + "日本", reasoning="why")])
    _complete(provider, CallWatch(on_delta=deltas.append, on_bytes=sizes.append))
    assert "".join(delta.text for delta in deltas) == "x" * 30 + "日本"
    assert "".join(delta.reasoning for delta in deltas) == "why"
    assert sum(sizes) == 30 + 6 + 3


def test_an_exception_in_the_script_is_raised() -> None:
    error = RateError("slow down", retry_after_s=3)
    provider = ScriptedProvider([error, "fine"])
    with pytest.raises(RateError) as caught:
        _complete(provider)
    assert caught.value is error
    assert _complete(provider).message["content"] == "fine"


def test_a_script_can_be_a_function_of_the_request() -> None:
    provider = ScriptedProvider(lambda request: str(request.messages[-1]["content"]).upper())
    assert _complete(provider).message["content"] == "HELLO"


def test_a_list_that_no_strict_provider_takes_is_an_error_of_the_test() -> None:
    request = ModelRequest([])
    with pytest.raises(ValueError, match="no strict provider takes this: messages is empty"):
        ScriptedProvider().complete(request, limits=Limits(), watch=CallWatch())


def test_a_held_reply_waits_until_it_is_released() -> None:
    hold = threading.Event()
    provider = ScriptedProvider([Scripted(text="late", hold=hold)])
    replies: list[ModelReply] = []
    caller = threading.Thread(target=lambda: replies.append(_complete(provider)))
    caller.start()
    provider.wait_for_requests(1)
    assert replies == []
    hold.set()
    caller.join(10)
    assert replies[0].message["content"] == "late"


def test_a_cancel_ends_a_held_reply() -> None:
    token = CancelToken()
    provider = ScriptedProvider([Scripted(hold=threading.Event())])
    outcomes: list[str] = []

    def ask() -> None:
        try:
            _complete(provider, CallWatch(cancel=token))
        except CallCancelled as error:
            outcomes.append(str(error))

    caller = threading.Thread(target=ask)
    caller.start()
    provider.wait_for_requests(1)
    token.cancel()
    caller.join(10)
    assert outcomes == ["the call to 'scripted/scripted' was cancelled"]


def test_a_cancel_between_two_pieces_stops_the_stream() -> None:
    token = CancelToken()
    deltas: list[Delta] = []

    def hear(delta: Delta) -> None:
        deltas.append(delta)
        token.cancel()

    with pytest.raises(CallCancelled):
        _complete(ScriptedProvider(["x" * 100]), CallWatch(cancel=token, on_delta=hear))
    assert len(deltas) == 1


def test_it_remembers_that_it_was_closed_and_names_its_route() -> None:
    provider = ScriptedProvider(model="m")
    assert (provider.closed, provider.route) == (False, "scripted/m")
    provider.close()
    assert provider.closed


def test_waiting_for_requests_that_do_not_come_names_the_counts() -> None:
    with pytest.raises(TimeoutError, match=r"^0 of 1 requests were made within 0\.01 s$"):
        ScriptedProvider().wait_for_requests(1, timeout_s=0.01)
