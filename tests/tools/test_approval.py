from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from agent.base.errors import ToolError
from agent.base.settings import ToolSettings
from agent.tools.approval import Allowed, Ask, decide, refusal
from agent.tools.protocol import Access, Tool, ToolContext
from agent.tools.registry import builtin_tools


def _tool(access: Access, *, names_paths: bool = True) -> Tool:
    def paths(arguments: Mapping[str, Any]) -> list[str]:
        return [arguments["path"]] if names_paths else []

    return Tool(
        name="t",
        description="",
        parameters={"type": "object"},
        access=access,
        run=lambda _arguments, _context: "",
        describe=lambda arguments: f"touch {arguments['path']}",
        paths=paths,
    )


def _answers(context: ToolContext, mode: str, path: str) -> dict[str, str]:
    """Return `run` or `ask` for each access, and for a writer that names no path."""
    context = replace(context, settings=replace(context.settings, approval=mode))
    tools = {access.value: _tool(access) for access in Access}
    tools["write anywhere"] = _tool(Access.WRITE, names_paths=False)
    return {
        name: "run" if decide(tool, {"path": path}, context) == Allowed() else "ask"
        for name, tool in tools.items()
    }


_NOTHING = dict.fromkeys(["read", "own", "write", "execute", "write anywhere"], "run")
_DEEDS = {**_NOTHING, "write": "ask", "execute": "ask", "write anywhere": "ask"}


@pytest.mark.parametrize(
    ("mode", "path", "expected"),
    [
        ("ask", "a.txt", _DEEDS),
        ("ask", "../a.txt", {**_DEEDS, "read": "ask"}),
        ("auto", "a.txt", {**_DEEDS, "write": "run"}),
        ("auto", "../a.txt", {**_DEEDS, "read": "ask"}),
        ("off", "a.txt", _NOTHING),
        ("off", "../a.txt", _NOTHING),
    ],
)
def test_the_rule_by_mode_place_and_access(
    context: ToolContext, mode: str, path: str, expected: dict[str, str]
) -> None:
    assert _answers(context, mode, path) == expected


def test_an_allowed_folder_counts_as_inside(context: ToolContext, tmp_path: Path) -> None:
    settings = ToolSettings(approval="auto", allowed_paths=(str(tmp_path / "other"), "~/notes"))
    context = replace(context, settings=settings)
    paths = ["../other/a", str(tmp_path / "other"), "~/notes/a", "../others/a", "~/a"]
    assert [decide(_tool(Access.READ), {"path": path}, context) == Allowed() for path in paths] == [
        True,
        True,
        True,
        False,
        False,
    ]


def test_the_question_names_the_deed_and_the_place_outside(
    context: ToolContext, tmp_path: Path
) -> None:
    context = replace(context, settings=ToolSettings(approval="auto"))
    assert decide(_tool(Access.READ), {"path": "../x"}, context) == Ask(
        f"touch ../x (outside the working folder: {tmp_path}/x)"
    )


def test_no_part_of_a_command_is_hidden_from_the_person_asked(context: ToolContext) -> None:
    context = replace(context, settings=ToolSettings(approval="ask"))
    shell = builtin_tools(recall=False, memory=False)["shell"]
    command = "ls\r\nrm -rf x\x1b[1A\x1b[2K \u202e"
    assert decide(shell, {"command": command}, context) == Ask(
        r"run ls\r\nrm -rf x\x1b[1A\x1b[2K \u202e"
    )
    long = decide(shell, {"command": f"echo {'x' * 5000}; rm -rf y"}, context)
    assert isinstance(long, Ask)
    assert long.why.endswith("x; rm -rf y")
    assert "[3019 characters not shown]" in long.why


def test_the_agent_s_own_notes_and_list_are_not_asked_for(context: ToolContext) -> None:
    context = replace(context, settings=ToolSettings(approval="ask"))
    tools = builtin_tools(recall=True, memory=True)
    calls: list[tuple[str, dict[str, Any]]] = [
        ("memory", {"action": "add", "line": "x"}),
        ("todo", {}),
        ("recall", {"rows": "1"}),
    ]
    assert [decide(tools[name], arguments, context) for name, arguments in calls] == [Allowed()] * 3


def test_a_path_that_cannot_be_one_is_refused_before_any_question(context: ToolContext) -> None:
    with pytest.raises(ToolError, match="names no file"):
        decide(_tool(Access.READ), {"path": "a\0b"}, context)


def test_a_refusal_tells_the_model_who_refused_and_what_to_do() -> None:
    assert refusal("run ls", asked=True) == (
        "refused by the user: run ls; nothing was done. Do not try it another way; "
        "ask what to do instead."
    )
    assert refusal("run ls", asked=False) == (
        "refused: run ls; this needs approval and nobody can be asked in this run. Nothing was "
        "done. Go on without it, or tell the user to allow it with tools.approval or --yolo."
    )
