from __future__ import annotations

import contextlib
import os
import threading
import time
from dataclasses import replace
from pathlib import Path

import psutil
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.base.cancel import CancelToken
from agent.base.errors import ToolError
from agent.base.settings import ToolSettings
from agent.tools import process
from agent.tools.process import Capture
from agent.tools.protocol import ToolContext
from agent.tools.shell import SHELL
from tests.best_of import best_of

STOP_S = 4 * 0.25


def _is_gone(pid: int) -> bool:
    """Return whether a killed process ends, as the kernel finds the time; one that nobody reaped
    counts."""
    until, tick = time.monotonic() + 10, threading.Event()
    with contextlib.suppress(psutil.NoSuchProcess):
        while psutil.Process(pid).status() != psutil.STATUS_ZOMBIE:
            if time.monotonic() > until:
                return False
            tick.wait(0.02)
    return True


def _fails(context: ToolContext, **arguments: object) -> str:
    with pytest.raises(ToolError) as raised:
        SHELL.run(arguments, context)
    return str(raised.value)


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        ("echo out; echo err >&2", "out\nerr\n[exit code 0]"),
        ("printf no-newline; exit 3", "no-newline\n[exit code 3]"),
        ("true", "[exit code 0]"),
        ("cat; echo end", "end\n[exit code 0]"),
        ("test -t 0 || echo no terminal", "no terminal\n[exit code 0]"),
        (r"printf 'x\303\251 \377'", "xé \ufffd\n[exit code 0]"),
        ("kill -9 $$", "[ended by signal 9: Killed]"),
        ("no-such-command 2>/dev/null", "[exit code 127]"),
        ("exec >&- 2>&-; exit 4", "[exit code 4]"),
    ],
)
def test_output_comes_back_with_how_it_ended(
    context: ToolContext, command: str, expected: str
) -> None:
    assert SHELL.run({"command": command}, context) == expected


def test_a_command_runs_in_the_working_folder(context: ToolContext) -> None:
    assert SHELL.run({"command": "pwd; touch made"}, context) == f"{context.cwd}\n[exit code 0]"
    assert (context.cwd / "made").exists()


def test_a_command_that_takes_too_long_is_ended_and_its_output_kept(
    context: ToolContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It gets time to begin, and more than usual to end, so that slowness alone loses no line."""
    monkeypatch.setitem(process._GRACE_S, process.Ending.TIMED_OUT, 10.0)
    context = replace(context, settings=ToolSettings(timeout_seconds=2))
    said = _fails(context, command="trap 'echo bye; exit' TERM; echo hi; sleep 60 & wait")
    assert said == "hi\nbye\n[not finished after 2 s; the command and its children were killed]"


def test_the_limit_of_a_call_is_bounded_by_the_setting(context: ToolContext) -> None:
    command = "sleep 60"
    longer = replace(context, settings=ToolSettings(timeout_seconds=0.2))
    assert "[not finished after 0.2 s;" in _fails(longer, command=command, timeout_seconds=30)
    unlimited = replace(context, settings=ToolSettings(timeout_seconds=0))
    assert "[not finished after 0.2 s;" in _fails(unlimited, command=command, timeout_seconds=0.2)


def test_a_command_that_ignores_the_signal_is_killed_all_the_same(context: ToolContext) -> None:
    context = replace(context, settings=ToolSettings(timeout_seconds=0.2))
    started = time.monotonic()
    _fails(context, command="trap '' TERM; while :; do sleep 1; done")
    assert time.monotonic() - started < 8


@pytest.mark.parametrize("trap", ["", "trap '' TERM;"], ids=["heeds", "ignores"])
def test_a_stop_ends_a_command_and_all_its_children_in_time(
    context: ToolContext, tmp_path: Path, trap: str
) -> None:
    os.mkfifo(tmp_path / "pids")
    command = f"{trap} (sleep 300 & echo $! $$ $BASHPID > {tmp_path}/pids; wait); sleep 300"

    def stop_one() -> float:
        failed: list[str] = []
        inner = replace(context, cancel=CancelToken())
        thread = threading.Thread(target=lambda: failed.append(_fails(inner, command=command)))
        thread.start()
        pids = [int(word) for word in (tmp_path / "pids").read_text().split()]
        started = time.monotonic()
        inner.cancel.cancel()
        thread.join()
        took_s = time.monotonic() - started
        assert failed == ["[stopped; the command and its children were killed]"]
        assert [_is_gone(pid) for pid in pids] == [True] * 3
        return took_s

    assert best_of(stop_one, STOP_S) < STOP_S


def test_children_left_behind_end_with_the_command(context: ToolContext) -> None:
    started = time.monotonic()
    command = "sleep 300 & echo $!; yes > /dev/null & echo $!"
    *pids, ending = SHELL.run({"command": command}, context).split("\n")
    assert time.monotonic() - started < 10
    assert ending == "[exit code 0]"
    assert [_is_gone(int(pid)) for pid in pids] == [True, True]


def test_a_child_that_left_the_group_does_not_hold_the_result_up(context: ToolContext) -> None:
    os.mkfifo(context.cwd / "pid")
    command = "setsid sh -c 'echo $$ > pid; exec sleep 300' & read pid < pid; echo $pid"
    started = time.monotonic()
    pid, ending = SHELL.run({"command": command}, context).split("\n")
    psutil.Process(int(pid)).kill()
    assert ending == "[exit code 0]"
    assert time.monotonic() - started < 10


def test_a_child_that_keeps_writing_does_not_hold_the_result_up(context: ToolContext) -> None:
    started = time.monotonic()
    assert SHELL.run({"command": "yes & exit 5"}, context).endswith("[exit code 5]")
    assert time.monotonic() - started < 10


def test_output_without_end_is_bounded(context: ToolContext) -> None:
    """More than 32 MiB: the begin and the end stay, and the text says how much is missing."""
    result = SHELL.run({"command": "echo first; yes | head -c 50000000; echo last"}, context)
    assert result.startswith("first\ny\n")
    assert result.endswith("y\nlast\n[exit code 0]")
    note = "bytes of output left out here; they are not kept]"
    _, _, tail = result.partition("\n[")
    left_out = int(tail.split(" ", 1)[0])
    assert note in tail
    shown = len(result) - len(f"\n[{left_out} {note}\n") - len("[exit code 0]")
    assert left_out + shown == len("first\n") + 50_000_000 + len("last\n")
    assert shown < 33 * 1024 * 1024


@given(
    text=st.text(max_size=60),
    sizes=st.lists(st.integers(1, 7), max_size=20),
    head=st.integers(0, 40),
    tail=st.integers(0, 40),
)
def test_a_capture_keeps_begin_and_end_however_the_bytes_arrive(
    text: str, sizes: list[int], head: int, tail: int
) -> None:
    data = text.encode()
    capture, at = Capture(head, tail), 0
    for size in [*sizes, len(data)]:
        capture.feed(data[at : at + size])
        at += size
    kept = capture.text()
    first, cut, last = kept.partition("\n[")
    if not cut or "bytes of output left out" not in last:
        assert kept == text
        return
    dropped, _, rest = last.partition(" bytes of output left out here; they are not kept]\n")
    end = len(data) - head - int(dropped)
    assert 0 < int(dropped) <= len(data) - head - min(tail, len(data) - head)
    assert first == data[:head].decode(errors="replace")
    assert rest == data[len(data) - end :].decode(errors="replace")


def test_a_command_is_described_whole() -> None:
    assert SHELL.describe({"command": "ls -l"}) == "run ls -l"
