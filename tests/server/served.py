"""A running server for tests: real uvicorn on loopback, a store on disk, the stub as its model."""

from __future__ import annotations

import dataclasses
import json
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import httpx2

from agent.base.settings import CompressionSettings, ModelSettings, ServerSettings, Settings
from agent.server.app import ServedApp
from agent.server.run import Server, address_of, open_socket, run_server
from agent.server.store import ServedStore
from agent.testing.stub_server import DEFAULT_MODEL, StubModelServer

TOKEN = "token-of-the-test"
KEY = {"Authorization": f"Bearer {TOKEN}"}
CHAT = "/v1/chat/completions"
Json = dict[str, Any]


class Served:
    """One server at a time on one store; `start` again after `stop` is a restart."""

    def __init__(self, path: Path, stub: StubModelServer) -> None:
        self.path = path
        self.stub = stub
        self.server_settings = ServerSettings(port=0, shutdown_seconds=5.0)
        self.compression = CompressionSettings(background=False)
        self.window_tokens = 128_000
        self.model_url = stub.base_url

    @property
    def settings(self) -> Settings:
        """What it is started with."""
        model = ModelSettings(
            name=DEFAULT_MODEL, base_url=self.model_url, context_length=self.window_tokens
        )
        return Settings(model=model, server=self.server_settings, compression=self.compression)

    def start(self, **server: Any) -> Served:
        """Start, with these keys of the section `server`."""
        self.server_settings = dataclasses.replace(self.server_settings, **server)
        self.store = ServedStore(db_path=self.path / "served.db")
        app = ServedApp(self.settings, self.store, TOKEN)
        self._listener = open_socket("127.0.0.1", 0)
        self.url = address_of(self._listener)
        self._server = Server(app, app, grace_s=self.server_settings.shutdown_seconds)
        self._thread = threading.Thread(target=self._run, name="served")
        self._thread.start()
        self.client = httpx2.Client(base_url=self.url, headers=KEY, timeout=15.0)
        assert self.get("/healthz").status_code == 200
        return self

    def _run(self) -> None:
        run_server(self._server, self._listener, lambda: None)

    def ask_to_stop(self) -> None:
        """Do what a signal does, and return at once."""
        self._server.should_exit = True

    def stop(self) -> None:
        """Stop, and wait until it has ended."""
        self.ask_to_stop()
        self._thread.join()
        self.client.close()
        self.store.close()

    # -- requests -----------------------------------------------------------------------------
    def get(self, path: str, **options: Any) -> httpx2.Response:
        """Ask for a path."""
        return self.client.get(path, **options)

    def post(self, path: str, body: Any = None, **headers: str) -> httpx2.Response:
        """Send a JSON body."""
        return self.client.post(path, json={} if body is None else body, headers=headers)

    def chat(
        self, *messages: Mapping[str, Any], session: str = "", **fields: Any
    ) -> httpx2.Response:
        """Send a chat request with these messages."""
        return self.post(CHAT, chat_body(*messages, **fields), **session_header(session))

    def rows(self, session: str, view: str = "live") -> list[tuple[str, Any]]:
        """Return role and content of the rows of a session."""
        found = self.get(f"/api/sessions/{session}/messages", params={"view": view}).json()
        return [(row["role"], row["content"]) for row in found["messages"]]


def session_header(session: str) -> dict[str, str]:
    """Return the header that names a session, none for an empty name."""
    return {"X-Hermes-Session": session} if session else {}


def chat_body(*messages: Mapping[str, Any], **fields: Any) -> Json:
    """Return the body of a chat request."""
    return {"model": DEFAULT_MODEL, "messages": list(messages), **fields}


def read_events(response: httpx2.Response) -> Iterator[Any]:
    """Yield the data of each event of a stream: JSON values, `[DONE]` as it is."""
    return events_in(response.iter_lines())


def events_in(lines: Iterator[str]) -> Iterator[Any]:
    """Yield the data of each event of the lines of a stream."""
    for line in lines:
        if line.startswith("data: "):
            data = line.removeprefix("data: ")
            yield data if data == "[DONE]" else json.loads(data)


def error_of(response: httpx2.Response) -> tuple[int, str, str]:
    """Return status, type and code of a failure, whose message must be one line."""
    error = response.json()["error"]
    assert set(error) == {"type", "message", "code"}
    assert error["message"] == " ".join(error["message"].split()) != ""
    return response.status_code, error["type"], error["code"]
