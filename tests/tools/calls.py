"""Tools, calls and one run of the runner, for its tests."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import orjson

from agent.base.events import Event
from agent.tools.protocol import Access, Tool, ToolContext
from agent.tools.runner import Confirm, ToolOutcome, ToolRunner

Run = Callable[[Mapping[str, Any], ToolContext], str]


def make_tool(name: str, run: Run, access: Access = Access.READ) -> Tool:
    return Tool(
        name=name,
        description="",
        parameters={"type": "object", "properties": {"n": {"type": "integer"}}},
        access=access,
        run=run,
        describe=lambda arguments: f"{name} {arguments.get('n', '')}".strip(),
    )


def make_call(name: str, call_id: str = "", **arguments: Any) -> dict[str, Any]:
    text = orjson.dumps(arguments).decode()
    return {
        "id": call_id or f"c-{name}-{arguments.get('n', '')}",
        "type": "function",
        "function": {"name": name, "arguments": text},
    }


def raising(error: BaseException) -> Run:
    def run(_arguments: Mapping[str, Any], _context: ToolContext) -> str:
        raise error

    return run


@dataclass(frozen=True)
class Ran:
    """What a run gave: outcomes in order of completion, and events."""

    outcomes: list[ToolOutcome]
    events: list[Event]

    @property
    def results(self) -> list[tuple[str, bool, str]]:
        return [(outcome.call_id, outcome.ok, outcome.content) for outcome in self.outcomes]


def run_calls(
    context: ToolContext,
    tools: list[Tool],
    calls: list[dict[str, Any]],
    *,
    confirm: Confirm | None = None,
    on_result: Callable[[ToolOutcome], None] = lambda _outcome: None,
) -> Ran:
    ran = Ran([], [])

    def take(outcome: ToolOutcome) -> None:
        ran.outcomes.append(outcome)
        on_result(outcome)

    named = {tool.name: tool for tool in tools}
    ToolRunner(named, context, confirm, ran.events.append).run_calls(calls, take)
    return ran


def echo(arguments: Mapping[str, Any], _context: ToolContext) -> str:
    return f"echo {arguments.get('n', '')}"


ECHO = make_tool("echo", echo)
