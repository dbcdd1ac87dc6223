"""A proxy on loopback in front of a strict stub, and a client that keeps its own history."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx2

from agent.base.messages import Message
from agent.base.settings import ProxySettings, Settings
from agent.server.guard import Door, Guard
from agent.server.proxy import Proxy
from agent.server.run import Server, address_of, open_socket
from hermes_state import SessionDB

MODEL = "stub-model"
_PATIENCE_S = 20.0
SMALL = Settings(proxy=ProxySettings(context_length=8_192))


@contextmanager
def serving(
    store: SessionDB,
    upstream: str,
    settings: Settings = SMALL,
    *,
    company_s: float = 0.05,
    grace_s: float = 10.0,
) -> Iterator[str]:
    """Serve a proxy for the length of a `with` block and give its base URL."""
    proxy = Proxy(store, settings, upstream, company_s=company_s)
    with open_socket("127.0.0.1", 0) as listener:
        server = Server(Guard(proxy, Door()), proxy, grace_s=grace_s)
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
        thread.start()
        try:
            yield f"{address_of(listener)}/v1"
        finally:
            server.should_exit = True
            thread.join()
            proxy.close()


def ask(method: str, url: str | httpx2.URL, **fields: Any) -> httpx2.Response:
    """Send one request, with more patience than a busy machine needs."""
    return httpx2.request(method, url, trust_env=False, timeout=_PATIENCE_S, **fields)


class Caller:
    """A client that sends its whole history each time, as most do."""

    def __init__(self, base_url: str, key: str = "key-of-one", **fields: Any) -> None:
        self.messages: list[Message] = []
        self.fields = {"model": MODEL, **fields}
        self.http = httpx2.Client(
            base_url=base_url,
            headers={"authorization": f"Bearer {key}"},
            timeout=_PATIENCE_S,
            trust_env=False,
        )

    def post(self, **fields: Any) -> httpx2.Response:
        """Send the history as it is."""
        body = {**self.fields, "messages": self.messages, **fields}
        return self.http.post("chat/completions", json=body)

    def say(self, text: str, **fields: Any) -> Message:
        """Add a message of the user, and the answer to it; return the answer."""
        self.messages.append({"role": "user", "content": text})
        return self.go_on(**fields)

    def go_on(self, **fields: Any) -> Message:
        """Send the history and add the answer; return the answer."""
        response = self.post(**fields)
        assert response.status_code == 200, response.text
        answer: Message = response.json()["choices"][0]["message"]
        self.messages.append(answer)
        return answer

    def __enter__(self) -> Caller:
        return self

    def __exit__(self, *_error: object) -> None:
        self.http.close()
