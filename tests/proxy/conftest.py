"""Stores, stubs and callers that are closed whatever happens."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from agent.base.settings import Settings
from agent.testing.stub_reply import Reply
from agent.testing.stub_server import StubModelServer
from hermes_state import SessionDB
from tests.proxy.serving import SMALL, Caller, serving

MakeCaller = Callable[..., Caller]


@pytest.fixture
def store(tmp_path: Path) -> Iterator[SessionDB]:
    opened = SessionDB(tmp_path / "state.db")
    yield opened
    assert opened.check().problems == []
    opened.close()


@pytest.fixture
def stub() -> Iterator[StubModelServer]:
    with StubModelServer(window_tokens=8_192) as server:
        yield server


@pytest.fixture
def settings() -> Settings:
    return SMALL


@pytest.fixture
def base_url(store: SessionDB, stub: StubModelServer, settings: Settings) -> Iterator[str]:
    with serving(store, stub.base_url, settings) as url:
        yield url


@pytest.fixture
def caller(base_url: str) -> Iterator[MakeCaller]:
    """Make callers of the proxy; each keyword is one of `Caller`."""
    with ExitStack() as stack:

        def make(key: str = "key-of-one", **fields: object) -> Caller:
            return stack.enter_context(Caller(base_url, key, **fields))

        yield make


@pytest.fixture
def held(stub: StubModelServer) -> Callable[[], threading.Event]:
    """Let the next answer of the stub begin only when the event that this returns is set."""

    def hold(**reply: object) -> threading.Event:
        release = threading.Event()
        stub.script([Reply(before_first_byte_s=math.inf, release=release, **reply)])  # type: ignore[arg-type]  # fields of Reply
        return release

    return hold
