"""A cancel from another thread ends a call at every phase and closes the socket.

Bound: 50 ms; asserted at four times that.
"""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable

import pytest

from agent.base.cancel import CancelToken
from agent.base.errors import CallCancelled
from agent.providers.http_model import HttpModel
from agent.providers.protocol import CallWatch, Limits, ModelRequest
from agent.testing.stub_reply import Reply
from agent.testing.stub_server import StubModelServer
from tests.best_of import best_of
from tests.providers.calls import (
    ANSWER,
    PIECE,
    QUICK,
    answer,
    chunk,
    request,
    trust_test_certificate,
)
from tests.providers.conftest import Wire
from tests.providers.raw_server import STREAM_HEAD, Peer, Serve
from tests.running import Running

CANCEL_BOUND_S = 0.2


def running(provider: HttpModel, sent: ModelRequest, limits: Limits = QUICK) -> Running:
    """Begin a call in a thread of its own."""
    return Running(lambda watch: provider.complete(sent, limits=limits, watch=watch))


def assert_cancelled(begin: Callable[[], Running]) -> None:
    """Cancel calls that `begin` has brought to a phase until one ends within the bound."""
    assert best_of(lambda: begin().cancel(), CANCEL_BOUND_S) < CANCEL_BOUND_S


def test_a_cancel_ends_a_call_that_is_connecting(wire: Wire, full_port: int) -> None:
    def begin() -> Running:
        call = running(wire(f"http://127.0.0.1:{full_port}/v1"), request())
        threading.Event().wait(0.1)
        return call

    assert_cancelled(begin)


def test_a_cancel_ends_a_call_that_waits_for_a_name(
    wire: Wire, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked, release = threading.Semaphore(0), threading.Event()

    def slow(host: str, *arguments: object, **named: object) -> list[object]:
        if named.get("flags"):
            raise socket.gaierror(socket.EAI_NONAME, "no number")
        asked.release()
        release.wait(10)
        raise socket.gaierror(socket.EAI_AGAIN, "too late")

    monkeypatch.setattr(socket, "getaddrinfo", slow)

    def begin() -> Running:
        call = running(wire("http://model.invalid/v1"), request())
        assert asked.acquire(timeout=10)
        return call

    assert_cancelled(begin)
    release.set()


def test_a_cancel_ends_a_call_in_its_handshake(wire: Wire, serve: Serve) -> None:
    server = serve(Peer.wait_until_gone)

    def begin() -> Running:
        call = running(wire(f"https://127.0.0.1:{server.port}/v1"), request())
        assert server.arrived.acquire(timeout=10)
        threading.Event().wait(0.05)
        return call

    assert_cancelled(begin)
    assert all(peer.gone.wait(10) for peer in server.peers)


def test_a_cancel_ends_an_upload_that_nobody_reads(wire: Wire, serve: Serve) -> None:
    release = threading.Event()
    server = serve(lambda peer: (release.wait(10), peer.wait_until_gone())[1])
    sent = request("x" * 32_000_000)

    def begin() -> Running:
        call = running(wire(server.base_url), sent)
        assert server.arrived.acquire(timeout=10)
        threading.Event().wait(0.2)
        return call

    assert_cancelled(begin)
    release.set()
    assert all(peer.gone.wait(10) for peer in server.peers)


@pytest.mark.parametrize("encrypted", [False, True], ids=["plain", "encrypted"])
@pytest.mark.parametrize(
    ("sent", "bytes_due"),
    [
        pytest.param([], False, id="before headers"),
        pytest.param([STREAM_HEAD], False, id="after headers"),
        pytest.param([STREAM_HEAD, chunk(PIECE)], True, id="in mid stream"),
        pytest.param(
            [b"HTTP/1.0 200 OK\r\n\r\n", PIECE], True, id="in a body that ends by closing"
        ),
        pytest.param([b"HTTP/1.1 429 No\r\ncontent-length: 9\r\n\r\n{"], True, id="in an error"),
    ],
)
def test_a_cancel_ends_a_call_that_waits_and_closes_the_socket(
    wire: Wire,
    serve: Serve,
    sent: list[bytes],
    bytes_due: bool,
    encrypted: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    trust_test_certificate(monkeypatch)
    arrived = threading.Semaphore(0)

    def talk(peer: Peer) -> None:
        peer.read_request()
        arrived.release()
        peer.send(b"".join(sent))
        peer.wait_until_gone()

    server = serve(talk, encrypted=encrypted)

    def cancel_one() -> float:
        call = running(wire(server.base_url), request())
        assert arrived.acquire(timeout=10)
        if bytes_due:
            assert call.bytes.acquire(timeout=10)
        threading.Event().wait(0.05)
        ended_after_s, ended_at = call.cancel(), time.monotonic()
        assert server.peers[-1].gone.wait(10)
        return max(ended_after_s, time.monotonic() - ended_at)

    assert best_of(cancel_one, CANCEL_BOUND_S) < CANCEL_BOUND_S


def test_a_cancel_ends_the_wait_before_another_try(wire: Wire, stub: StubModelServer) -> None:
    stub.script([], then=Reply(status=429, headers={"Retry-After": "20"}))
    begun: list[Running] = []

    def begin() -> Running:
        begun.append(running(wire(stub.base_url), request(), Limits(retries=2)))
        stub.wait_for_requests(len(begun))
        threading.Event().wait(0.1)
        return begun[-1]

    assert_cancelled(begin)
    assert len(stub.requests) == len(begun)


def test_a_cancelled_call_sends_nothing(wire: Wire, stub: StubModelServer) -> None:
    token = CancelToken()
    token.cancel()
    with pytest.raises(CallCancelled):
        wire(stub.base_url).complete(request(), limits=QUICK, watch=CallWatch(cancel=token))
    assert stub.requests == []


def test_a_cancel_on_a_used_connection_leaves_the_client_usable(wire: Wire, serve: Serve) -> None:
    held = threading.Semaphore(0)

    def talk(peer: Peer) -> None:
        while asked := peer.read_request():
            if b"hold this" in asked:
                held.release()
                peer.wait_until_gone()
                return
            peer.send(STREAM_HEAD + chunk(ANSWER) + b"0\r\n\r\n")

    server = serve(talk)
    numbers: list[list[int]] = []

    def cancel_one() -> float:
        provider, before = wire(server.base_url), len(server.peers)
        provider.complete(request(), limits=QUICK, watch=CallWatch())
        call = running(provider, request("hold this"))
        assert held.acquire(timeout=10)
        ended_after_s = call.cancel()
        reply = provider.complete(request(), limits=QUICK, watch=CallWatch())
        assert reply.message["content"] == "hi"
        numbers.append([peer.number - before for peer in server.peers[before:]])
        return ended_after_s

    assert best_of(cancel_one, CANCEL_BOUND_S) < CANCEL_BOUND_S
    assert numbers == [[1, 2]] * len(numbers)


def test_a_cancel_after_the_end_does_not_touch_the_kept_connection(
    wire: Wire, serve: Serve
) -> None:
    server = serve(answer)
    provider = wire(server.base_url)
    token = CancelToken()
    provider.complete(request(), limits=QUICK, watch=CallWatch(cancel=token))
    token.cancel()
    provider.complete(request(), limits=QUICK, watch=CallWatch())
    assert len(server.peers) == 1
