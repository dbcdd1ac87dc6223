"""What holds on every wire, against the strict stub: one suite, one fixture (`wires.py`)."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from agent.base.errors import (
    AuthError,
    CallStalled,
    CallTimeout,
    ContextOverflow,
    NetworkError,
    OverloadError,
    ProviderError,
    QuotaError,
    RateError,
    RequestRefused,
)
from agent.base.messages import Message
from agent.providers.http_model import HttpModel
from agent.providers.protocol import (
    CallWatch,
    Delta,
    Limits,
    ModelReply,
    ModelRequest,
    TokenUsage,
)
from agent.testing.builders import assistant, call, image, result, system, user
from agent.testing.stub_reply import Reply
from agent.testing.stub_server import StubModelServer
from tests.providers.conftest import Wire, openings
from tests.providers.test_cancel import assert_cancelled, running
from tests.providers.wires import WIRES, WireCase
from tests.running import Running

LIMITS = Limits(connect_s=5, first_byte_s=10, idle_s=10, total_s=20)
ONCE = replace(LIMITS, retries=0)
HELLO = user("hello")
TOOL = {
    "type": "function",
    "function": {
        "name": "read_file",
        "description": "Reads.",
        "parameters": {"type": "object", "properties": {"path": {"type": "string"}}},
    },
}


@pytest.fixture(params=list(WIRES.values()), ids=list(WIRES))
def case(request: pytest.FixtureRequest) -> WireCase:
    """The wire under test."""
    found: WireCase = request.param
    return found


@pytest.fixture
def wire(case: WireCase) -> Iterator[Wire]:
    yield from openings(case.opens)


def ask(
    provider: HttpModel,
    *messages: Message,
    limits: Limits = LIMITS,
    deltas: list[Delta] | None = None,
    **fields: Any,
) -> ModelReply:
    request = ModelRequest(**{"messages": messages or [HELLO], "max_tokens": 50, **fields})
    on_delta = None if deltas is None else deltas.append
    return provider.complete(request, limits=limits, watch=CallWatch(on_delta=on_delta))


def failed(provider: HttpModel, *messages: Message, **fields: Any) -> ProviderError:
    with pytest.raises(ProviderError) as caught:
        ask(provider, *messages, **fields)
    return caught.value


# -- answers ------------------------------------------------------------------------------------
def test_text_arrives_in_pieces_and_whole(wire: Wire, stub: StubModelServer) -> None:
    stub.script([Reply(text="hello world", chunks=["hello", " wor", "ld"])])
    deltas: list[Delta] = []
    reply = ask(wire(stub.base_url), deltas=deltas)
    assert deltas == [Delta("hello"), Delta(" wor"), Delta("ld")]
    assert reply.message == {"role": "assistant", "content": "hello world"}
    assert (reply.finish_reason, reply.model) == ("stop", "m")
    assert reply.usage is not None
    assert reply.usage.prompt > 0
    assert reply.request_id


@pytest.mark.parametrize("stream", [False, True], ids=["asked for whole", "asked for a stream"])
def test_an_answer_that_comes_whole_is_one_piece(
    wire: Wire, stub: StubModelServer, stream: bool
) -> None:
    stub.script([Reply(text="whole", ignore_stream=True)])
    deltas: list[Delta] = []
    reply = ask(wire(stub.base_url), deltas=deltas, stream=stream)
    assert (reply.message["content"], deltas) == ("whole", [Delta("whole")])
    assert reply.finish_reason == "stop"


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("text", [None, "Let me look."])
def test_tool_calls_are_read_and_go_back_with_their_results(
    wire: Wire, case: WireCase, stub: StubModelServer, text: str | None, stream: bool
) -> None:
    calls = [call("read_file", {"path": path}, call_id=f"t{path}") for path in "ab"]
    stub.script([Reply(text=text, tool_calls=calls)])
    provider = wire(stub.base_url)
    reply = ask(provider, tools=[TOOL], stream=stream)
    assert reply.message == {"role": "assistant", "content": text or "", "tool_calls": calls}
    assert reply.finish_reason == "tool_calls"
    results = [result(calls[0], "one"), result(calls[1], "")]
    assert ask(provider, HELLO, reply.message, *results).message["content"] == "ok"
    sent = case.sent(stub.requests[1].body)
    said = [("assistant", text)] if text else []
    assert sent[: 3 + len(said)] == [
        ("user", "hello"),
        *said,
        ("call", 'read_file{"path": "a"}'),
        ("call", 'read_file{"path": "b"}'),
    ]
    assert ("tool", "one") in sent


@pytest.mark.parametrize("finish", ["length", "content_filter"])
@pytest.mark.parametrize("stream", [True, False])
def test_why_an_answer_ended_is_told(
    wire: Wire, stub: StubModelServer, finish: str, stream: bool
) -> None:
    stub.script([Reply(text="half", finish=finish)])
    reply = ask(wire(stub.base_url), stream=stream)
    assert (reply.message["content"], reply.finish_reason) == ("half", finish)


def test_a_stream_that_ends_without_a_finish_has_none(wire: Wire, stub: StubModelServer) -> None:
    stub.script([Reply(text="half", close_without_finish=True)])
    reply = ask(wire(stub.base_url))
    assert (reply.message["content"], reply.finish_reason) == ("half", None)


EMPTY = {"no output": Reply(choices_empty=True), "null": Reply(text=None), "blank": Reply(text="")}


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("script", EMPTY.values(), ids=EMPTY.keys())
def test_an_empty_answer_is_the_callers_business(
    wire: Wire, stub: StubModelServer, script: Reply, stream: bool
) -> None:
    stub.script([script])
    assert ask(wire(stub.base_url), stream=stream).message["content"] == ""
    assert len(stub.requests) == 1


@pytest.mark.parametrize("stream", [True, False])
def test_usage_is_one_record_and_a_missing_one_is_none(
    wire: Wire, case: WireCase, stub: StubModelServer, stream: bool
) -> None:
    stub.script([Reply(usage=case.usage), Reply(usage=None)])
    provider = wire(stub.base_url)
    counted = TokenUsage(prompt=9, completion=4, cached=3, reasoning=2)
    assert ask(provider, stream=stream).usage == counted
    assert ask(provider, stream=stream).usage is None


def test_what_a_listener_raises_ends_the_call_and_its_connection(
    wire: Wire, stub: StubModelServer
) -> None:
    stub.script([Reply(text="long " * 50, stall_after_chars=40)])

    def stumble(_delta: Delta) -> None:
        raise KeyError("listener")

    with pytest.raises(KeyError):
        wire(stub.base_url).complete(
            ModelRequest(messages=[HELLO]), limits=LIMITS, watch=CallWatch(on_delta=stumble)
        )
    assert stub.requests[0].done.wait(10)
    assert stub.requests[0].client_closed_at is not None


# -- requests -----------------------------------------------------------------------------------
def test_system_text_tools_and_history_reach_the_model(
    wire: Wire, case: WireCase, stub: StubModelServer
) -> None:
    history = [user("a"), assistant("b"), user("c")]
    stored = [row | {"_row_id": n, "_seq": n} for n, row in enumerate(history, 1)]
    provider = wire(stub.base_url)
    for _ in range(2):
        ask(provider, system("Be brief."), *stored, tools=[TOOL], temperature=0.5)
    for request in stub.requests:
        assert case.system(request.body) == "Be brief."
        assert case.sent(request.body) == [("user", "a"), ("assistant", "b"), ("user", "c")]
        assert request.body["temperature"] == 0.5
        assert b'"read_file"' in request.raw
        assert b'"Reads."' in request.raw


def test_images_reach_the_model_wherever_they_stand(wire: Wire, stub: StubModelServer) -> None:
    inside = "data:image/png;base64,aW5zaWRl"
    parts = [{"type": "text", "text": f"look: {inside} there"}, image()]
    ask(wire(stub.base_url), user(parts))
    [request] = stub.requests
    for data in (b"aW5zaWRl", b"aGVsbG8="):
        assert request.raw.count(data) == 1
    assert request.status == 200


def test_what_the_store_may_hold_is_never_refused(wire: Wire, stub: StubModelServer) -> None:
    broken = call("bad name!", '{"path": ', call_id="c1")
    history = [user("a\ud800b"), assistant("", broken), result(broken, "failed")]
    assert ask(wire(stub.base_url), *history).message["content"] == "ok"


def test_a_field_that_is_refused_is_learned_once(wire: Wire, stub: StubModelServer) -> None:
    why = {"message": "Unsupported value: 'temperature'", "param": "temperature"}
    stub.script(lambda r: Reply(status=400, error=why) if "temperature" in r.body else Reply())
    provider = wire(stub.base_url)
    for _ in range(2):
        assert ask(provider, temperature=0.1).message["content"] == "ok"
    assert ["temperature" in request.body for request in stub.requests] == [True, False, False]


# -- reasoning ----------------------------------------------------------------------------------
CALL = call("read_file", {"path": "a"}, call_id="t1")


def test_reasoning_is_heard_and_goes_back_to_its_route_only(
    wire: Wire, case: WireCase, stub: StubModelServer
) -> None:
    stub.script([Reply(text="look", reasoning="hm \u2028", tool_calls=[CALL])])
    provider = wire(stub.base_url)
    deltas: list[Delta] = []
    reply = ask(provider, deltas=deltas, tools=[TOOL])
    assert "".join(delta.reasoning for delta in deltas) == "hm \u2028"
    history = [HELLO, reply.message, result(CALL, "x")]
    ask(provider, *history)
    ask(wire(stub.base_url, model="another"), *history)
    own, foreign = stub.requests[1:]
    assert "hm \u2028" in own.raw.decode()
    assert "hm" not in foreign.raw.decode()
    assert case.sent(own.body) == case.sent(foreign.body)
    assert case.opaque(foreign.body) == []


@pytest.mark.parametrize("stream", [True, False])
def test_bound_reasoning_goes_back_whole_until_its_prefix_is_gone(
    wire: Wire, case: WireCase, stub: StubModelServer, stream: bool
) -> None:
    bound = Reply(reasoning="hm", reasoning_key="reasoning_details")
    stub.script([replace(bound, text="look", tool_calls=[CALL])])
    provider = wire(stub.base_url)
    reply = ask(provider, tools=[TOOL], stream=stream)
    answer = reply.message | {"_row_id": 7, "_seq": 7}
    for replay_from, goes_back in [(7, True), (8, False), (7, True), (0, True), (9, False)]:
        body = _request_with(provider, stub, answer, replay_from)
        assert bool(case.opaque(body)) is goes_back
        assert ("hm" in str(body)) is goes_back
        assert case.sent(body)[1:3] == [("assistant", "look"), ("call", 'read_file{"path": "a"}')]


def test_what_the_same_model_reasoned_on_another_wire_never_goes_out(
    wire: Wire, case: WireCase, stub: StubModelServer
) -> None:
    bound = Reply(text="look", reasoning="hm", reasoning_key="reasoning_details", tool_calls=[CALL])
    provider = wire(stub.base_url)
    for other in (other for other in WIRES.values() if other is not case):
        stub.script([bound])
        for foreign in openings(other.opens):
            answer = ask(foreign(stub.base_url), tools=[TOOL]).message
        plain = {name: value for name, value in answer.items() if name != "_reasoning"}
        assert len(plain) == len(answer) - 1
        for message in (answer, plain):
            ask(provider, HELLO, message, result(CALL, "x"))
        assert stub.requests[-2].raw == stub.requests[-1].raw


def _request_with(
    provider: HttpModel, stub: StubModelServer, answer: Message, replay_from: int
) -> dict[str, Any]:
    """Return the body of a request that holds an answer, its result and what came before."""
    ask(provider, HELLO, answer, result(CALL, "x"), replay_from=replay_from)
    assert stub.requests[-1].refusal == ""
    return stub.requests[-1].body


def test_a_switch_of_model_in_mid_round_is_never_refused(
    wire: Wire, case: WireCase, stub: StubModelServer
) -> None:
    stub.script([Reply(text=None, reasoning=f"r{n}", tool_calls=[CALL]) for n in range(3)])
    history: list[Message] = [HELLO]
    for model in ("m", "another", "m"):
        reply = ask(wire(stub.base_url, model=model), *history, tools=[TOOL])
        history += [reply.message, result(CALL, "x")]
    ask(wire(stub.base_url), *history)
    assert [request.refusal for request in stub.requests] == [""] * 4
    last = stub.requests[-1].raw.decode()
    assert [f"r{n}" in last for n in range(3)] == [True, False, True]


# -- faults -------------------------------------------------------------------------------------
STATUSES = {
    400: RequestRefused,
    401: AuthError,
    402: QuotaError,
    403: AuthError,
    404: RequestRefused,
    408: CallTimeout,
    413: ContextOverflow,
    429: RateError,
    500: OverloadError,
    503: OverloadError,
    529: OverloadError,
}


@pytest.mark.parametrize(("status", "kind"), STATUSES.items())
def test_each_status_has_its_error(
    wire: Wire, stub: StubModelServer, status: int, kind: type[ProviderError]
) -> None:
    stub.script([], then=Reply(status=status, error="no"))
    error = failed(wire(stub.base_url), limits=ONCE)
    assert (type(error), error.status, error.route) == (kind, status, f"m at {stub.base_url}")
    assert "k-secret" not in str(error)
    assert len(stub.requests) == 1


def test_an_overflow_has_the_providers_numbers(wire: Wire, stub: StubModelServer) -> None:
    stub.script([], window_tokens=100)
    error = failed(wire(stub.base_url), user("word " * 1_000))
    assert isinstance(error, ContextOverflow)
    assert error.limit_tokens == 100
    assert (error.request_tokens or 0) > 100
    assert len(stub.requests) == 1


@pytest.mark.parametrize("status", [429, 500, 529])
def test_what_may_pass_is_sent_again(wire: Wire, stub: StubModelServer, status: int) -> None:
    stub.script([Reply(status=status), Reply(status=status), Reply(text="at last")])
    assert ask(wire(stub.base_url)).message["content"] == "at last"
    assert len(stub.requests) == 3


def test_nothing_is_sent_again_once_an_answer_has_begun(wire: Wire, stub: StubModelServer) -> None:
    stub.script([Reply(text="half of it, and then some more", reset_after_chars=4)])
    assert type(failed(wire(stub.base_url))) is NetworkError
    assert len(stub.requests) == 1


def test_silence_has_its_limits(wire: Wire, stub: StubModelServer) -> None:
    stub.script([Reply(before_first_byte_s=30)], model="silent")
    stub.script([Reply(text="half " * 9, stall_after_chars=9)], model="stalls")
    silent, stalls = wire(stub.base_url, model="silent"), wire(stub.base_url, model="stalls")
    assert type(failed(silent, limits=replace(ONCE, first_byte_s=0.2))) is CallTimeout
    assert type(failed(stalls, limits=replace(ONCE, idle_s=0.2))) is CallStalled


@pytest.mark.parametrize("body", [b"<html>Sign in</html>", b"", b"{broken", b"[1]", b"data: x\n\n"])
def test_an_answer_that_is_none_says_what_to_check(
    wire: Wire, stub: StubModelServer, body: bytes
) -> None:
    stub.script([Reply(raw_body=body)])
    error = failed(wire(stub.base_url), limits=ONCE)
    assert type(error) is NetworkError
    assert "sent an answer that cannot be read" in str(error)


# -- cancel -------------------------------------------------------------------------------------
PHASES = {
    "before headers": (Reply(before_first_byte_s=30, headers_first=False), False),
    "after headers": (Reply(before_first_byte_s=30), False),
    "in mid stream": (Reply(text="half " * 20, stall_after_chars=20), True),
    "between two tries": (Reply(status=429, headers={"Retry-After": "20"}), True),
}


@pytest.mark.parametrize(("script", "bytes_due"), PHASES.values(), ids=PHASES.keys())
def test_a_cancel_ends_a_call_at_once(
    wire: Wire, stub: StubModelServer, script: Reply, bytes_due: bool
) -> None:
    stub.script([], then=script)
    limits, begun = replace(LIMITS, total_s=60), list[Running]()

    def begin() -> Running:
        begun.append(running(wire(stub.base_url), ModelRequest(messages=[HELLO]), limits))
        stub.wait_for_requests(len(begun))
        assert not bytes_due or begun[-1].bytes.acquire(timeout=10)
        threading.Event().wait(0.05)
        return begun[-1]

    assert_cancelled(begin)
    assert all(request.done.wait(10) for request in stub.requests)
    assert len(stub.requests) == len(begun)
