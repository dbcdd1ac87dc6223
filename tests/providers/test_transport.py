"""Cancel, limits, life and connections of the model wires, over real sockets.

Bounds: a cancel ends a call within 50 ms; asserted at four times that.
"""

from __future__ import annotations

import gzip
import socket
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

import pytest

from agent.base.cancel import CancelToken
from agent.base.errors import CallCancelled, CallStalled, CallTimeout, HermesError, NetworkError
from agent.providers import transport
from agent.providers.chat_completions import ChatCompletions
from agent.providers.protocol import CallWatch, Limits, ModelReply, ModelRequest
from agent.testing.stub_reply import Reply
from agent.testing.stub_server import StubModelServer
from tests.providers.conftest import Wire
from tests.providers.raw_server import CERTIFICATE, STREAM_HEAD, Peer, Serve

CANCEL_BOUND_S = 0.2
ANSWER = (
    b'data: {"choices":[{"index":0,"delta":{"content":"hi"},"finish_reason":"stop"}]}\n\n'
    b"data: [DONE]\n\n"
)
QUICK = Limits(connect_s=5, first_byte_s=5, idle_s=5, total_s=20, retries=0)


def request(text: str = "hello") -> ModelRequest:
    return ModelRequest(messages=[{"role": "user", "content": text}], max_tokens=50)


def answer(peer: Peer) -> None:
    """Read requests and answer each with a short stream until the client leaves."""
    while peer.read_request():
        peer.send(STREAM_HEAD)
        peer.send_chunk(ANSWER)
        peer.send(b"0\r\n\r\n")


@dataclass
class Outcome:
    reply: ModelReply | None = None
    error: HermesError | None = None
    ended_at: float = 0.0


class Running:
    """A call in its own thread, which a test cancels."""

    def __init__(
        self, provider: ChatCompletions, sent: ModelRequest, limits: Limits = QUICK
    ) -> None:
        self.token = CancelToken()
        self.bytes = threading.Semaphore(0)
        self._outcome = Outcome()
        self._call = (provider, sent, limits)
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        provider, sent, limits = self._call
        watch = CallWatch(cancel=self.token, on_bytes=lambda _count: self.bytes.release())
        try:
            self._outcome.reply = provider.complete(sent, limits=limits, watch=watch)
        except HermesError as error:
            self._outcome.error = error
        self._outcome.ended_at = time.monotonic()

    def cancel(self) -> tuple[HermesError | None, float]:
        """Cancel; return how the call ended and after how many seconds."""
        cancelled_at = time.monotonic()
        self.token.cancel()
        self._thread.join(10)
        assert not self._thread.is_alive()
        return self._outcome.error, self._outcome.ended_at - cancelled_at

    def outcome(self) -> Outcome:
        self._thread.join(10)
        assert not self._thread.is_alive()
        return self._outcome


def assert_cancelled(running: Running) -> None:
    error, latency_s = running.cancel()
    assert isinstance(error, CallCancelled)
    assert latency_s < CANCEL_BOUND_S


def wait_for(condition: Callable[[], bool], limit_s: float = 5.0) -> None:
    deadline = time.monotonic() + limit_s
    pause = threading.Event()
    while not condition():
        assert time.monotonic() < deadline
        pause.wait(0.005)


# -- cancel -------------------------------------------------------------------------------------
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
    assert server.peers[0].gone.wait(1)


def test_a_cancel_ends_an_upload_that_nobody_reads(wire: Wire, serve: Serve) -> None:
    release = threading.Event()
    server = serve(lambda peer: (release.wait(10), peer.wait_until_gone())[1])
    running = Running(wire(server.base_url), request("x" * 32_000_000))
    server.arrived.acquire(timeout=5)
    threading.Event().wait(0.2)
    assert_cancelled(running)
    release.set()
    assert server.peers[0].gone.wait(1)


def read_then(*sent: bytes) -> Callable[[Peer], None]:
    def talk(peer: Peer) -> None:
        peer.read_request()
        peer.send(b"".join(sent))
        peer.wait_until_gone()

    return talk


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(data), data)


PIECE = b'data: {"choices":[{"delta":{"content":"hi"}}]}\n\n'


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
    assert server.peers[0].gone.wait(CANCEL_BOUND_S)


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
    stub.script([Reply(text="late", before_first_byte_s=0.5)])
    limits = Limits(first_byte_s=10, idle_s=0.1, retries=0)
    reply = wire(stub.base_url).complete(request(), limits=limits, watch=CallWatch())
    assert reply.message["content"] == "late"


def test_a_server_that_answers_whole_is_bound_by_the_total_limit(
    wire: Wire, stub: StubModelServer
) -> None:
    stub.script([Reply(text="whole", ignore_stream=True, before_first_byte_s=0.5)])
    limits = Limits(first_byte_s=10, idle_s=0.1, retries=0)
    reply = wire(stub.base_url).complete(request(), limits=limits, watch=CallWatch())
    assert reply.message["content"] == "whole"


def test_comment_lines_are_life(wire: Wire, stub: StubModelServer) -> None:
    stub.script([Reply(text="late", before_first_byte_s=1.0, comments_every_s=0.1)])
    counts: list[int] = []
    limits = Limits(first_byte_s=0.6, idle_s=0.6, retries=0)
    watch = CallWatch(on_bytes=counts.append)
    reply = wire(stub.base_url).complete(request(), limits=limits, watch=watch)
    assert reply.message["content"] == "late"
    assert len(counts) > 5


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


def failed(wire: Wire, base_url: str, limits: Limits, text: str = "hello") -> HermesError:
    provider = wire(base_url)
    with pytest.raises(HermesError) as caught:
        provider.complete(request(text), limits=limits, watch=CallWatch())
    return caught.value


# -- connections --------------------------------------------------------------------------------
def test_a_connection_is_kept_and_used_again(wire: Wire, serve: Serve) -> None:
    server = serve(answer)
    provider = wire(server.base_url)
    for _ in range(3):
        provider.complete(request(), limits=QUICK, watch=CallWatch())
    assert len(server.peers) == 1
    provider.close()
    assert server.peers[0].gone.wait(1)
    provider.complete(request(), limits=QUICK, watch=CallWatch())
    assert len(server.peers) == 2


def test_a_server_that_keeps_a_finished_stream_open_is_not_waited_for(
    wire: Wire, serve: Serve
) -> None:
    server = serve(read_then(STREAM_HEAD, chunk(ANSWER)))
    provider = wire(server.base_url)
    started = time.monotonic()
    reply = provider.complete(request(), limits=QUICK, watch=CallWatch())
    assert (reply.message["content"], reply.finish_reason) == ("hi", "stop")
    assert time.monotonic() - started < 1
    assert server.peers[0].gone.wait(1)


def test_a_connection_that_the_server_closed_meanwhile_is_replaced(
    wire: Wire, serve: Serve
) -> None:
    def talk(peer: Peer) -> None:
        peer.read_request()
        peer.send(STREAM_HEAD + chunk(ANSWER) + b"0\r\n\r\n")

    server = serve(talk)
    provider = wire(server.base_url)
    for _ in range(2):
        provider.complete(request(), limits=QUICK, watch=CallWatch())
        assert server.peers[-1].gone.wait(1)
    assert len(server.peers) == 2


def test_a_compressed_body_is_read(wire: Wire, serve: Serve) -> None:
    body = gzip.compress(ANSWER)
    head = b"HTTP/1.1 200 OK\r\ncontent-encoding: gzip\r\ncontent-length: %d\r\n\r\n" % len(body)
    server = serve(read_then(head, body))
    reply = wire(server.base_url).complete(request(), limits=QUICK, watch=CallWatch())
    assert reply.message["content"] == "hi"


def test_the_next_address_of_a_host_is_tried(
    wire: Wire, serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = serve(answer)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        closed_port = listener.getsockname()[1]
    kind = (socket.AF_INET, socket.SOCK_STREAM, 0, "")
    addresses = [(*kind, ("127.0.0.1", port)) for port in (closed_port, server.port)]
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_args, **_named: addresses)
    reply = wire("http://model.invalid/v1").complete(request(), limits=QUICK, watch=CallWatch())
    assert reply.message["content"] == "hi"


def test_a_name_that_does_not_exist_is_a_network_error(wire: Wire) -> None:
    error = failed(wire, "http://model.invalid/v1", QUICK)
    assert isinstance(error, NetworkError)
    assert str(error).startswith("m at http://model.invalid/v1 cannot be reached: ")


def test_a_refused_connection_is_a_network_error(wire: Wire) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    error = failed(wire, f"http://127.0.0.1:{port}/v1", QUICK)
    assert isinstance(error, NetworkError)
    assert "cannot connect to 127.0.0.1" in str(error)


def test_a_reset_in_the_body_is_a_network_error(wire: Wire, stub: StubModelServer) -> None:
    stub.script([Reply(text="half of it", reset_after_chars=4)])
    error = failed(wire, stub.base_url, Limits(retries=2))
    assert isinstance(error, NetworkError)
    assert len(stub.requests) == 1


def trust_test_certificate(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(CERTIFICATE))
    transport._load_ssl_context.cache_clear()


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
