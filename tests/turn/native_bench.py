"""Agents on a route that may compact by itself."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from agent.base.settings import CompressionSettings, Settings
from agent.testing.stub_server import StubModelServer
from hermes_state import SessionDB
from run_agent import AIAgent

Open = Callable[..., AIAgent]


@contextmanager
def native_agents(stub: StubModelServer, store: SessionDB, api_mode: str) -> Iterator[Open]:
    """Give a function that opens an agent on session `s`; all are closed afterwards."""
    opened: list[AIAgent] = []

    def start(*, native: bool = True, threshold: int = 4_500, **given: Any) -> AIAgent:
        compression = CompressionSettings(
            codex_responses_native=native,
            codex_responses_compact_threshold=threshold,
            background=False,
        )
        keywords = {
            "base_url": stub.base_url,
            "model": "m",
            "api_mode": api_mode,
            "context_length": 16_384,
            "session_db": store,
            "session_id": "s",
            "settings": Settings(compression=compression),
            **given,
        }
        opened.append(AIAgent(**keywords))
        return opened[-1]

    yield start
    for agent in opened:
        agent.close()
