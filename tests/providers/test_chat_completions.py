"""The chat-completions wire against the stub model server."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from agent.base.errors import (
    CallCancelled,
    ContextOverflow,
    NetworkError,
    OverloadError,
    ProviderError,
    RequestRefused,
    SettingsError,
)
from agent.providers.http_model import HttpModel
from agent.providers.protocol import (
    CallWatch,
    Delta,
    Limits,
    ModelReply,
    ModelRequest,
    TokenUsage,
)
from agent.testing.stub_reply import Reply
from agent.testing.stub_server import StubModelServer
from tests.providers.conftest import Wire
from tests.providers.raw_server import STREAM_HEAD, Peer, Serve

LIMITS = Limits(connect_s=5, first_byte_s=10, idle_s=10, total_s=20)
USER = {"role": "user", "content": "hello"}


def ask(
    provider: HttpModel, *, limits: Limits = LIMITS, stream: bool = True, **fields: Any
) -> ModelReply:
    fields.setdefault("messages", [USER])
    request = ModelRequest(max_tokens=50, stream=stream, **fields)
    return provider.complete(request, limits=limits, watch=CallWatch())


def failed(provider: HttpModel, limits: Limits = LIMITS) -> ProviderError:
    with pytest.raises(ProviderError) as caught:
        ask(provider, limits=limits)
    return caught.value


# -- requests -----------------------------------------------------------------------------------
def test_a_streamed_request_carries_what_the_wire_needs(wire: Wire, stub: StubModelServer) -> None:
    tools = [{"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}]
    ask(wire(stub.base_url), tools=tools, temperature=0.5)
    [request] = stub.requests
    assert request.body == {
        "messages": [USER],
        "model": "m",
        "max_tokens": 50,
        "stream": True,
        "stream_options": {"include_usage": True},
        "temperature": 0.5,
        "tools": tools,
    }
    assert request.headers["authorization"] == "Bearer k-secret"
    assert request.headers["content-type"] == "application/json"


def test_a_whole_request_asks_for_no_stream(wire: Wire, stub: StubModelServer) -> None:
    stub.script([Reply(text="hi")])
    reply = ask(wire(stub.base_url), stream=False)
    assert reply.message == {"role": "assistant", "content": "hi"}
    assert stub.requests[0].body == {
        "messages": [USER],
        "model": "m",
        "max_tokens": 50,
        "stream": False,
    }


def test_without_a_key_no_header_is_sent(wire: Wire, stub: StubModelServer) -> None:
    ask(wire(stub.base_url, api_key=""))
    assert "authorization" not in stub.requests[0].headers


def test_the_route_shows_neither_key_nor_password(wire: Wire) -> None:
    provider = wire("https://user:pw@host:8443/v1/?token=abc")
    assert provider.route == "m at https://host:8443/v1"
    assert "pw" not in repr(provider.__dict__)
    assert "k-secret" not in repr(provider.__dict__)


@pytest.mark.parametrize("base_url", ["", "host/v1", "ftp://host/v1", "https:///v1"])
def test_an_address_that_cannot_be_used_is_refused_at_once(wire: Wire, base_url: str) -> None:
    with pytest.raises(SettingsError, match="is no http or https address; set it to one such as"):
        wire(base_url)


@pytest.mark.parametrize("key", ["a b", "schlüssel", "line\nbreak"])
def test_a_key_that_no_header_can_carry_is_refused_without_showing_it(wire: Wire, key: str) -> None:
    with pytest.raises(SettingsError, match="model.api_key holds") as caught:
        wire("https://host/v1", api_key=key)
    assert key not in str(caught.value)


# -- answers ------------------------------------------------------------------------------------
def test_text_arrives_in_pieces_and_whole(wire: Wire, stub: StubModelServer) -> None:
    stub.script([Reply(text="hello world", chunks=["hello", " wor", "ld"])])
    deltas: list[Delta] = []
    reply = wire(stub.base_url).complete(
        ModelRequest(messages=[USER]), limits=LIMITS, watch=CallWatch(on_delta=deltas.append)
    )
    assert deltas == [Delta("hello"), Delta(" wor"), Delta("ld")]
    assert reply.message == {"role": "assistant", "content": "hello world"}
    assert (reply.finish_reason, reply.model) == ("stop", "m")
    assert reply.usage is not None


def test_a_server_that_ignores_streaming_is_read(wire: Wire, stub: StubModelServer) -> None:
    stub.script([Reply(text="whole", ignore_stream=True)])
    deltas: list[Delta] = []
    reply = wire(stub.base_url).complete(
        ModelRequest(messages=[USER]), limits=LIMITS, watch=CallWatch(on_delta=deltas.append)
    )
    assert (reply.message["content"], deltas) == ("whole", [Delta("whole")])


@pytest.mark.parametrize("stream", [True, False])
def test_tool_calls_are_read_either_way(wire: Wire, stub: StubModelServer, stream: bool) -> None:
    calls = [
        {"id": "t1", "type": "function", "function": {"name": "f", "arguments": '{"a": 1}'}},
        {"id": "t2", "type": "function", "function": {"name": "g", "arguments": "{}"}},
    ]
    stub.script([Reply(text=None, tool_calls=calls)])
    reply = ask(wire(stub.base_url), stream=stream)
    assert reply.message == {"role": "assistant", "content": "", "tool_calls": calls}
    assert reply.finish_reason == "tool_calls"


def test_usage_is_kept_and_a_missing_one_is_none(wire: Wire, stub: StubModelServer) -> None:
    usage = {
        "prompt_tokens": 9,
        "completion_tokens": 4,
        "prompt_tokens_details": {"cached_tokens": 3},
        "completion_tokens_details": {"reasoning_tokens": 2},
    }
    stub.script([Reply(usage=usage), Reply(usage=None)])
    provider = wire(stub.base_url)
    assert ask(provider).usage == TokenUsage(prompt=9, completion=4, cached=3, reasoning=2)
    assert ask(provider).usage is None


@pytest.mark.parametrize("key", ["reasoning_content", "reasoning"])
def test_reasoning_is_heard_kept_and_sent_back(wire: Wire, stub: StubModelServer, key: str) -> None:
    stub.script([Reply(text="42", reasoning="hm \u2028", reasoning_key=key)])
    provider = wire(stub.base_url)
    deltas: list[Delta] = []
    reply = provider.complete(
        ModelRequest(messages=[USER]), limits=LIMITS, watch=CallWatch(on_delta=deltas.append)
    )
    assert "".join(delta.reasoning for delta in deltas) == "hm \u2028"
    again = {"role": "user", "content": "again"}
    ask(provider, messages=[USER, reply.message, again])
    assert stub.requests[1].messages[1] == {"role": "assistant", "content": "42", key: "hm \u2028"}


EMPTY = {
    "no choices": Reply(choices_empty=True),
    "null": Reply(text=None),
    "empty": Reply(text=""),
}


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("script", EMPTY.values(), ids=EMPTY.keys())
def test_an_empty_answer_is_the_callers_business(
    wire: Wire, stub: StubModelServer, script: Reply, stream: bool
) -> None:
    stub.script([script])
    assert ask(wire(stub.base_url), stream=stream).message["content"] == ""
    assert len(stub.requests) == 1


def test_a_stream_that_ends_without_a_finish_has_none(wire: Wire, stub: StubModelServer) -> None:
    stub.script([Reply(text="half", close_without_finish=True)])
    reply = ask(wire(stub.base_url))
    assert (reply.message["content"], reply.finish_reason) == ("half", None)


def streamed(*events: bytes, end: bytes = b"0\r\n\r\n") -> bytes:
    body = b"".join(b"data: " + event + b"\n\n" for event in events)
    return STREAM_HEAD + b"%x\r\n%s\r\n" % (len(body), body) + end


def say(peer: Peer, sent: bytes) -> None:
    peer.read_request()
    peer.send(sent)


HALF = b'{"choices":[{"delta":{"content":"half"}}]}'
REST = b'{"choices":[{"delta":{"content":" done"},"finish_reason":"stop"}]}'


def test_a_chunked_stream_that_is_closed_in_the_middle_has_no_finish(
    wire: Wire, serve: Serve
) -> None:
    server = serve(lambda peer: say(peer, streamed(HALF, end=b"")))
    reply = ask(wire(server.base_url))
    assert (reply.message["content"], reply.finish_reason) == ("half", None)


def test_a_connection_that_breaks_after_the_finish_loses_nothing(wire: Wire, serve: Serve) -> None:
    server = serve(lambda peer: say(peer, streamed(HALF, REST, end=b"zz\r\n")))
    reply = ask(wire(server.base_url))
    assert (reply.message["content"], reply.finish_reason) == ("half done", "stop")


ERRORS_INSIDE = {
    "object": b'{"error":{"message":"busy","code":502}}',
    "in the choice": b'{"choices":[{"error":{"message":"busy","code":502},"delta":{}}]}',
    "finish": b'{"choices":[{"delta":{},"finish_reason":"error"}]}',
}


@pytest.mark.parametrize("event", ERRORS_INSIDE.values(), ids=ERRORS_INSIDE.keys())
@pytest.mark.parametrize("whole", [False, True], ids=["streamed", "whole"])
def test_an_error_in_place_of_an_answer_is_raised(
    wire: Wire, serve: Serve, event: bytes, whole: bool
) -> None:
    head = b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n%s" % (len(event), event)
    server = serve(lambda peer: say(peer, head if whole else streamed(HALF, event)))
    assert type(failed(wire(server.base_url))) is OverloadError
    assert len(server.peers) == 1


@pytest.mark.parametrize("body", [b"<html>Sign in</html>", b"", b"{broken", b"[1]", b"data: x\n\n"])
def test_an_answer_that_is_none_says_what_to_check(wire: Wire, serve: Serve, body: bytes) -> None:
    head = b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n%s" % (len(body), body)
    server = serve(lambda peer: say(peer, head))
    error = failed(wire(server.base_url), Limits(retries=0))
    assert type(error) is NetworkError
    assert "sent an answer that cannot be read" in str(error)
    assert "check model.base_url" in str(error)


def test_what_a_listener_raises_ends_the_call_and_its_connection(
    wire: Wire, stub: StubModelServer
) -> None:
    stub.script([Reply(text="long " * 50, stall_after_chars=40)])

    def stumble(_delta: Delta) -> None:
        raise KeyError("listener")

    watch = CallWatch(on_delta=stumble)
    with pytest.raises(KeyError):
        wire(stub.base_url).complete(ModelRequest(messages=[USER]), limits=LIMITS, watch=watch)
    assert stub.requests[0].done.wait(10)
    assert stub.requests[0].client_closed_at is not None


# -- dialects -----------------------------------------------------------------------------------
def refuse_field(name: str, message: str) -> Any:
    def answer(request: Any) -> Reply:
        refusal = {"message": message, "type": "invalid_request_error", "param": name}
        return Reply(status=400, error=refusal) if name in request.body else Reply(text="ok")

    return answer


DIALECTS = {
    "max_tokens": (
        "Unsupported parameter: 'max_tokens' is not supported with this model. "
        "Use 'max_completion_tokens' instead."
    ),
    "temperature": "Unsupported value: 'temperature' does not support 0.1 with this model.",
    "stream_options": "Extra inputs are not permitted: stream_options",
}


@pytest.mark.parametrize(("name", "message"), DIALECTS.items(), ids=DIALECTS.keys())
def test_a_field_that_is_refused_is_learned_once(
    wire: Wire, stub: StubModelServer, name: str, message: str
) -> None:
    stub.script(refuse_field(name, message))
    provider = wire(stub.base_url)
    for _ in range(2):
        assert ask(provider, temperature=0.1).message["content"] == "ok"
    assert [name in request.body for request in stub.requests] == [True, False, False]
    if name == "max_tokens":
        assert stub.requests[1].body["max_completion_tokens"] == 50


def test_an_overflow_that_names_a_field_is_not_a_matter_of_dialect(
    wire: Wire, stub: StubModelServer
) -> None:
    text = "'max_tokens' or 'max_completion_tokens' is too large. maximum context length is 10"
    stub.script([], then=Reply(status=400, error=text))
    assert type(failed(wire(stub.base_url))) is ContextOverflow
    assert len(stub.requests) == 1


def test_a_refusal_that_goes_on_ends(wire: Wire, stub: StubModelServer) -> None:
    message = "temperature, stream_options and max_completion_tokens"
    stub.script([], then=Reply(status=400, error=message))
    assert type(failed(wire(stub.base_url))) is RequestRefused
    assert len(stub.requests) == 4


# -- together -----------------------------------------------------------------------------------
def test_an_overflow_has_the_providers_numbers(wire: Wire, stub: StubModelServer) -> None:
    stub.script([], window_tokens=100)
    error = failed_long(wire(stub.base_url))
    assert isinstance(error, ContextOverflow)
    assert error.limit_tokens == 100
    assert error.request_tokens is not None
    assert error.request_tokens > 100
    assert len(stub.requests) == 1


def failed_long(provider: HttpModel) -> ProviderError:
    with pytest.raises(ProviderError) as caught:
        ask(provider, messages=[{"role": "user", "content": "word " * 1_000}])
    return caught.value


def test_many_threads_share_a_provider(wire: Wire, stub: StubModelServer) -> None:
    stub.script(lambda request: Reply(text=request.messages[0]["content"] * 3))
    provider = wire(stub.base_url)
    answers: dict[str, str] = {}
    stopped: list[str] = []

    def run(name: str) -> None:
        watch = CallWatch()
        if name == "stopped":
            watch.cancel.cancel()
        request = ModelRequest(messages=[{"role": "user", "content": name, "_row_id": len(name)}])
        try:
            reply = provider.complete(request, limits=LIMITS, watch=watch)
        except CallCancelled:
            stopped.append(name)
        else:
            answers[name] = reply.message["content"]

    names = [letter * count for count, letter in enumerate("abcdefgh", 1)]
    threads = [threading.Thread(target=run, args=(name,)) for name in [*names, "stopped"]]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(10)
    assert answers == {name: name * 3 for name in names}
    assert stopped == ["stopped"]
