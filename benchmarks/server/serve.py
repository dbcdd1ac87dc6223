"""What a turn of `hermes serve` adds to a model call: warm sessions, one turn a request."""

from __future__ import annotations

import tempfile
from functools import partial
from pathlib import Path

from agent.base.messages import Message
from agent.server.guard import TOKEN_FILE
from agent.testing.stub_server import DEFAULT_MODEL
from benchmarks.server.load import Load, measure
from benchmarks.server.stage import CLIENTS, HERMES, process, show, stub


def run(rounds: int, window_tokens: int) -> None:
    """Print one line for each number of clients."""
    with tempfile.TemporaryDirectory() as home, stub() as model:
        settings = {
            "HERMES_HOME": home,
            "HERMES_MODEL__NAME": DEFAULT_MODEL,
            "HERMES_MODEL__BASE_URL": model.address,
            "HERMES_MODEL__CONTEXT_LENGTH": str(window_tokens),
            "HERMES_SERVER__MAX_WAITING": str(max(CLIENTS)),
            "HERMES_SERVER__WARM_SESSIONS": str(sum(CLIENTS)),
        }
        with process(*HERMES, "serve", "--port", "0", **settings) as server:
            address = f"{server.address}/v1"
            token = (Path(home) / TOKEN_FILE).read_text("ascii").strip()
            for clients in CLIENTS:
                names = _begin(server.address, token, clients)
                headers = partial(_headers, token, names)
                measure(address, Load(clients, 1, _message), headers)
                server.wait_until_idle()
                load = Load(clients, max(3, rounds // clients), _message)
                direct = measure(model.address, load, headers)
                before_s = server.cpu_s
                served = measure(address, load, headers)
                server.wait_until_idle()
                show(clients, direct, served, server.cpu_s - before_s)


def _begin(address: str, token: str, clients: int) -> list[str]:
    """Begin a session for each client and return their ids."""
    import httpx2

    with httpx2.Client(base_url=address, headers={"Authorization": f"Bearer {token}"}) as client:
        answers = [client.post("/api/sessions", json={}) for _ in range(clients)]
    return [answer.raise_for_status().json()["id"] for answer in answers]


def _headers(token: str, names: list[str], number: int) -> dict[str, str]:
    return {"authorization": f"Bearer {token}", "x-hermes-session": names[number]}


def _message(number: int, place: int) -> list[Message]:
    return [{"role": "user", "content": f"client {number}, turn {place}"}]
