"""What calls are for, and which results say that they failed."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.base.extract_calls import ABOUT_MAX_CHARS, REASON_MAX_CHARS, calls_of, failure_of
from agent.testing.builders import assistant, call, result


def about(name: str, arguments: dict[str, object] | str) -> str:
    [(call_id, told)] = calls_of(assistant(None, call(name, arguments, call_id="c1")))
    assert call_id == "c1"
    return told


@pytest.mark.parametrize(
    ("name", "arguments", "told"),
    [
        ("shell", {"command": "make  test\n -k", "timeout_seconds": 5}, "shell make test -k"),
        ("patch_file", {"path": "a.py", "old": "x", "new": "y"}, "patch_file a.py"),
        ("search_files", {"path": "src", "pattern": "TODO"}, "search_files src TODO"),
        ("fetch", {"url": "https://host.test/a"}, "fetch https://host.test/a"),
        ("odd", {"depth": 3}, 'odd {"depth": 3}'),
        ("odd", "{broken", "odd {broken"),
        ("odd", "[1]", "odd [1]"),
        ("todo", {}, "todo {}"),
    ],
)
def test_a_call_is_told_by_its_tool_and_its_object(
    name: str, arguments: dict[str, object] | str, told: str
) -> None:
    assert about(name, arguments) == told


def test_what_has_no_name_or_no_id_is_no_call() -> None:
    nameless = {"id": "c1", "function": {"arguments": "{}"}}
    without_id = {"function": {"name": "shell", "arguments": "{}"}}
    assert list(calls_of({"role": "assistant", "tool_calls": [nameless, without_id]})) == []
    assert list(calls_of(assistant("Nothing to call."))) == []


@pytest.mark.parametrize(
    ("content", "why"),
    [
        ("1 failed\n[exit code 1]", "[exit code 1]"),
        ("[not finished after 3 s; the command and its children were killed]", None),
        ("half\n[ended by signal 9: Killed]", "[ended by signal 9: Killed]"),
        ("Command failed\nexit status 2", "exit status 2"),
        ("interrupted, outcome unknown", None),
        ("[interrupted: the outcome of this call is unknown; look before you run it]", None),
        ("Error: ENOENT, no such file\nat open", "Error: ENOENT, no such file"),
        ("fetch failed: URLError: refused", None),
        ('{"error": "no such branch"}', None),
        ('{"success": false, "why": "locked"}', None),
        ("ValueError: invalid literal", None),
    ],
)
def test_a_result_that_tells_of_a_failure_is_one(content: str, why: str | None) -> None:
    assert failure_of(result("c1", content)) == (why or content)


@pytest.mark.parametrize(
    "content",
    [
        "",
        "ok",
        "12 passed\n[exit code 0]",
        "error: printed by a command that went well\n[exit code 0]",
        "errors.py\nerror_log.txt",
        '{"error": null, "rows": 3}',
        '{"error": "", "rows": 3}',
        '{"success": true}',
        "The word error: stands in the middle.",
        "Error: is how this file begins.\n" + "and it goes on and on\n" * 200,
        "exit code 10 is what the manual calls a warning\nand more",
    ],
)
def test_any_other_result_is_none(content: str) -> None:
    assert failure_of(result("c1", content)) == ""


@given(st.text(max_size=300), st.text(max_size=300))
def test_what_is_told_of_a_call_is_one_short_line(arguments: str, content: str) -> None:
    told = [*(each for _, each in calls_of(assistant(None, call("t", arguments))))]
    why = failure_of(result("c1", content))
    assert [len(each) <= ABOUT_MAX_CHARS and "\n" not in each for each in told] == [True]
    assert len(why) <= REASON_MAX_CHARS
    assert "\n" not in why


def test_a_huge_result_is_told_apart_as_quickly_as_a_small_one() -> None:
    started = time.process_time()
    for text in ("[stopped;" * 100_000, "'" * 900_000, "exit " * 200_000):
        assert failure_of(result("c1", text)) == ""
    assert time.process_time() - started < 1.0
