"""The tool `todo`: a task list that lives as long as the agent."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from agent.base.errors import ToolError
from agent.tools.protocol import Access, Tool, ToolContext

STATUSES = ("pending", "in_progress", "done")
_MOST = 100
_STATE_KEY = "todo"


def _run(arguments: Mapping[str, Any], context: ToolContext) -> str:
    """Replace the list if one is given, and return the whole list."""
    if "tasks" in arguments:
        tasks = arguments["tasks"]
        if len(tasks) > _MOST:
            raise ToolError(f"{len(tasks)} tasks; the limit is {_MOST}: drop what is done")
        context.state[_STATE_KEY] = [(task["status"], task["text"].strip()) for task in tasks]
    listed = context.state.get(_STATE_KEY, [])
    lines = [f"{number}. [{status}] {text}" for number, (status, text) in enumerate(listed, 1)]
    return "\n".join(lines) or "the list is empty"


TODO = Tool(
    name="todo",
    description=(
        "Keep a list of tasks for work with several steps. Give the whole list to replace it; "
        "give nothing to see it. Keep one task in_progress."
    ),
    parameters={
        "type": "object",
        "properties": {
            "tasks": {
                "type": "array",
                "items": {
                    "type": "object",
                    "properties": {
                        "text": {"type": "string"},
                        "status": {"type": "string", "enum": list(STATUSES)},
                    },
                    "required": ["text", "status"],
                    "additionalProperties": False,
                },
            }
        },
        "additionalProperties": False,
    },
    access=Access.OWN,
    run=_run,
    describe=lambda arguments: (
        "change the task list" if "tasks" in arguments else "show the task list"
    ),
)
