"""Agents along a chain of routes, on one store and one clock."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from agent.base.events import Event, Notice
from agent.base.settings import CompressionSettings, ModelSettings, RouteSettings, Settings
from agent.testing.clock import FakeClock
from agent.testing.stub_reply import Reply
from agent.testing.stub_server import DEFAULT_MODEL, StubModelServer
from hermes_state import SessionDB
from run_agent import AIAgent

FIRST, SECOND, THIRD = DEFAULT_MODEL, "second", "third"


class Bench:
    """Agents on one store and one clock, and what they told."""

    def __init__(self, stub: StubModelServer, path: Path, clock: FakeClock) -> None:
        self.stub = stub
        self.clock = clock
        self.store = SessionDB(path, clock=clock)
        self.events: list[Event] = []
        self.agents: list[AIAgent] = []

    def open(self, *fallbacks: RouteSettings, **model: Any) -> AIAgent:
        settings = Settings(
            model=ModelSettings(
                **{
                    "name": FIRST,
                    "base_url": self.stub.base_url,
                    "api_key": "key-1",
                    "context_length": 16_000,
                    "fallbacks": fallbacks,
                    **model,
                }
            ),
            compression=CompressionSettings(background=False),
        )
        return self.open_with(settings)

    def open_with(self, settings: Settings) -> AIAgent:
        agent = AIAgent(
            settings=settings,
            session_db=self.store,
            session_id="s",
            clock=self.clock,
            builtin_tools=False,
            skip_context_files=True,
            skip_memory=True,
            on_event=self.events.append,
        )
        self.agents.append(agent)
        return agent

    def close(self) -> None:
        for agent in self.agents:
            agent.close()
        self.store.close()

    @property
    def notices(self) -> list[str]:
        return [event.text for event in self.events if isinstance(event, Notice)]

    @property
    def asked(self) -> list[str]:
        """The models that were asked, oldest first; a retry of the wire is not told apart."""
        names = [request.model for request in self.stub.requests]
        return [name for place, name in enumerate(names) if names[place - 1 : place] != [name]]


def route(name: str, **fields: Any) -> RouteSettings:
    return RouteSettings(**{"name": name, "context_length": 16_000, **fields})


def refusing(status: int, **headers: str) -> Reply:
    return Reply(status=status, error="not now", headers=headers)


def talk(agent: AIAgent, tokens: int) -> None:
    words = "the river carried a stone past an old mill "
    while agent.store.view("s").tokens < tokens:
        agent.store.append(
            "s", [{"role": "user", "content": words * 8}, {"role": "assistant", "content": words}]
        )
