"""What `hermes proxy` adds to a model call.

Each client sends a conversation of many messages and goes on with it, one turn a request, so that
each request stores two rows durably; the first turn, in which the proxy takes in the whole
conversation, is not measured, nor are those in which its code is run for the first times.
"""

from __future__ import annotations

import tempfile
from functools import partial

from agent.base.messages import Message
from agent.testing.transcripts import transcript
from benchmarks.server.load import Load, measure
from benchmarks.server.stage import CLIENTS, HERMES, process, show, stub

WARM_UP = 20
"""Requests before those that are measured."""


def run(rounds: int, messages: int, window_tokens: int) -> float:
    """Print one line for each number of clients; return what is added for one, in milliseconds."""
    rows = transcript(3, messages=messages, base64_share=0.0)
    rows = rows if rows[-1]["role"] == "assistant" else [*rows, _answer()]
    added = []
    with tempfile.TemporaryDirectory() as home, stub() as upstream:
        words = (*HERMES, "proxy", "--upstream", upstream.address, "--port", "0")
        settings = {"HERMES_HOME": home, "HERMES_PROXY__CONTEXT_LENGTH": str(window_tokens)}
        with process(*words, **settings) as proxy:
            for clients in CLIENTS:
                headers = partial(_headers, clients)
                first = max(1, WARM_UP // clients)
                warm = Load(clients, first, partial(history, rows))
                load = Load(clients, max(3, rounds // clients), partial(_later, rows, first))
                measure(proxy.address, warm, headers)
                proxy.wait_until_idle()
                direct = measure(upstream.address, load, headers)
                before_s = proxy.cpu_s
                proxied = measure(proxy.address, load, headers)
                proxy.wait_until_idle()
                added.append(show(clients, direct, proxied, proxy.cpu_s - before_s))
    return added[0]


def _headers(clients: int, number: int) -> dict[str, str]:
    return {"authorization": f"Bearer key-{clients}-{number}"}


def _answer() -> Message:
    return {"role": "assistant", "content": "noted"}


def _later(rows: list[Message], done: int, number: int, place: int) -> list[Message]:
    return history(rows, number, done + place)


def history(rows: list[Message], number: int, place: int) -> list[Message]:
    """Return a client's history in one round: the transcript, then a turn for each round."""
    turns = [
        message
        for turn in range(place)
        for message in ({"role": "user", "content": f"client {number}, turn {turn}"}, _answer())
    ]
    return [*rows, *turns, {"role": "user", "content": f"client {number}, turn {place}"}]
