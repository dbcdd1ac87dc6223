"""Approval, stop and limits: how a run of calls is held up and ended."""

from __future__ import annotations

import os
import queue
import subprocess
import sys
import textwrap
import threading
import time
import tracemalloc
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from agent.base.cancel import CancelToken
from agent.base.settings import ToolSettings
from agent.tools import runner
from agent.tools.protocol import Access, ToolContext
from agent.tools.registry import builtin_tools
from agent.tools.runner import INTERRUPTED, MOST_AT_ONCE, ToolOutcome
from tests.best_of import best_of
from tests.tools.calls import ECHO, echo, make_call, make_tool, raising, run_calls

LONGEST_S = 10.0
STOP_S = 4 * 0.25


# -- approval -------------------------------------------------------------------------------
def test_where_nobody_can_be_asked_the_call_is_refused_with_the_reason(
    context: ToolContext,
) -> None:
    context = replace(context, settings=ToolSettings(approval="ask"))
    ran = run_calls(context, [make_tool("write", echo, Access.WRITE), ECHO],
               [make_call("write", n=1), make_call("echo", n=2)])  # fmt: skip
    assert ran.results == [
        (
            "c-write-1",
            False,
            (
                "refused: write 1; this needs approval and nobody can be asked in this run. "
                "Nothing was done. Go on without it, or tell the user to allow it with "
                "tools.approval or --yolo."
            ),
        ),
        ("c-echo-2", True, "echo 2"),
    ]


def test_questions_are_asked_one_after_another_in_order(context: ToolContext) -> None:
    context = replace(context, settings=ToolSettings(approval="ask"))
    asked: list[tuple[str, str]] = []
    lock = threading.Lock()

    def confirm(call_id: str, why: str) -> bool:
        assert lock.acquire(blocking=False)
        asked.append((call_id, why))
        lock.release()
        return why != "write 2"

    write = make_tool("write", echo, Access.WRITE)
    ran = run_calls(
        context, [write], [make_call("write", n=n) for n in range(1, 5)], confirm=confirm
    )
    assert asked == [(f"c-write-{n}", f"write {n}") for n in range(1, 5)]
    assert sorted(ran.results) == [
        ("c-write-1", True, "echo 1"),
        (
            "c-write-2",
            False,
            (
                "refused by the user: write 2; nothing was done. Do not try it another way; "
                "ask what to do instead."
            ),
        ),
        ("c-write-3", True, "echo 3"),
        ("c-write-4", True, "echo 4"),
    ]


def test_other_calls_run_and_report_while_a_person_thinks(context: ToolContext) -> None:
    context = replace(context, settings=ToolSettings(approval="ask"))
    echo_is_taken = threading.Event()

    def confirm(_call_id: str, _why: str) -> bool:
        return echo_is_taken.wait(LONGEST_S)

    def take(outcome: ToolOutcome) -> None:
        if outcome.name == "echo":
            echo_is_taken.set()

    write = make_tool("write", echo, Access.WRITE)
    calls = [make_call("write", n=1), make_call("echo", n=2)]
    ran = run_calls(context, [write, ECHO], calls, confirm=confirm, on_result=take)
    assert ran.results == [("c-echo-2", True, "echo 2"), ("c-write-1", True, "echo 1")]


def test_a_fault_of_the_question_is_raised_to_the_caller(context: ToolContext) -> None:
    context = replace(context, settings=ToolSettings(approval="ask"))

    def confirm(_call_id: str, _why: str) -> bool:
        raise EOFError("no more input")

    with pytest.raises(EOFError, match="no more input"):
        run_calls(context, [make_tool("w", echo, Access.WRITE)], [make_call("w")], confirm=confirm)


# -- stop -----------------------------------------------------------------------------------
def test_d07_a_stop_gives_every_open_call_one_synthetic_result_in_time(
    context: ToolContext,
) -> None:
    """Field report D07: a call without a result makes every later request invalid."""
    assert best_of(lambda: stop_many(context), STOP_S) < STOP_S


def stop_many(context: ToolContext) -> float:
    """Stop calls that are done, asked for, deaf and not begun; return how long that took."""
    settings = ToolSettings(approval="ask")
    context = replace(context, settings=settings, cancel=CancelToken())
    release, all_started = threading.Event(), threading.Semaphore(0)
    stopped_at: list[float] = []

    def deaf(_arguments: Mapping[str, Any], _context: ToolContext) -> str:
        all_started.release()
        release.wait(LONGEST_S)
        return "too late"

    def confirm(_call_id: str, _why: str) -> bool:
        for _ in range(MOST_AT_ONCE):
            all_started.acquire(timeout=LONGEST_S)
        stopped_at.append(time.monotonic())
        context.cancel.cancel()
        return release.wait(LONGEST_S)

    calls = [
        make_call("echo", n=0),
        make_call("write", n=1),
        *[make_call("deaf", n=n) for n in range(2, 2 + MOST_AT_ONCE + 3)],
    ]
    tools = [ECHO, make_tool("write", echo, Access.WRITE), make_tool("deaf", deaf)]
    try:
        ran = run_calls(context, tools, calls, confirm=confirm)
        took_s = time.monotonic() - stopped_at[0]
    finally:
        release.set()
    assert ran.results == [
        ("c-echo-0", True, "echo 0"),
        *[(call["id"], False, INTERRUPTED) for call in calls[1:]],
    ]
    return took_s


def test_a_stop_before_the_start_runs_nothing(context: ToolContext) -> None:
    context.cancel.cancel()
    ran = run_calls(
        context, [make_tool("t", raising(AssertionError("it ran")))], [make_call("t", "c1")]
    )
    assert ran.results == [("c1", False, INTERRUPTED)]


def test_a_call_that_still_succeeds_at_a_stop_keeps_its_result(
    context: ToolContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runner, "_STOP_GRACE_S", LONGEST_S)

    def stop_first(_arguments: Mapping[str, Any], inner: ToolContext) -> str:
        context.cancel.cancel()
        inner.cancel.wait(LONGEST_S)
        return "written"

    ran = run_calls(context, [make_tool("t", stop_first)], [make_call("t", "c1")])
    assert ran.results == [("c1", True, "written")]


def test_a_call_that_ended_before_the_stop_keeps_its_result_however_late_it_is_read(
    context: ToolContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runner, "_STOP_GRACE_S", 0.0)
    first_is_taken = threading.Event()
    started: queue.SimpleQueue[threading.Thread] = queue.SimpleQueue()

    def work(_arguments: Mapping[str, Any], _context: ToolContext) -> str:
        started.put(threading.current_thread())
        first_is_taken.wait(LONGEST_S)
        return "written"

    def take(outcome: ToolOutcome) -> None:
        if outcome.name == "echo":
            first_is_taken.set()
            started.get().join()
            context.cancel.cancel()

    tools = [make_tool("work", work), ECHO]
    calls = [make_call("work", "c1"), make_call("echo", "c2", n=2)]
    ran = run_calls(context, tools, calls, on_result=take)
    assert ran.results == [("c2", True, "echo 2"), ("c1", True, "written")]


def test_a_stop_ends_a_command_in_time(context: ToolContext) -> None:
    tools = list(builtin_tools(recall=False, memory=False).values())
    call = make_call("shell", "c1", command="echo > started; sleep 300")
    os.mkfifo(context.cwd / "started")

    def stop_one() -> float:
        stopped_at: list[float] = []
        inner = replace(context, cancel=CancelToken())

        def stop() -> None:
            (context.cwd / "started").read_text()
            stopped_at.append(time.monotonic())
            inner.cancel.cancel()

        thread = threading.Thread(target=stop)
        thread.start()
        ran = run_calls(inner, tools, [call])
        ended_at = time.monotonic()
        thread.join()
        assert ran.results == [("c1", False, INTERRUPTED)]
        return ended_at - stopped_at[0]

    assert best_of(stop_one, STOP_S) < STOP_S


def test_a_failure_of_the_caller_stops_what_still_runs(context: ToolContext) -> None:
    heard = threading.Event()

    def wait(_arguments: Mapping[str, Any], inner: ToolContext) -> str:
        if inner.cancel.wait(LONGEST_S):
            heard.set()
        return ""

    def take(_outcome: ToolOutcome) -> None:
        raise OSError("disk full")

    with pytest.raises(OSError, match="disk full"):
        run_calls(
            context,
            [make_tool("wait", wait), ECHO],
            [make_call("wait"), make_call("echo")],
            on_result=take,
        )
    assert heard.wait(LONGEST_S)


# -- limits ---------------------------------------------------------------------------------
def test_a_call_that_does_not_heed_its_limit_is_given_up(context: ToolContext) -> None:
    context = replace(context, settings=ToolSettings(timeout_seconds=0.1))
    release = threading.Event()

    def deaf(_arguments: Mapping[str, Any], inner: ToolContext) -> str:
        inner.cancel.wait(LONGEST_S)
        release.wait(LONGEST_S)
        return "too late"

    try:
        ran = run_calls(
            context,
            [make_tool("deaf", deaf), ECHO],
            [make_call("deaf", "c1"), make_call("echo", "c2")],
        )
    finally:
        release.set()
    assert ran.results == [
        ("c2", True, "echo "),
        (
            "c1",
            False,
            (
                "deaf did not end within 0.1 s and was given up; it may still be at work, "
                "so its outcome is unknown"
            ),
        ),
    ]
    assert not context.cancel.cancelled


def test_a_stuck_tool_does_not_hold_up_the_end_of_the_program() -> None:
    program = """
        import threading
        from pathlib import Path
        from agent.base.cancel import CancelToken
        from agent.base.settings import ToolSettings
        from agent.tools.protocol import Access, Tool, ToolContext
        from agent.tools.runner import ToolRunner

        context = ToolContext(Path.cwd(), ToolSettings(), CancelToken())

        def stuck(arguments, inner):
            context.cancel.cancel()
            threading.Event().wait()

        tool = Tool("stuck", "", {"type": "object"}, Access.READ, stuck, lambda arguments: "")
        call = {"id": "c1", "function": {"name": "stuck", "arguments": ""}}
        ToolRunner({"stuck": tool}, context).run_calls([call], lambda o: print(o.content))
    """
    ran = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program)],
        capture_output=True,
        text=True,
        timeout=15,
        check=True,
    )
    assert ran.stdout == f"{INTERRUPTED}\n"


def test_d17_a_result_of_ten_megabytes_is_quick_and_lean(context: ToolContext) -> None:
    """Field report D17: 10 MB of log in one result, under 2 s and 3 times its size (here at 4 x
    the time; memory is exact)."""
    size = 10 * 1024 * 1024
    tools = list(builtin_tools(recall=False, memory=False).values())
    command = f"yes 'a line of a log that somebody wrote' | head -c {size}"
    started = time.monotonic()
    tracemalloc.start()
    ran = run_calls(context, tools, [make_call("shell", "c1", command=command)])
    _now, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert time.monotonic() - started < 4 * 2
    assert peak < 3 * size
    line = "a line of a log that somebody wrote\n"
    whole = (line * (size // len(line) + 1))[:size]
    assert ran.results == [("c1", True, f"{whole}\n[exit code 0]")]
