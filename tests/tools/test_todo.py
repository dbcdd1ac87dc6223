from __future__ import annotations

import pytest

from agent.base.errors import ToolError
from agent.tools.protocol import ToolContext
from agent.tools.todo import TODO


def test_the_whole_list_comes_back(context: ToolContext) -> None:
    tasks = [
        {"text": " read ", "status": "done"},
        {"text": "write", "status": "in_progress"},
        {"text": "check", "status": "pending"},
    ]
    listed = "1. [done] read\n2. [in_progress] write\n3. [pending] check"
    assert TODO.run({}, context) == "the list is empty"
    assert TODO.run({"tasks": tasks}, context) == listed
    assert TODO.run({}, context) == listed
    assert TODO.run({"tasks": tasks[2:]}, context) == "1. [pending] check"
    assert TODO.run({"tasks": []}, context) == "the list is empty"


def test_a_list_that_is_too_long_changes_nothing(context: ToolContext) -> None:
    TODO.run({"tasks": [{"text": "one", "status": "pending"}]}, context)
    with pytest.raises(ToolError, match="101 tasks; the limit is 100: drop what is done"):
        TODO.run({"tasks": [{"text": "x", "status": "done"}] * 101}, context)
    assert TODO.run({}, context) == "1. [pending] one"
    assert [TODO.describe({}), TODO.describe({"tasks": []})] == [
        "show the task list",
        "change the task list",
    ]
