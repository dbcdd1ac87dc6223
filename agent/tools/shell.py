"""The `shell` tool: one command line in the working folder."""

from __future__ import annotations

import math
import shutil
import signal
from collections.abc import Mapping
from typing import Any

from agent.base.errors import ToolError
from agent.tools.process import Ending, Finished, run_group
from agent.tools.protocol import Access, Tool, ToolContext


def _timeout_s(arguments: Mapping[str, Any], context: ToolContext) -> float:
    """Return the command's limit: what the call asks for, never above the setting (0: none)."""
    limit_s = context.settings.timeout_seconds or math.inf
    return min(float(arguments.get("timeout_seconds", limit_s)), limit_s)


def _exit_line(finished: Finished) -> str:
    """Return the last line of a result: how the command ended."""
    if finished.code < 0:
        name = signal.strsignal(-finished.code) or "unknown"
        return f"[ended by signal {-finished.code}: {name}]"
    return f"[exit code {finished.code}]"


def _run(arguments: Mapping[str, Any], context: ToolContext) -> str:
    """Run the command and return its whole output with the exit code at the end."""
    shell = shutil.which("bash") or "/bin/sh"
    timeout_s = _timeout_s(arguments, context)
    finished = run_group(
        [shell, "-c", arguments["command"]],
        cwd=context.cwd,
        cancel=context.cancel,
        timeout_s=timeout_s,
    )
    if finished.ending is Ending.TIMED_OUT:
        note = f"[not finished after {timeout_s:g} s; the command and its children were killed]"
        raise ToolError(finished.capture.text(note))
    if finished.ending is Ending.CANCELLED:
        raise ToolError(
            finished.capture.text("[stopped; the command and its children were killed]")
        )
    return finished.capture.text(_exit_line(finished))


SHELL = Tool(
    name="shell",
    description=(
        "Run a command line in the working folder and return its output, standard error "
        "included, with the exit code on the last line. There is no input and no terminal; "
        "background processes end with the command."
    ),
    parameters={
        "type": "object",
        "properties": {
            "command": {"type": "string", "description": "Passed to bash -c (sh without bash)."},
            "timeout_seconds": {
                "type": "number",
                "minimum": 1,
                "description": "Seconds after which the command is killed.",
            },
        },
        "required": ["command"],
        "additionalProperties": False,
    },
    access=Access.EXECUTE,
    run=_run,
    describe=lambda arguments: f"run {arguments['command']}",
)
