"""The tool `memory`: lines in `memory.md` that the agent keeps across sessions."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from agent.base.errors import ToolError
from agent.tools.atomic import write_atomically
from agent.tools.protocol import Access, Tool, ToolContext

LIMIT_BYTES = 32 * 1024
_ONE_AT_A_TIME = threading.Lock()


def _run(arguments: Mapping[str, Any], context: ToolContext) -> str:
    """Change one line and say how full the file is."""
    path = context.memory_path
    if path is None:
        raise ToolError("this session keeps no memory file; nothing was kept")
    with _ONE_AT_A_TIME:
        text = path.read_bytes().decode("utf-8") if path.exists() else ""
        lines = text.removesuffix("\n").split("\n") if text else []
        changed = _ACTIONS[arguments["action"]](lines, arguments)
        data = "".join(f"{line}\n" for line in changed).encode("utf-8")
        if len(data) > max(LIMIT_BYTES, len(text.encode("utf-8"))):
            raise ToolError(
                f"memory would have {len(data)} bytes; the limit is {LIMIT_BYTES}: "
                "shorten or remove a line first"
            )
        _save(path, data)
    return (
        f"memory has {len(changed)} lines, {len(data)} of {LIMIT_BYTES} bytes; "
        "new sessions begin with it"
    )


def _save(path: Path, data: bytes) -> None:
    """Write the file where it really is: it may be a link into a folder of dotfiles."""
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path.resolve(), data)


def _line(arguments: Mapping[str, Any]) -> str:
    """Return the new line. Raises: ToolError unless it is exactly one line with text."""
    line = str(arguments.get("line", "")).strip()
    if not line or len(line.splitlines()) != 1:
        raise ToolError(f"line {line!r} is not one line of text")
    return line


def _index(lines: list[str], arguments: Mapping[str, Any]) -> int:
    """Return which line `old` means: the equal one, else the only one that contains it."""
    old = str(arguments.get("old", "")).strip()
    if not old:
        raise ToolError(f"{arguments['action']} needs old, the line or a part of it")
    found = [index for index, line in enumerate(lines) if line.strip() == old]
    found = found[:1] or [index for index, line in enumerate(lines) if old in line]
    if len(found) != 1:
        raise ToolError(f"old {old!r} is in {len(found)} lines of memory; give the whole line")
    return found[0]


def _add(lines: list[str], arguments: Mapping[str, Any]) -> list[str]:
    """Return the lines with one more; one that is there already is not doubled."""
    line = _line(arguments)
    return lines if line in lines else [*lines, line]


def _replace(lines: list[str], arguments: Mapping[str, Any]) -> list[str]:
    """Return the lines with one exchanged."""
    index = _index(lines, arguments)
    return [*lines[:index], _line(arguments), *lines[index + 1 :]]


def _remove(lines: list[str], arguments: Mapping[str, Any]) -> list[str]:
    """Return the lines without one."""
    index = _index(lines, arguments)
    return [*lines[:index], *lines[index + 1 :]]


_ACTIONS: Mapping[str, Callable[[list[str], Mapping[str, Any]], list[str]]] = {
    "add": _add,
    "replace": _replace,
    "remove": _remove,
}

MEMORY = Tool(
    name="memory",
    description=(
        "Keep a short fact about the user or the project for later sessions: add, replace or "
        "remove one line. Not for what only this conversation needs, and never for secrets."
    ),
    parameters={
        "type": "object",
        "properties": {
            "action": {"type": "string", "enum": list(_ACTIONS)},
            "line": {"type": "string", "description": "The new line, for add and replace."},
            "old": {
                "type": "string",
                "description": "The line to replace or remove, or a part of it.",
            },
        },
        "required": ["action"],
        "additionalProperties": False,
    },
    access=Access.OWN,
    run=_run,
    describe=lambda arguments: (
        f"{arguments['action']} memory: {arguments.get('line') or arguments.get('old', '')}"
    ),
)
