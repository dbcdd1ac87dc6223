"""What is still to be done, as an assistant's call that replaces a task list says it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from agent.base.messages import Message

MOST_TASKS = 40
TASK_MAX_CHARS = 200
_LISTS = ("tasks", "todos", "items")
_TEXTS = ("text", "content", "title", "task")
FINISHED = frozenset({"done", "completed", "complete", "cancelled", "canceled"})


def tasks_of(message: Message) -> Iterator[tuple[str, str]]:
    """Yield (status, text) of the tasks in the last list that a row's calls replace."""
    for call in reversed(message.get("tool_calls") or ()):
        function = call.get("function") or {}
        arguments = function.get("arguments")
        if isinstance(arguments, str) and '"status"' in arguments:
            tasks = [task for each in _listed(arguments) if (task := _task(each))]
            if tasks:
                yield from tasks[:MOST_TASKS]
                return


def _listed(arguments: str) -> list[Any]:
    """Return the list of tasks among a call's arguments, empty for none."""
    try:
        parsed = json.loads(arguments)
    except ValueError:
        return []
    found = (parsed.get(name) for name in _LISTS) if isinstance(parsed, dict) else ()
    return next((each for each in found if isinstance(each, list)), [])


def _task(entry: Any) -> tuple[str, str] | None:
    if not isinstance(entry, dict) or not isinstance(entry.get("status"), str):
        return None
    texts = (entry.get(name) for name in _TEXTS)
    text = next((each for each in texts if isinstance(each, str) and each.strip()), "")
    text = " ".join(text.split())[:TASK_MAX_CHARS]
    return (entry["status"], text) if text else None
