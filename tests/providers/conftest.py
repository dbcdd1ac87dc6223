"""Fixtures of the wire tests: raw servers, a port that answers nobody, providers that end."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator

import pytest

from agent.providers import call
from agent.providers.chat_completions import ChatCompletions
from agent.providers.http_model import HttpModel
from agent.testing import network
from agent.testing.clock import FakeClock
from tests.providers.raw_server import RawServer, Serve, Talk

Wire = Callable[..., HttpModel]


@pytest.fixture
def wire() -> Iterator[Wire]:
    """A function that opens a chat-completions provider; all are closed after the test."""
    yield from openings(ChatCompletions)


def openings(kind: type[HttpModel]) -> Iterator[Wire]:
    """Yield a function that opens a provider of a wire for a base URL; close all afterwards."""
    opened: list[HttpModel] = []

    def open_wire(base_url: str, **settings: object) -> HttpModel:
        given = {"api_key": "k-secret", "model": "m", "window_tokens": 8_192} | settings
        opened.append(kind(base_url=base_url, **given))  # type: ignore[arg-type]
        return opened[-1]

    yield open_wire
    for provider in opened:
        provider.close()


@pytest.fixture
def serve() -> Iterator[Serve]:
    """A function that starts a `RawServer`; all are stopped after the test."""
    servers: list[RawServer] = []

    def start(talk: Talk, *, encrypted: bool = False) -> RawServer:
        servers.append(RawServer(talk, encrypted=encrypted))
        return servers[-1]

    yield start
    for server in servers:
        server.close()


@pytest.fixture
def call_clock(monkeypatch: pytest.MonkeyPatch) -> FakeClock:
    """The clock by which calls of this test count their limits; it moves by hand only."""
    clock = FakeClock()
    monkeypatch.setattr(call, "time", clock)
    return clock


@pytest.fixture
def closed_port() -> Iterator[int]:
    """A port on loopback that refuses connections, and that nobody else is given meanwhile."""
    with network.closed_port() as port:
        yield port


@pytest.fixture
def full_port() -> Iterator[int]:
    """A port on loopback that answers no connection: its queue is full and nobody accepts."""
    listener = socket.socket()
    listener.bind(("127.0.0.1", 0))
    listener.listen(0)
    port = listener.getsockname()[1]
    waiting = []
    for _ in range(4):
        sock = socket.socket()
        sock.setblocking(False)
        sock.connect_ex(("127.0.0.1", port))
        waiting.append(sock)
    yield port
    for sock in [*waiting, listener]:
        sock.close()
