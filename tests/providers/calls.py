"""Requests, answers and calls that the wire's tests share."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

from agent.base.errors import HermesError
from agent.providers import transport
from agent.providers.protocol import CallWatch, Limits, ModelRequest
from agent.testing.clock import FakeClock
from agent.testing.stub_line import COMMENT
from tests.providers.conftest import Wire
from tests.providers.raw_server import CERTIFICATE, STREAM_HEAD, Peer, Talk

ANSWER = (
    b'data: {"choices":[{"index":0,"delta":{"content":"hi"},"finish_reason":"stop"}]}\n\n'
    b"data: [DONE]\n\n"
)
PIECE = b'data: {"choices":[{"delta":{"content":"hi"}}]}\n\n'
QUICK = Limits(connect_s=5, first_byte_s=5, idle_s=5, total_s=20, retries=0)


def request(text: str = "hello") -> ModelRequest:
    return ModelRequest(messages=[{"role": "user", "content": text}], max_tokens=50)


def answer(peer: Peer) -> None:
    """Read requests and answer each with a short stream until the client leaves.

    In one piece: a client does not wait long for the end of a finished stream.
    """
    while peer.read_request():
        peer.send(STREAM_HEAD + chunk(ANSWER) + b"0\r\n\r\n")


class Heard:
    """What a call has heard of a body; each piece moves the call's clock on by some seconds.

    The server sends a piece once the one before was heard, so that each is waited for.
    """

    def __init__(self, clock: FakeClock, seconds: float) -> None:
        self.counts: list[int] = []
        self._clock, self._seconds = clock, seconds
        self._turn = threading.Semaphore(1)

    def hear(self, count: int) -> None:
        """Hear a piece; for `CallWatch.on_bytes`."""
        self.counts.append(count)
        self._clock.advance(self._seconds)
        self._turn.release()

    def comments_then(self, body: bytes, *, count: int) -> Talk:
        """Return a talk that sends so many comment lines before it sends a stream's body."""

        def talk(peer: Peer) -> None:
            peer.read_request()
            peer.send(STREAM_HEAD)
            for piece in [*[COMMENT] * count, body]:
                assert self._turn.acquire(timeout=10)
                peer.send_chunk(piece)
            peer.send(b"0\r\n\r\n")
            peer.wait_until_gone()

        return talk


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(data), data)


def read_then(*sent: bytes) -> Callable[[Peer], None]:
    def talk(peer: Peer) -> None:
        peer.read_request()
        peer.send(b"".join(sent))
        peer.wait_until_gone()

    return talk


def failed(wire: Wire, base_url: str, limits: Limits, text: str = "hello") -> HermesError:
    provider = wire(base_url)
    with pytest.raises(HermesError) as caught:
        provider.complete(request(text), limits=limits, watch=CallWatch())
    return caught.value


def trust_test_certificate(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(CERTIFICATE))
    transport._load_ssl_context.cache_clear()
