"""Standard streams that are closed, full or left, and requests to end."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path

import pytest

from agent.testing.builders import call
from agent.testing.stub_reply import Reply
from agent.testing.stub_server import StubModelServer
from tests.cli.test_app import HERMES


@pytest.mark.parametrize("words", [["config", "show"], ["sessions", "list"], ["--help"]])
def test_a_reader_that_left_is_no_fault(words: list[str]) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run([*HERMES, *words], stdout=writer, stderr=subprocess.PIPE, check=False)
    os.close(writer)
    assert (done.returncode, done.stderr) == (1, b"")


def in_shell(redirection: str, *words: str) -> subprocess.CompletedProcess[str]:
    line = f'exec "$@" {redirection}'
    return subprocess.run(
        ["sh", "-c", line, "sh", *HERMES, *words], capture_output=True, text=True, check=False
    )


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a device that is always full")
@pytest.mark.parametrize("words", [["config", "show"], ["sessions", "list"], ["chat", "-q", "hi"]])
def test_output_that_cannot_be_written_is_told_in_one_line(
    words: list[str], endpoint: StubModelServer
) -> None:
    endpoint.script([Reply(text="long " * 20_000)])
    done = in_shell(">/dev/full", *words)
    assert (done.returncode, done.stderr) == (
        1,
        "hermes: no space is left; free some and try again\n",
    )


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
def test_a_standard_stream_may_be_closed(closed: str, stub: StubModelServer) -> None:
    words = ["chat", "-q", "hi", "--base-url", stub.base_url, "--model", "stub-model"]
    done = in_shell(closed, *words)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == ("" if ">&-" in closed.replace("2>&-", "") else "ok\n")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_request_to_end_takes_the_running_tool_along(
    number: signal.Signals, stub: StubModelServer, tmp_path: Path
) -> None:
    held = tmp_path / "held"
    os.mkfifo(held)
    command = f"exec 9>{held}; echo begun >&9; sleep 15; echo outlived >&9"
    stub.script([Reply(text=None, tool_calls=[call("shell", {"command": command})])])
    words = ["chat", "-q", "hi", "--yolo", "--base-url", stub.base_url, "--model", "stub-model"]
    process = subprocess.Popen([*HERMES, *words], stderr=subprocess.DEVNULL)
    with held.open() as told:
        assert told.readline() == "begun\n"
        process.send_signal(number)
        assert (process.wait(15), told.read()) == (128 + number, "")
