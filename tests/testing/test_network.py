"""The guard that keeps the suite on this machine."""

from __future__ import annotations

import contextlib
import socket
from pathlib import Path

import pytest

from agent.testing.network import ForbiddenConnection, LoopbackOnly

ELSEWHERE = ("192.0.2.1", 9)


@pytest.mark.parametrize("call", ["connect", "connect_ex"])
def test_a_connection_elsewhere_is_refused_and_recorded(call: str) -> None:
    with LoopbackOnly() as guard, socket.socket() as sock:
        with pytest.raises(ForbiddenConnection, match="only loopback is allowed here"):
            getattr(sock, call)(ELSEWHERE)
        assert guard.take_breaches() == [f"{call} to ('192.0.2.1', 9)"]
        assert guard.breaches == []


def test_a_datagram_elsewhere_is_refused() -> None:
    with LoopbackOnly() as guard, socket.socket(type=socket.SOCK_DGRAM) as sock:
        with pytest.raises(ForbiddenConnection):
            sock.sendto(b"x", ELSEWHERE)
        assert guard.breaches == ["sendto to ('192.0.2.1', 9)"]


@pytest.mark.parametrize("look_up", ["getaddrinfo", "gethostbyname"])
def test_a_look_up_elsewhere_is_refused_even_if_the_error_is_swallowed(look_up: str) -> None:
    arguments = ("example.org", 80) if look_up == "getaddrinfo" else ("example.org",)
    with LoopbackOnly() as guard:
        with contextlib.suppress(OSError):
            getattr(socket, look_up)(*arguments)
        assert guard.breaches == ["look-up of 'example.org'"]


def test_a_name_that_cannot_exist_fails_to_resolve_and_is_no_breach() -> None:
    with LoopbackOnly() as guard:
        with pytest.raises(socket.gaierror):
            socket.create_connection(("nobody.invalid", 80))
        assert guard.breaches == []


@pytest.mark.parametrize("host", ["127.0.0.1", "127.1.2.3", "localhost"])
def test_loopback_is_reached(host: str) -> None:
    with LoopbackOnly() as guard, socket.create_server(("", 0)) as server:
        with socket.create_connection((host, server.getsockname()[1]), timeout=5):
            pass
        assert guard.breaches == []


def test_a_unix_socket_is_reached(tmp_path: Path) -> None:
    path = str(tmp_path / "s")
    with (
        LoopbackOnly() as guard,
        socket.socket(socket.AF_UNIX) as server,
        socket.socket(socket.AF_UNIX) as client,
    ):
        server.bind(path)
        server.listen()
        client.connect(path)
        assert guard.breaches == []


def test_leaving_puts_everything_back() -> None:
    before = (socket.socket.connect, socket.getaddrinfo)
    with LoopbackOnly():
        assert (socket.socket.connect, socket.getaddrinfo) != before
    assert (socket.socket.connect, socket.getaddrinfo) == before
