"""A cancel from another thread ends a call at every phase and closes the socket.

Bound: 50 ms; asserted at four times that.
"""

from __future__ import annotations

import socket
import threading
import time

import pytest

from agent.base.cancel import CancelToken
from agent.base.errors import CallCancelled, HermesError
from agent.providers.http_model import HttpModel
from agent.providers.protocol import CallWatch, Limits, ModelRequest
from agent.testing.stub_reply import Reply
from agent.testing.stub_server import StubModelServer
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

CANCEL_BOUND_S = 0.2


class Running:
    """A call in its own thread, which a test cancels."""

    def __init__(self, provider: HttpModel, sent: ModelRequest, limits: Limits = QUICK) -> None:
        self.token = CancelToken()
        self.bytes = threading.Semaphore(0)
        self._error: HermesError | None = None
        self._ended_at = 0.0
        self._call = (provider, sent, limits)
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        provider, sent, limits = self._call
        watch = CallWatch(cancel=self.token, on_bytes=lambda _count: self.bytes.release())
        try:
            provider.complete(sent, limits=limits, watch=watch)
        except HermesError as error:
            self._error = error
        self._ended_at = time.monotonic()

    def cancel(self) -> tuple[HermesError | None, float]:
        """Cancel; return how the call ended and after how many seconds."""
        cancelled_at = time.monotonic()
        self.token.cancel()
        self._thread.join(10)
        assert not self._thread.is_alive()
        return self._error, self._ended_at - cancelled_at


def assert_cancelled(running: Running) -> None:
    error, latency_s = running.cancel()
    assert isinstance(error, CallCancelled)
    assert latency_s < CANCEL_BOUND_S


def test_a_cancel_ends_a_call_that_is_connecting(wire: Wire, full_port: int) -> None:
    running = Running(wire(f"http://127.0.0.1:{full_port}/v1"), request())
    threading.Event().wait(0.1)
    assert_cancelled(running)


def test_a_cancel_ends_a_call_that_waits_for_a_name(
    wire: Wire, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked, release = threading.Event(), threading.Event()

    def slow(host: str, *arguments: object, **named: object) -> list[object]:
        if named.get("flags"):
            raise socket.gaierror(socket.EAI_NONAME, "no number")
        asked.set()
        release.wait(10)
        raise socket.gaierror(socket.EAI_AGAIN, "too late")

    monkeypatch.setattr(socket, "getaddrinfo", slow)
    running = Running(wire("http://model.invalid/v1"), request())
    assert asked.wait(5)
    assert_cancelled(running)
    release.set()


def test_a_cancel_ends_a_call_in_its_handshake(wire: Wire, serve: Serve) -> None:
    server = serve(Peer.wait_until_gone)
    running = Running(wire(f"https://127.0.0.1:{server.port}/v1"), request())
    server.arrived.acquire(timeout=5)
    threading.Event().wait(0.05)
    assert_cancelled(running)
    assert server.peer(1).gone.wait(5)


def test_a_cancel_ends_an_upload_that_nobody_reads(wire: Wire, serve: Serve) -> None:
    release = threading.Event()
    server = serve(lambda peer: (release.wait(10), peer.wait_until_gone())[1])
    running = Running(wire(server.base_url), request("x" * 32_000_000))
    server.arrived.acquire(timeout=5)
    threading.Event().wait(0.2)
    assert_cancelled(running)
    release.set()
    assert server.peer(1).gone.wait(5)


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
    arrived = threading.Event()

    def talk(peer: Peer) -> None:
        peer.read_request()
        arrived.set()
        peer.send(b"".join(sent))
        peer.wait_until_gone()

    server = serve(talk, encrypted=encrypted)
    running = Running(wire(server.base_url), request())
    assert arrived.wait(5)
    if bytes_due:
        assert running.bytes.acquire(timeout=5)
    threading.Event().wait(0.05)
    assert_cancelled(running)
    assert server.peer(1).gone.wait(CANCEL_BOUND_S)


def test_a_cancel_ends_the_wait_before_another_try(wire: Wire, stub: StubModelServer) -> None:
    stub.script([Reply(status=429, headers={"Retry-After": "20"})])
    running = Running(wire(stub.base_url), request(), Limits(retries=2))
    stub.wait_for_requests(1)
    threading.Event().wait(0.1)
    assert_cancelled(running)
    assert len(stub.requests) == 1


def test_a_cancelled_call_sends_nothing(wire: Wire, stub: StubModelServer) -> None:
    token = CancelToken()
    token.cancel()
    with pytest.raises(CallCancelled):
        wire(stub.base_url).complete(request(), limits=QUICK, watch=CallWatch(cancel=token))
    assert stub.requests == []


def test_a_cancel_on_a_used_connection_leaves_the_client_usable(wire: Wire, serve: Serve) -> None:
    second = threading.Event()

    def talk(peer: Peer) -> None:
        if peer.number > 1:
            answer(peer)
            return
        peer.read_request()
        peer.send(STREAM_HEAD + chunk(ANSWER) + b"0\r\n\r\n")
        peer.read_request()
        second.set()
        peer.wait_until_gone()

    server = serve(talk)
    provider = wire(server.base_url)
    provider.complete(request(), limits=QUICK, watch=CallWatch())
    running = Running(provider, request())
    assert second.wait(5)
    assert_cancelled(running)
    reply = provider.complete(request(), limits=QUICK, watch=CallWatch())
    assert reply.message["content"] == "hi"
    assert len(server.peers) == 2


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
