"""Bodies that stop coming: given up after a while, and no reason for a server not to stop."""

from __future__ import annotations

import asyncio
import math
import socket
import time
from typing import Any

import pytest

from agent.server.faults import Fault
from agent.server.uploads import SILENCE_S, Uploads
from tests.server.served import CHAT, TOKEN, Served

BEGUN = {"type": "http.request", "body": b"{", "more_body": True}


async def read_all(silence_s: float, *, stops: bool) -> tuple[int, str, str]:
    """Read a body whose end never comes; return how that was answered."""
    answers: list[tuple[int, str, str]] = []
    reads = asyncio.Event()
    pieces = [BEGUN]

    async def receive() -> dict[str, Any]:
        if pieces:
            return pieces.pop()
        reads.set()
        await asyncio.Event().wait()
        raise AssertionError

    async def app(_scope: Any, take: Any, _send: Any) -> None:
        try:
            while True:
                await take()
        except Fault as fault:
            answers.append((fault.answer.status, fault.answer.code, fault.answer.message))

    async def send(_message: Any) -> None:
        raise AssertionError

    uploads = Uploads(app, silence_s=silence_s)
    serving = asyncio.ensure_future(uploads({"type": "http"}, receive, send))
    await reads.wait()
    if stops:
        uploads.stop()
    await serving
    [answer] = answers
    return answer


def test_a_body_that_stops_coming_is_given_up() -> None:
    assert asyncio.run(read_all(0.01, stops=False)) == (
        408,
        "upload_timeout",
        "nothing came of the body for 0.01 s; send the request again",
    )


def test_a_stop_gives_up_what_has_not_come_yet() -> None:
    assert asyncio.run(read_all(math.inf, stops=True)) == (
        503,
        "stopping",
        "the server is stopping and the body has not come yet; send the request again",
    )


def test_after_its_end_a_client_may_be_waited_for_as_long_as_it_stays() -> None:
    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": b"{}", "more_body": False}

    async def app(_scope: Any, take: Any, _send: Any) -> None:
        await take()
        uploads.stop()
        assert await take() == await receive()

    async def send(_message: Any) -> None:
        raise AssertionError

    uploads = Uploads(app)
    asyncio.run(uploads({"type": "http"}, receive, send))


def test_a_server_does_not_wait_for_half_sent_requests_when_it_stops(
    hermes: Served, caplog: pytest.LogCaptureFixture
) -> None:
    hermes.start(shutdown_seconds=SILENCE_S)
    address = hermes.client.base_url
    head = (
        f"POST {CHAT} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {TOKEN}\r\n"
        "Content-Length: 1000\r\nExpect: 100-continue\r\n\r\n{"
    )
    slow = [socket.create_connection((address.host, address.port)) for _ in range(3)]
    for connection in slow:
        connection.settimeout(10.0)
        connection.sendall(head.encode())
        assert connection.recv(4_096) == b"HTTP/1.1 100 Continue\r\n\r\n"  # it waits for the rest
    begun = time.monotonic()
    hermes.stop()
    assert time.monotonic() - begun < SILENCE_S / 3
    for connection in slow:
        assert connection.recv(4_096).startswith(b"HTTP/1.1 503")
        connection.close()
    assert caplog.text == ""
