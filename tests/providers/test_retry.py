"""Which failed calls are sent again, and which never."""

from __future__ import annotations

from typing import Any

import pytest

from agent.base.errors import (
    AuthError,
    ContextOverflow,
    NetworkError,
    OverloadError,
    ProviderError,
    QuotaError,
    RateError,
    RequestRefused,
)
from agent.providers.http_model import HttpModel
from agent.providers.protocol import (
    CallWatch,
    Limits,
    ModelReply,
    ModelRequest,
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


def streamed(*events: bytes, end: bytes = b"0\r\n\r\n") -> bytes:
    body = b"".join(b"data: " + event + b"\n\n" for event in events)
    return STREAM_HEAD + b"%x\r\n%s\r\n" % (len(body), body) + end


def say(peer: Peer, sent: bytes) -> None:
    peer.read_request()
    peer.send(sent)


HALF = b'{"choices":[{"delta":{"content":"half"}}]}'
REST = b'{"choices":[{"delta":{"content":" done"},"finish_reason":"stop"}]}'


# -- retries ------------------------------------------------------------------------------------
NEVER = {
    400: RequestRefused,
    401: AuthError,
    402: QuotaError,
    404: RequestRefused,
    413: ContextOverflow,
    422: RequestRefused,
}


@pytest.mark.parametrize(("status", "kind"), NEVER.items())
def test_what_a_retry_cannot_help_is_sent_once(
    wire: Wire, stub: StubModelServer, status: int, kind: type[ProviderError]
) -> None:
    stub.script([Reply(status=status, error="no")])
    error = failed(wire(stub.base_url))
    assert (type(error), error.status, error.route) == (kind, status, f"m at {stub.base_url}")
    assert len(stub.requests) == 1


@pytest.mark.parametrize("status", [429, 500, 529])
def test_what_may_pass_is_sent_again(wire: Wire, stub: StubModelServer, status: int) -> None:
    stub.script([Reply(status=status), Reply(status=status), Reply(text="at last")])
    assert ask(wire(stub.base_url)).message["content"] == "at last"
    assert len(stub.requests) == 3


def test_after_three_tries_the_last_fault_is_raised(wire: Wire, stub: StubModelServer) -> None:
    stub.script([Reply(status=429), Reply(status=500)], then=Reply(status=503, error="third"))
    error = failed(wire(stub.base_url))
    assert (type(error), error.status) == (OverloadError, 503)
    assert len(stub.requests) == 3


def test_retries_can_be_turned_off(wire: Wire, stub: StubModelServer) -> None:
    stub.script([], then=Reply(status=429))
    assert type(failed(wire(stub.base_url), Limits(retries=0))) is RateError
    assert len(stub.requests) == 1


def test_retry_after_is_obeyed(wire: Wire, stub: StubModelServer) -> None:
    stub.script([Reply(status=429, headers={"Retry-After": "1"})])
    ask(wire(stub.base_url))
    first, second = stub.requests
    assert second.arrived_at - first.arrived_at >= 1


@pytest.mark.parametrize("limits", [LIMITS, Limits(total_s=9)], ids=["too long", "past the limit"])
def test_a_wait_that_is_too_long_is_not_waited_for(
    wire: Wire, stub: StubModelServer, limits: Limits
) -> None:
    wait_s = "10" if limits.total_s == 9 else "31"
    stub.script([Reply(status=429, headers={"Retry-After": wait_s})])
    error = failed(wire(stub.base_url), limits)
    assert (type(error), error.retry_after_s) == (RateError, float(wait_s))
    assert len(stub.requests) == 1


def test_a_connection_that_breaks_before_an_answer_is_tried_again(wire: Wire, serve: Serve) -> None:
    def talk(peer: Peer) -> None:
        peer.read_request()
        if peer.number == 2:
            peer.send(STREAM_HEAD)
        if peer.number == 3:
            peer.send(streamed(HALF, REST))

    server = serve(talk)
    assert ask(wire(server.base_url)).message["content"] == "half done"
    assert len(server.peers) == 3


def test_nothing_is_sent_again_once_an_answer_has_begun(wire: Wire, stub: StubModelServer) -> None:
    stub.script([Reply(text="half of it", reset_after_chars=4)])
    assert type(failed(wire(stub.base_url))) is NetworkError
    assert len(stub.requests) == 1


def test_a_silent_server_is_asked_once_more(wire: Wire, serve: Serve) -> None:
    def talk(peer: Peer) -> None:
        peer.read_request()
        if peer.number > 1:
            peer.send(streamed(HALF, REST))
        peer.wait_until_gone()

    server = serve(talk)
    reply = ask(wire(server.base_url), limits=Limits(first_byte_s=1))
    assert reply.message["content"] == "half done"
    assert len(server.peers) == 2
