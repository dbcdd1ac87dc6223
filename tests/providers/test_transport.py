"""Limits, life and connections of the model wires, over real sockets."""

from __future__ import annotations

import gzip
import socket
import threading
import time
from dataclasses import replace

import pytest

from agent.base.errors import CallStalled, CallTimeout, NetworkError, StoreBusy
from agent.providers import transport
from agent.providers.protocol import CallWatch, Limits, ModelRequest
from agent.testing.clock import FakeClock
from agent.testing.stub_line import COMMENT
from agent.testing.stub_reply import Reply
from agent.testing.stub_server import StubModelServer
from tests.best_of import best_of
from tests.providers.calls import (
    ANSWER,
    PIECE,
    QUICK,
    Heard,
    answer,
    chunk,
    failed,
    read_then,
    request,
    trust_test_certificate,
)
from tests.providers.conftest import Wire
from tests.providers.raw_server import STREAM_HEAD, Peer, Serve


# -- limits -------------------------------------------------------------------------------------
def test_the_connect_limit_ends_a_connection_that_nobody_takes(wire: Wire, full_port: int) -> None:
    error = failed(wire, f"http://127.0.0.1:{full_port}/v1", Limits(connect_s=0.2, retries=0))
    assert str(error) == (
        f"no connection to m at http://127.0.0.1:{full_port}/v1 within 0.2 s; "
        "check the address and the network"
    )
    assert isinstance(error, CallTimeout)


@pytest.mark.parametrize("sent", [[], [STREAM_HEAD]], ids=["silent", "headers only"])
def test_the_first_byte_limit_counts_body_bytes_only(
    wire: Wire, serve: Serve, sent: list[bytes]
) -> None:
    server = serve(read_then(*sent))
    error = failed(wire, server.base_url, Limits(first_byte_s=0.2, idle_s=0, total_s=0, retries=0))
    assert isinstance(error, CallTimeout)
    assert "sent nothing within 0.2 s" in str(error)


def test_the_first_byte_limit_bounds_an_upload_that_nobody_reads(wire: Wire, serve: Serve) -> None:
    release = threading.Event()
    server = serve(lambda _peer: release.wait(10) and None)
    error = failed(wire, server.base_url, Limits(first_byte_s=0.2, retries=0), "x" * 32_000_000)
    release.set()
    assert isinstance(error, CallTimeout)
    assert "took nothing of the request for 0.2 s" in str(error)


def test_the_idle_limit_ends_a_stream_that_falls_silent(wire: Wire, serve: Serve) -> None:
    server = serve(read_then(STREAM_HEAD, chunk(PIECE)))
    error = failed(wire, server.base_url, Limits(first_byte_s=5, idle_s=0.2, total_s=0, retries=0))
    assert isinstance(error, CallStalled)
    assert "fell silent for 0.2 s" in str(error)


def test_the_total_limit_ends_a_stream_that_trickles(wire: Wire, stub: StubModelServer) -> None:
    stub.script([Reply(text="slow " * 100, chunk_delay_s=0.05)])
    error = failed(wire, stub.base_url, Limits(total_s=0.3, retries=0))
    assert isinstance(error, CallTimeout)
    assert "did not finish within the total limit of 0.3 s" in str(error)


def test_the_wait_for_the_first_token_is_no_idleness(wire: Wire, stub: StubModelServer) -> None:
    """The body comes in one piece, so that there is no silence inside it."""
    kind = {"content-type": "text/event-stream"}
    stub.script([Reply(raw_body=ANSWER, headers=kind, before_first_byte_s=0.5)])
    limits = Limits(first_byte_s=10, idle_s=0.1, retries=0)
    reply = wire(stub.base_url).complete(request(), limits=limits, watch=CallWatch())
    assert reply.message["content"] == "hi"


def test_a_server_that_answers_whole_is_bound_by_the_total_limit(
    wire: Wire, stub: StubModelServer
) -> None:
    stub.script([Reply(text="whole", ignore_stream=True, before_first_byte_s=0.5)])
    limits = Limits(first_byte_s=10, idle_s=0.1, retries=0)
    reply = wire(stub.base_url).complete(request(), limits=limits, watch=CallWatch())
    assert reply.message["content"] == "whole"


@pytest.mark.parametrize("stream", [True, False], ids=["ignored", "not asked for"])
@pytest.mark.parametrize("headers_first", [True, False])
def test_an_answer_in_one_piece_is_bound_by_the_total_limit_only(
    wire: Wire, stub: StubModelServer, stream: bool, headers_first: bool
) -> None:
    """Until its headers say so, an answer that was asked for as a stream counts as one."""
    first_byte_s = (1.0 if headers_first else 10.0) if stream else 0.15
    wait_s = 1.5 if first_byte_s == 1.0 else 0.4
    late = Reply(before_first_byte_s=wait_s, headers_first=headers_first, ignore_stream=True)
    stub.script([late], then=replace(late, before_first_byte_s=30))
    limits = Limits(first_byte_s=first_byte_s, idle_s=0.15, retries=0)
    sent = ModelRequest(messages=request().messages, stream=stream)
    provider = wire(stub.base_url)
    assert provider.complete(sent, limits=limits, watch=CallWatch()).message["content"] == "ok"
    with pytest.raises(CallTimeout, match="total limit of 0.2 s"):
        provider.complete(sent, limits=Limits(total_s=0.2, retries=0), watch=CallWatch())


def test_comment_lines_are_life(wire: Wire, serve: Serve, call_clock: FakeClock) -> None:
    heard = Heard(call_clock, seconds=9)
    server = serve(heard.comments_then(ANSWER, count=6))
    limits = Limits(first_byte_s=10, idle_s=10, total_s=0, retries=0)
    watch = CallWatch(on_bytes=heard.hear)
    reply = wire(server.base_url).complete(request(), limits=limits, watch=watch)
    assert reply.message["content"] == "hi"
    assert heard.counts == [len(COMMENT)] * 6 + [len(ANSWER)]


def test_every_byte_of_the_body_is_counted(wire: Wire, serve: Serve) -> None:
    server = serve(answer)
    counts: list[int] = []
    watch = CallWatch(on_bytes=counts.append)
    wire(server.base_url).complete(request(), limits=QUICK, watch=watch)
    assert sum(counts) == len(ANSWER)


def test_a_limit_of_zero_is_disabled(wire: Wire, serve: Serve) -> None:
    server = serve(answer)
    limits = Limits(connect_s=0, first_byte_s=0, idle_s=0, total_s=0)
    reply = wire(server.base_url).complete(request(), limits=limits, watch=CallWatch())
    assert reply.message["content"] == "hi"


# -- connections --------------------------------------------------------------------------------
def test_a_connection_is_kept_and_used_again(wire: Wire, serve: Serve) -> None:
    server = serve(answer)
    provider = wire(server.base_url)
    for _ in range(3):
        provider.complete(request(), limits=QUICK, watch=CallWatch())
    assert len(server.peers) == 1
    provider.close()
    assert server.peer(1).gone.wait(10)
    provider.complete(request(), limits=QUICK, watch=CallWatch())
    assert len(server.peers) == 2


def test_what_is_done_once_the_request_is_out_comes_before_the_answer(
    wire: Wire, serve: Serve
) -> None:
    heard: list[str] = []
    server = serve(answer)
    watch = CallWatch(
        on_sent=lambda: heard.append("sent"), on_bytes=lambda _count: heard.append("byte")
    )
    provider = wire(server.base_url)
    for _ in range(2):
        provider.complete(request(), limits=QUICK, watch=watch)
    assert [word for word, before in zip(heard, ["", *heard], strict=False) if word != before] == [
        "sent",
        "byte",
        "sent",
        "byte",
    ]


def test_what_fails_then_ends_the_call(wire: Wire, serve: Serve) -> None:
    def fail() -> None:
        raise StoreBusy("the store is locked")

    server = serve(answer)
    with pytest.raises(StoreBusy):
        wire(server.base_url).complete(request(), limits=QUICK, watch=CallWatch(on_sent=fail))
    assert server.peer(1).gone.wait(10)


def test_a_server_that_keeps_a_finished_stream_open_is_not_waited_for(
    wire: Wire, serve: Serve
) -> None:
    server = serve(read_then(STREAM_HEAD, chunk(ANSWER)))
    provider = wire(server.base_url)

    def call() -> float:
        started = time.monotonic()
        reply = provider.complete(request(), limits=QUICK, watch=CallWatch())
        assert (reply.message["content"], reply.finish_reason) == ("hi", "stop")
        return time.monotonic() - started

    assert best_of(call, 1) < 1
    assert all(peer.gone.wait(10) for peer in server.peers)


def test_a_connection_that_the_server_closed_meanwhile_is_replaced(
    wire: Wire, serve: Serve
) -> None:
    def talk(peer: Peer) -> None:
        peer.read_request()
        peer.send(STREAM_HEAD + chunk(ANSWER) + b"0\r\n\r\n")

    server = serve(talk)
    provider = wire(server.base_url)
    # The close may arrive while the second request is on its way: that is what retries are for.
    for _ in range(2):
        provider.complete(request(), limits=replace(QUICK, retries=1), watch=CallWatch())
        assert server.peers[-1].gone.wait(10)
    assert len(server.peers) == 2


def test_a_compressed_body_is_read(wire: Wire, serve: Serve) -> None:
    body = gzip.compress(ANSWER)
    head = b"HTTP/1.1 200 OK\r\ncontent-encoding: gzip\r\ncontent-length: %d\r\n\r\n" % len(body)
    server = serve(read_then(head, body))
    reply = wire(server.base_url).complete(request(), limits=QUICK, watch=CallWatch())
    assert reply.message["content"] == "hi"


def test_the_next_address_of_a_host_is_tried(
    wire: Wire, serve: Serve, closed_port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = serve(answer)
    kind = (socket.AF_INET, socket.SOCK_STREAM, 0, "")
    addresses = [(*kind, ("127.0.0.1", port)) for port in (closed_port, server.port)]
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_args, **_named: addresses)
    reply = wire("http://model.invalid/v1").complete(request(), limits=QUICK, watch=CallWatch())
    assert reply.message["content"] == "hi"


def test_a_name_that_does_not_exist_is_a_network_error(wire: Wire) -> None:
    error = failed(wire, "http://model.invalid/v1", QUICK)
    assert isinstance(error, NetworkError)
    assert str(error).startswith("m at http://model.invalid/v1 cannot be reached: ")


def test_a_refused_connection_is_a_network_error(wire: Wire, closed_port: int) -> None:
    error = failed(wire, f"http://127.0.0.1:{closed_port}/v1", QUICK)
    assert isinstance(error, NetworkError)
    assert "cannot connect to 127.0.0.1" in str(error)


def test_a_reset_in_the_body_is_a_network_error(wire: Wire, stub: StubModelServer) -> None:
    stub.script([Reply(text="half of it", reset_after_chars=4)])
    error = failed(wire, stub.base_url, Limits(retries=2))
    assert isinstance(error, NetworkError)
    assert len(stub.requests) == 1


def test_an_encrypted_endpoint_answers(
    wire: Wire, serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    trust_test_certificate(monkeypatch)
    server = serve(answer, encrypted=True)
    provider = wire(server.base_url)
    for _ in range(2):
        reply = provider.complete(request(), limits=QUICK, watch=CallWatch())
        assert reply.message["content"] == "hi"
    assert len(server.peers) == 1


def test_an_unknown_certificate_is_refused(wire: Wire, serve: Serve) -> None:
    transport._load_ssl_context.cache_clear()
    server = serve(answer, encrypted=True)
    error = failed(wire, server.base_url, QUICK)
    assert isinstance(error, NetworkError)
    assert "certificate verify failed" in str(error)


def test_a_proxy_of_the_environment_is_used(
    wire: Wire, serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    heads: list[bytes] = []

    def talk(peer: Peer) -> None:
        heads.append(peer.read_request().partition(b"\r\n")[0])
        peer.send(STREAM_HEAD + chunk(ANSWER) + b"0\r\n\r\n")

    proxy = serve(talk)
    monkeypatch.setenv("http_proxy", f"http://127.0.0.1:{proxy.port}")
    provider = wire("http://model.invalid/v1")
    reply = provider.complete(request(), limits=QUICK, watch=CallWatch())
    assert reply.message["content"] == "hi"
    assert heads == [b"POST http://model.invalid/v1/chat/completions HTTP/1.1"]


def test_no_proxy_stands_before_this_machine(
    wire: Wire, stub: StubModelServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    wire(stub.base_url).complete(request(), limits=QUICK, watch=CallWatch())
    assert len(stub.requests) == 1
