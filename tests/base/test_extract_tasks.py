from __future__ import annotations

from typing import Any

import pytest

from agent.base.extract_tasks import tasks_of
from agent.testing.builders import assistant, call


def _given(arguments: Any) -> list[tuple[str, str]]:
    return list(tasks_of(assistant(None, call("todo", arguments))))


def test_the_tasks_of_a_list_come_with_their_status() -> None:
    tasks = [
        {"text": "write  the\nrollback", "status": "in_progress"},
        {"text": "ask Jo", "status": "done"},
    ]
    assert _given({"tasks": tasks}) == [("in_progress", "write the rollback"), ("done", "ask Jo")]
    todos = [{"content": "ship", "status": "pending", "activeForm": "shipping"}]
    assert _given({"todos": todos}) == [("pending", "ship")]


@pytest.mark.parametrize(
    "arguments",
    [{}, {"status": "x"}, {"tasks": "status"}, {"tasks": [1, {"status": 2}, {"status": "done"}]}],
)
def test_what_is_no_list_of_tasks_gives_none(arguments: Any) -> None:
    assert _given(arguments) == []


def test_broken_arguments_give_none() -> None:
    broken = assistant(None, call("todo", {}))
    broken["tool_calls"][0]["function"]["arguments"] = '{"tasks": [{"status"'
    assert list(tasks_of(broken)) == []
