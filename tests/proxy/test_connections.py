"""Answers of an upstream, read however they come, and connections kept while they can be."""

from __future__ import annotations

import select
import ssl
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing

import httpcore2
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.base.cancel import CancelToken
from agent.base.errors import CallTimeout
from agent.providers import transport
from agent.providers.call import Call
from agent.providers.protocol import CallWatch, Limits
from agent.server.proxy_connections import Connection, Connections
from tests.providers.calls import trust_test_certificate
from tests.providers.raw_server import Peer, RawServer, Serve, Talk

LENGTH = b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\nX-Odd:\r\n\r\nhello"
CHUNKED = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\nhe\r\n3;x=1\r\nllo\r\n0\r\n"
ANSWERS = {
    "with a length": (LENGTH, b"hello", True),
    "in chunks": (CHUNKED + b"\r\n", b"hello", True),
    "in chunks with a trailer": (CHUNKED + b"x-sum: 5\r\n\r\n", b"hello", True),
    "in chunks, with a length beside": (
        CHUNKED.replace(b"chunked", b"chunked\r\ncontent-length: 9") + b"\r\n",
        b"hello",
        True,
    ),
    "after interim ones": (
        b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Hints\r\nlink: a\r\n\r\n" + LENGTH,
        b"hello",
        True,
    ),
    "without a body": (b"HTTP/1.1 204 No Content\r\n\r\n", b"", True),
    "with bare line ends": (LENGTH.replace(b"\r\n", b"\n"), b"hello", True),
    "that offers another protocol": (
        LENGTH.replace(b"X-Odd:", b"connection: upgrade\r\nupgrade: h2c"),
        b"hello",
        True,
    ),
    "that is the last": (LENGTH.replace(b"X-Odd:", b"connection: close"), b"hello", False),
    "up to the end": (b"HTTP/1.1 200 OK\r\n\r\nhello", b"hello", False),
    "of an old server": (LENGTH.replace(b"HTTP/1.1", b"HTTP/1.0"), b"hello", False),
    "with something behind": (LENGTH + b"and more", b"hello", False),
}
BROKEN = {
    "nothing": b"",
    "half a head": b"HTTP/1.1 200 OK\r\ncontent-len",
    "half a body": LENGTH[:-1],
    "half a chunk": CHUNKED[:-8],
    "chunks without an end": CHUNKED,
    "no HTTP": b"SSH-2.0-OpenSSH\r\n",
    "another protocol": b"HTTP/1.1 101 Go\r\nconnection: upgrade\r\nupgrade: x\r\n\r\n",
    "a control character": LENGTH.replace(b"X-Odd:", b"x: \x01"),
}


class Pieces:
    """A socket whose peer sends what it is given, and then its end."""

    def __init__(self, pieces: list[bytes]) -> None:
        self._pieces = iter(pieces)
        self.written = b""

    def write(self, data: bytes) -> None:
        self.written += data

    def read(self, _most: int) -> bytes:
        return next(self._pieces, b"")


class HungUp(Pieces):
    """A socket whose peer answered before it took everything, and hung up."""

    def write(self, data: bytes) -> None:
        raise httpcore2.WriteError


def cut(data: bytes, places: set[int]) -> list[bytes]:
    bounds = [0, *sorted(place for place in places if 0 < place < len(data)), len(data)]
    return [data[a:b] for a, b in zip(bounds, bounds[1:], strict=False)]


def asked(data: bytes, places: set[int]) -> Connection:
    connection = Connection(Pieces(cut(data, places)))  # type: ignore[arg-type]  # as a socket
    connection.ask(b"GET / HTTP/1.1\r\n\r\n", None)
    return connection


@pytest.fixture
def call() -> Iterator[Call]:
    limits = Limits(connect_s=5.0, first_byte_s=5.0, idle_s=5.0, total_s=20.0)
    with Call(limits, CallWatch(cancel=CancelToken()), "the upstream") as running:
        yield running


@given(st.sampled_from(sorted(ANSWERS)), st.sets(st.integers(1, 160)))
def test_an_answer_is_the_same_however_it_comes(name: str, places: set[int]) -> None:
    data, body, can_stay = ANSWERS[name]
    connection = asked(data, places)
    assert b"".join(connection.iter_stream()) == body
    is_late = name == "with something behind" and connection.can_stay
    assert is_late or connection.can_stay == can_stay


def test_a_head_is_the_servers_without_interim_answers_and_trailers() -> None:
    data = ANSWERS["after interim ones"][0]
    connection = asked(data, set())
    assert (connection.status, connection.headers) == (
        200,
        [(b"content-length", b"5"), (b"X-Odd", b"")],
    )
    connection = asked(ANSWERS["in chunks with a trailer"][0], set())
    list(connection.iter_stream())
    assert connection.headers == [(b"transfer-encoding", b"chunked")]


@given(st.sampled_from(sorted(BROKEN)), st.sets(st.integers(1, 160)))
def test_what_is_no_whole_answer_is_told_and_its_connection_given_up(
    name: str, places: set[int]
) -> None:
    connection = Connection(Pieces(cut(BROKEN[name], places)))  # type: ignore[arg-type]
    with pytest.raises(httpcore2.RemoteProtocolError):
        _ask_and_read(connection)
    assert not connection.can_stay


def _ask_and_read(connection: Connection) -> None:
    connection.ask(b"GET / HTTP/1.1\r\n\r\n", None)
    list(connection.iter_stream())


def test_a_head_without_end_is_given_up() -> None:
    endless = [b"HTTP/1.1 200 OK\r\n", *([b"x: " + b"y" * 60_000 + b"\r\n"] * 3)]
    connection = Connection(Pieces(endless))  # type: ignore[arg-type]
    with pytest.raises(httpcore2.RemoteProtocolError, match="too long"):
        connection.ask(b"GET / HTTP/1.1\r\n\r\n", None)


# -- connections --------------------------------------------------------------------------------
def answering(data: bytes) -> Callable[[Peer], None]:
    def talk(peer: Peer) -> None:
        while peer.read_request():
            peer.send(data)

    return talk


def exchange(connections: Connections, url: str, body: bytes | None = b"{}") -> tuple[int, bytes]:
    headers = [(b"accept", b"*/*")]
    with connections.stream("POST", url, content=body, headers=headers) as answer:
        return answer.status, b"".join(answer.iter_stream())


def wait_for_end(connections: Connections) -> None:
    """Return when the end of the connection that is kept has arrived."""
    [kept] = connections._idle
    assert select.select([kept._stream.get_extra_info("socket")], [], [], 10.0)[0]


@pytest.fixture
def serve() -> Iterator[Serve]:
    with ExitStack() as stack:

        def start(talk: Talk, *, encrypted: bool = False) -> RawServer:
            return stack.enter_context(closing(RawServer(talk, encrypted=encrypted)))

        yield start


@pytest.fixture
def connections() -> Iterator[Connections]:
    opened = Connections(ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT))
    yield opened
    opened.close()


def test_a_request_is_sent_as_it_was_given(
    connections: Connections, serve: Serve, call: Call
) -> None:
    heard: list[bytes] = []

    def talk(peer: Peer) -> None:
        heard.append(peer.read_request())
        peer.send(LENGTH)

    server = serve(talk)
    assert exchange(connections, f"{server.base_url}/x?y=1") == (200, b"hello")
    host = f"127.0.0.1:{server.port}".encode()
    assert heard == [
        b"POST /v1/x?y=1 HTTP/1.1\r\nhost: %s\r\naccept: */*\r\ncontent-length: 2\r\n\r\n{}" % host
    ]


@pytest.mark.parametrize(("name", "count"), [("with a length", 1), ("that is the last", 3)])
def test_a_connection_is_used_again_while_nothing_speaks_against_it(
    connections: Connections, serve: Serve, call: Call, name: str, count: int
) -> None:
    server = serve(answering(ANSWERS[name][0]))
    for _ in range(3):
        assert exchange(connections, server.base_url) == (200, b"hello")
    assert len(server.peers) == count


def test_a_connection_whose_answer_was_not_read_is_closed(
    connections: Connections, serve: Serve, call: Call
) -> None:
    server = serve(answering(LENGTH[:-1]))
    with connections.stream("GET", server.base_url, content=None, headers=[]) as answer:
        assert answer.status == 200
    assert server.peer(1).gone.wait(5)


def test_a_connection_that_ended_meanwhile_is_replaced(
    connections: Connections, serve: Serve, call: Call
) -> None:
    def talk(peer: Peer) -> None:
        peer.read_request()
        peer.send(LENGTH)

    server = serve(talk)
    for _ in range(2):
        assert exchange(connections, server.base_url) == (200, b"hello")
        wait_for_end(connections)
    assert len(server.peers) == 2


def test_an_answer_that_came_before_the_end_of_an_upload_is_read() -> None:
    connection = Connection(HungUp([LENGTH]))  # type: ignore[arg-type]  # as a socket
    connection.ask(b"POST / HTTP/1.1\r\ncontent-length: 9\r\n\r\n", b"x" * 9)
    assert (connection.status, b"".join(connection.iter_stream())) == (200, b"hello")
    assert not connection.can_stay


def test_an_answer_to_half_an_upload_is_read(
    connections: Connections, serve: Serve, call: Call
) -> None:
    head = b"HTTP/1.1 413 Too Large\r\ncontent-length: 0\r\n\r\n"

    def talk(peer: Peer) -> None:
        peer.sock.recv(65_536)
        peer.send(head)

    server = serve(talk)
    try:
        answered = exchange(connections, server.base_url, b"x" * 8_000_000)
    except (httpcore2.NetworkError, httpcore2.RemoteProtocolError):
        return  # the reset overtook the answer, which is then lost for every client
    assert answered == (413, b"")


def test_an_encrypted_upstream_answers(
    serve: Serve, call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    trust_test_certificate(monkeypatch)
    connections = Connections(transport._ssl_context("https"))
    server = serve(answering(LENGTH), encrypted=True)
    for _ in range(2):
        assert exchange(connections, server.base_url) == (200, b"hello")
    assert len(server.peers) == 1
    connections.close()


def test_a_header_cannot_hold_another(connections: Connections, call: Call) -> None:
    sent = connections.stream(
        "GET", "http://127.0.0.1:9/", content=None, headers=[(b"a", b"b\r\nc: d")]
    )
    with pytest.raises(httpcore2.LocalProtocolError), sent:
        pass


def test_the_limits_of_a_call_hold(connections: Connections, serve: Serve) -> None:
    server = serve(lambda peer: peer.wait_until_gone())
    limits = Limits(connect_s=5.0, first_byte_s=0.05, idle_s=5.0, total_s=20.0)
    with (
        Call(limits, CallWatch(cancel=CancelToken()), "the upstream"),
        pytest.raises(CallTimeout),
    ):
        exchange(connections, server.base_url)
    assert server.peer(1).gone.wait(5)
