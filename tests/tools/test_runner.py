from __future__ import annotations

import logging
import threading
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from agent.base.errors import ToolError
from agent.base.settings import ToolSettings
from agent.tools.protocol import Access, ToolContext
from agent.tools.registry import builtin_tools
from agent.tools.runner import MOST_AT_ONCE, ToolOutcome, ToolRunner
from tests.tools.calls import ECHO, Ran, Run, echo, make_call, make_tool, raising, run_calls

LONGEST_S = 10.0


# -- results --------------------------------------------------------------------------------
def test_an_outcome_says_everything_about_its_call(context: ToolContext) -> None:
    ran = run_calls(
        context, [make_tool("greet", lambda _a, _c: "grüß dich")], [make_call("greet", "c1")]
    )
    (outcome,) = ran.outcomes
    assert replace(outcome, duration_ms=0) == ToolOutcome("c1", "greet", "grüß dich", True, 0, 11)
    assert 0 <= outcome.duration_ms < LONGEST_S * 1000


def test_no_calls_give_no_results(context: ToolContext) -> None:
    assert run_calls(context, [ECHO], []) == Ran([], [])


def test_calls_run_side_by_side(context: ToolContext) -> None:
    barrier = threading.Barrier(3)

    def meet(_arguments: Mapping[str, Any], _context: ToolContext) -> str:
        barrier.wait(LONGEST_S)
        return "met"

    ran = run_calls(context, [make_tool("meet", meet)], [make_call("meet", n=n) for n in range(3)])
    assert sorted(ran.results) == [(f"c-meet-{n}", True, "met") for n in range(3)]


def test_results_come_in_order_of_completion_in_the_caller_s_thread(context: ToolContext) -> None:
    second_is_taken = threading.Event()
    threads: list[int] = []

    def work(arguments: Mapping[str, Any], _context: ToolContext) -> str:
        if arguments["n"] == 1:
            second_is_taken.wait(LONGEST_S)
        return str(arguments["n"])

    def take(outcome: ToolOutcome) -> None:
        threads.append(threading.get_ident())
        if outcome.content == "2":
            second_is_taken.set()

    ran = run_calls(
        context,
        [make_tool("work", work)],
        [make_call("work", n=1), make_call("work", n=2)],
        on_result=take,
    )
    assert ran.results == [("c-work-2", True, "2"), ("c-work-1", True, "1")]
    assert threads == [threading.get_ident()] * 2


def test_many_calls_run_a_bounded_number_at_once(context: ToolContext) -> None:
    lock, full = threading.Lock(), threading.Barrier(MOST_AT_ONCE)
    running: list[int] = []
    seen: list[int] = []

    def work(arguments: Mapping[str, Any], _context: ToolContext) -> str:
        with lock:
            running.append(arguments["n"])
            seen.append(len(running))
        if arguments["n"] < MOST_AT_ONCE:
            full.wait(LONGEST_S)
        with lock:
            running.remove(arguments["n"])
        return ""

    ran = run_calls(context, [make_tool("work", work)], [make_call("work", n=n) for n in range(30)])
    assert len(ran.outcomes) == 30
    assert max(seen) == MOST_AT_ONCE


def test_two_patches_of_one_file_keep_their_order(context: ToolContext) -> None:
    (context.cwd / "a").write_text("0")
    tools = list(builtin_tools(recall=False, memory=False).values())
    calls = [
        make_call("patch_file", f"c{n}", path="a", old=str(n), new=str(n + 1)) for n in range(20)
    ] + [make_call("shell", "last", command="cat a")]
    ran = run_calls(context, tools, calls)
    assert [outcome.call_id for outcome in ran.outcomes] == [f"c{n}" for n in range(20)] + ["last"]
    assert ran.outcomes[-1].content == "20\n[exit code 0]"


def test_state_is_shared_by_the_calls_of_an_agent(context: ToolContext) -> None:
    tools = list(builtin_tools(recall=False, memory=False).values())
    tasks = [{"text": "x", "status": "pending"}]
    run_calls(context, tools, [make_call("todo", tasks=tasks)])
    assert run_calls(context, tools, [make_call("todo", "c2")]).results == [
        ("c2", True, "1. [pending] x")
    ]


# -- faults ---------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("run", "content"),
    [
        (raising(ToolError("no such row 7")), "no such row 7"),
        (raising(FileNotFoundError(2, "No such file", "x")),
         "t failed: FileNotFoundError: [Errno 2] No such file: 'x'"),
        (raising(KeyError("a\nb")), r"t failed: KeyError: 'a\nb'"),
        (raising(ValueError("two\nlines")), r"t failed: ValueError: two\nlines"),
        (raising(SystemExit(3)), "t failed: SystemExit: 3"),
        (lambda _a, _c: 7, "t failed: TypeError: returned int, not text"),
    ],
    ids=["tool error", "os error", "bug", "lines", "exit", "no text"],
)  # fmt: skip
def test_what_a_tool_raises_becomes_its_result(
    context: ToolContext, run: Run, content: str
) -> None:
    ran = run_calls(
        context, [make_tool("t", run), ECHO], [make_call("t", "c1"), make_call("echo", "c2", n=1)]
    )
    assert sorted(ran.results) == [("c1", False, content), ("c2", True, "echo 1")]


def test_a_bug_is_logged_once_with_its_place_and_without_keys(
    context: ToolContext, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, logger="agent.tools.runner")
    refuse = make_tool("u", raising(ToolError("no")))
    run_calls(
        context,
        [make_tool("t", raising(KeyError("AKIAIOSFODNN7EXAMPLE"))), refuse],
        [make_call("t"), make_call("u")],
    )
    (record,) = caplog.records
    first, *_places, last = record.getMessage().strip().splitlines()
    assert (record.levelname, first) == (
        "DEBUG",
        "tool t failed: Traceback (most recent call last):",
    )
    assert last == "KeyError: '[REDACTED:aws_key_id]'"


def test_a_call_that_cannot_be_run_says_why_and_the_others_run(context: ToolContext) -> None:
    broken = {"id": "c3", "function": {"name": "echo", "arguments": '{"n": 1'}}
    calls = [
        make_call("nope", "c1"),
        make_call("echo", "c2", n="one"),
        broken,
        {"id": "c4"},
        make_call("echo", "c5", n=5),
    ]
    ran = run_calls(context, [ECHO], calls)
    assert [(call_id, ok) for call_id, ok, _content in ran.results] == [
        ("c1", False),
        ("c2", False),
        ("c3", False),
        ("c4", False),
        ("c5", True),
    ]
    contents = [content for _call_id, _ok, content in ran.results]
    assert contents[:2] == [
        "no tool 'nope'; there are: echo",
        "n is 'one'; it must be of type integer",
    ]
    assert contents[2].startswith("""arguments '{"n": 1' are not valid JSON (""")
    assert contents[3:] == ["no tool ''; there are: echo", "echo 5"]


def test_a_tool_that_cannot_describe_itself_does_not_end_the_turn(context: ToolContext) -> None:
    context = replace(context, settings=ToolSettings(approval="ask"))
    tool = replace(make_tool("t", echo, Access.WRITE), describe=lambda arguments: arguments["n"])
    assert run_calls(context, [tool], [make_call("t", "c1")]).results == [
        ("c1", False, "t failed: KeyError: 'n'")
    ]


def test_text_that_cannot_be_stored_is_made_storable(context: ToolContext) -> None:
    ran = run_calls(context, [make_tool("t", lambda _a, _c: "a\0b\ud800c")], [make_call("t", "c1")])
    assert ran.results == [("c1", True, "a\ufffdb\ufffdc")]
    assert ran.outcomes[0].bytes == 9


def test_two_calls_with_one_id_both_get_a_result(context: ToolContext) -> None:
    ran = run_calls(
        context, [ECHO], [make_call("echo", "same", n=1), make_call("echo", "same", n=2)]
    )
    assert sorted(ran.results) == [("same", True, "echo 1"), ("same", True, "echo 2")]


# -- events ---------------------------------------------------------------------------------
def _events(ran: Ran) -> list[tuple[Any, ...]]:
    keys = {
        "tool_started": ("name", "arguments", "call_id"),
        "approval_requested": ("call_id", "why"),
        "tool_finished": ("call_id", "ok", "bytes"),
    }
    return [
        (event.type, *(event.as_dict()[key] for key in keys[event.type])) for event in ran.events
    ]


def test_each_call_starts_and_finishes_once_in_the_events(context: ToolContext) -> None:
    context = replace(context, settings=ToolSettings(approval="ask"))
    write = make_tool("write", echo, Access.WRITE)
    ran = run_calls(context, [write], [make_call("write", n=1)], confirm=lambda _id, _why: True)
    assert _events(ran) == [
        ("tool_started", "write", {"n": 1}, "c-write-1"),
        ("approval_requested", "c-write-1", "write 1"),
        ("tool_finished", "c-write-1", True, 6),
    ]
    ran = run_calls(context, [ECHO], [make_call("nope", "c1"), make_call("echo", "c2", n="x")])
    assert _events(ran) == [
        ("tool_started", "nope", {}, "c1"),
        ("tool_finished", "c1", False, len(ran.outcomes[0].content)),
        ("tool_started", "echo", {}, "c2"),
        ("tool_finished", "c2", False, len(ran.outcomes[1].content)),
    ]


def test_a_result_is_handed_over_before_it_is_announced(context: ToolContext) -> None:
    order: list[str] = []
    runner = ToolRunner({"echo": ECHO}, context, None, lambda event: order.append(event.type))
    runner.run_calls([make_call("echo", n=1)], lambda _outcome: order.append("result"))
    assert order == ["tool_started", "result", "tool_finished"]
