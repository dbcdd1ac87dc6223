"""A client that talks to a conversation over HTTP: through the proxy, or to the server."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from agent.base.messages import Message
from agent.base.settings import ProxySettings, Settings
from agent.testing.stub_server import StubModelServer
from hermes_state import SessionDB
from tests.field_reports.harness import settings_for
from tests.proxy.serving import Caller, serving
from tests.server.served import Served

SURFACES = ("proxy", "serve")
CALLERS_KEY = "key-of-the-caller-4f1b7c"
TOOLS: list[dict[str, Any]] = [
    {"type": "function", "function": {"name": "view", "parameters": {"type": "object"}}}
]


class ThroughProxy(Caller):
    """A client that keeps the history."""

    def __init__(self, url: str, store: SessionDB) -> None:
        super().__init__(url, CALLERS_KEY, tools=TOOLS)
        self.store = store

    def send(self, *messages: Message) -> Message:
        self.messages += messages
        return self.go_on()


class ToServer(Served):
    """A client that lets the server keep the history."""

    def __init__(self, path: Path, stub: StubModelServer, settings: Settings) -> None:
        super().__init__(path, stub)
        self._settings = settings
        self.session = ""

    @property
    def settings(self) -> Settings:
        return replace(self._settings, server=self.server_settings)

    def send(self, *messages: Message) -> Message:
        response = self.chat(*messages, session=self.session, tools=TOOLS)
        assert response.status_code == 200, response.text
        self.session = response.headers["X-Hermes-Session"]
        answer: Message = response.json()["choices"][0]["message"]
        return answer


Talk = ThroughProxy | ToServer


@contextmanager
def talking(
    surface: str, path: Path, stub: StubModelServer, *, window_tokens: int, background: bool = False
) -> Iterator[Talk]:
    """Serve on a store in `path` for the length of a `with` block, with a summary model."""
    settings = replace(
        settings_for(stub.base_url, window_tokens=window_tokens, background=background),
        proxy=ProxySettings(context_length=window_tokens),
    )
    if surface == "serve":
        server = ToServer(path, stub, settings)
        server.start()
        try:
            yield server
        finally:
            server.stop()
        return
    store = SessionDB(path / "state.db")
    with serving(store, stub.base_url, settings) as url:
        caller = ThroughProxy(url, store)
        with caller:
            yield caller
    store.close()


def session_of(talk: Talk) -> str:
    """Return the id of the one session of a store."""
    [session] = talk.store.sessions()
    return session.id
