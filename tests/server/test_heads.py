"""Heads of requests: bounded, however they come."""

from __future__ import annotations

import socket
from urllib.parse import urlsplit

import pytest

from agent.server.heads import LARGEST_HEAD_BYTES
from tests.server.served import Served

HEALTH = b"GET /healthz HTTP/1.1\r\nhost: localhost\r\n"
PIECE = b"x-odd: " + b"y" * 4_000 + b"\r\n"


def said(served: Served, *pieces: bytes) -> bytes:
    """Return what a server says to pieces until it hangs up."""
    parts = urlsplit(served.url)
    with socket.create_connection((parts.hostname, parts.port)) as client:
        client.settimeout(10.0)
        answer = b""
        try:
            for piece in pieces:
                client.sendall(piece)
            while data := client.recv(65_536):
                answer += data
        except ConnectionError:
            return answer or b"cut off"
    return answer


@pytest.mark.parametrize("piece", [PIECE, b"y" * 4_000], ids=["many lines", "one line"])
def test_a_head_that_does_not_end_is_refused(served: Served, piece: bytes) -> None:
    more = 2 * LARGEST_HEAD_BYTES // len(piece) + 100
    answer = said(served, HEALTH + b"x-long: ", *[piece] * more)
    assert answer == b"cut off" or answer.startswith(b"HTTP/1.1 400 ")


def test_a_long_head_that_ends_is_read(served: Served) -> None:
    answer = said(served, HEALTH + b"connection: close\r\n", *[PIECE] * 8, b"\r\n")
    assert answer.startswith(b"HTTP/1.1 200 ")


def test_bytes_before_a_head_do_not_count(served: Served) -> None:
    body = b" " * (2 * LARGEST_HEAD_BYTES)
    first = HEALTH.replace(b"GET", b"POST") + b"content-length: %d\r\n\r\n" % len(body) + body
    answer = said(served, first + HEALTH, b"connection: close\r\n\r\n")
    assert answer.count(b"HTTP/1.1 ") == 2
    assert b'{"status":"ok"}' in answer
