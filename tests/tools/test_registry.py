from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from agent.base.errors import UsageError
from agent.tools.registry import add_tools, builtin_tools

ALWAYS = ["shell", "read_file", "write_file", "patch_file", "search_files", "todo"]


@pytest.mark.parametrize(
    ("recall", "memory", "more"),
    [
        (True, True, ["recall", "memory"]),
        (True, False, ["recall"]),
        (False, True, ["memory"]),
        (False, False, []),
    ],
)
def test_recall_and_memory_are_offered_where_they_are_wanted(
    recall: bool, memory: bool, more: list[str]
) -> None:
    tools = builtin_tools(recall=recall, memory=memory)
    assert list(tools) == ALWAYS + more
    assert [tool.name for tool in tools.values()] == list(tools)


def test_each_tool_has_a_schema_that_a_provider_takes() -> None:
    for tool in builtin_tools(recall=True, memory=True).values():
        schema = tool.schema()
        assert schema == {
            "type": "function",
            "function": {
                "name": tool.name,
                "description": tool.description,
                "parameters": tool.parameters,
            },
        }
        assert set(tool.parameters.get("required", [])) <= set(tool.parameters["properties"])
        assert tool.parameters["additionalProperties"] is False


def test_tools_of_a_caller_stand_behind_ours() -> None:
    ours = builtin_tools(recall=False, memory=False)
    theirs = replace(ours["todo"], name="plan")
    assert add_tools(ours, [theirs]) == {**ours, "plan": theirs}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"name": "shell"}, "there are two tools named 'shell'; rename one"),
        ({"name": ""}, "tool name '' must be 1 to 64 letters, digits, '_' or '-'; rename it"),
        ({"name": "a b"}, "tool name 'a b' must be 1 to 64 letters, digits, '_' or '-'; rename it"),
        (
            {"name": "x", "parameters": {"type": "string"}},
            "parameters of tool 'x' must be a schema of type 'object'",
        ),
    ],
)
def test_a_tool_that_cannot_be_offered_is_refused(change: dict[str, Any], message: str) -> None:
    ours = builtin_tools(recall=False, memory=False)
    with pytest.raises(UsageError) as raised:
        add_tools(ours, [replace(ours["todo"], **change)])
    assert str(raised.value) == message
