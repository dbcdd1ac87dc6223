"""What our tools say when they fail is known as a failure when their results are read again."""

from __future__ import annotations

from typing import Any

import pytest

from agent.base.extract_calls import failure_of
from agent.testing.builders import result
from agent.tools.protocol import ToolContext
from agent.tools.registry import builtin_tools
from tests.tools.calls import make_call, make_tool, raising, run_calls

FAILING: tuple[tuple[str, dict[str, Any]], ...] = (
    ("read_file", {"path": "missing.txt"}),
    ("read_file", {"path": "."}),
    ("read_file", {"path": "known.txt", "offset": 99}),
    ("read_file", {}),
    ("read_file", {"path": "known.txt", "colour": "red"}),
    ("read_file", {"path": "known.txt", "offset": "two"}),
    ("write_file", {"path": ".", "content": "x"}),
    ("patch_file", {"path": "known.txt", "old": "absent", "new": "x"}),
    ("patch_file", {"path": "known.txt", "old": "line", "new": "x"}),
    ("patch_file", {"path": "known.txt", "old": "", "new": "x"}),
    ("patch_file", {"path": "known.txt", "old": "x", "new": "x"}),
    ("patch_file", {"path": "missing.txt", "old": "x", "new": "y"}),
    ("search_files", {"path": "missing", "pattern": "x"}),
    ("search_files", {"pattern": "("}),
    ("shell", {"command": "exit 3"}),
    ("shell", {"command": "kill -9 $$"}),
    ("shell", {"command": "sleep 9", "timeout_seconds": 1}),
    ("unknown", {}),
)
WORKING: tuple[tuple[str, dict[str, Any]], ...] = (
    ("read_file", {"path": "known.txt"}),
    ("read_file", {"path": "empty.txt"}),
    ("write_file", {"path": "new.txt", "content": "x"}),
    ("patch_file", {"path": "known.txt", "old": "line 1\n", "new": "line one\n"}),
    ("search_files", {"pattern": "line"}),
    ("search_files", {"pattern": "absent"}),
    ("shell", {"command": "echo error: all is well"}),
    ("todo", {"tasks": [{"status": "pending", "text": "error: fix it"}]}),
)


def read_back(context: ToolContext, name: str, arguments: dict[str, Any]) -> tuple[bool, bool]:
    """Return whether a call went well, and whether its result reads so."""
    (context.cwd / "known.txt").write_text("line 1\nline 2\n")
    (context.cwd / "empty.txt").touch()
    tools = list(builtin_tools(recall=False, memory=False).values())
    tools.append(make_tool("broken", raising(OSError("disk is full"))))
    (outcome,) = run_calls(context, tools, [make_call(name, **arguments)]).outcomes
    return outcome.ok, failure_of(result("c1", outcome.content)) == ""


@pytest.mark.parametrize(("name", "arguments"), [*FAILING, ("broken", {})])
def test_a_call_that_failed_reads_so(
    context: ToolContext, name: str, arguments: dict[str, Any]
) -> None:
    assert read_back(context, name, arguments)[1] is False


@pytest.mark.parametrize(("name", "arguments"), WORKING)
def test_a_call_that_went_well_reads_so(
    context: ToolContext, name: str, arguments: dict[str, Any]
) -> None:
    assert read_back(context, name, arguments) == (True, True)
