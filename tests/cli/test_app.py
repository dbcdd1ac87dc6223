"""The boundary: help, version, completion, and what happens to failures."""

from __future__ import annotations

import math
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator

import pytest
import typer

from agent.base.paths import hermes_home
from agent.base.redact import redact
from agent.cli import app as cli
from agent.testing.stub_reply import Reply
from agent.testing.stub_server import StubModelServer
from tests.cli.conftest import Hermes, Ran

HERMES = [sys.executable, "-c", "from agent.cli.app import main; main()"]


def commands() -> Iterator[list[str]]:
    """Every command with its subcommands."""
    for name in cli.COMMANDS:
        module = __import__(cli.COMMANDS[name], fromlist=["app"])
        found = module.app.registered_commands
        groups = len(found) > 1 or module.app.registered_callback is not None
        for command in found:
            own = command.name or command.callback.__name__
            yield [name, own] if groups else [name]


@pytest.mark.parametrize("words", list(commands()), ids=" ".join)
def test_every_command_has_help_with_an_example(words: list[str], hermes: Hermes) -> None:
    ran = hermes(*words, "--help")
    assert (ran.code, ran.err) == (0, "")
    assert f"Usage: hermes {' '.join(words)}" in ran.out
    assert f"Example: hermes {' '.join(words)}" in ran.out


def test_the_root_lists_exactly_the_commands_there_are(hermes: Hermes) -> None:
    listed = hermes("--help").out.split("Commands:")[1].split("Example:")[0]
    assert re.findall(r"^  (\w+)", listed, re.MULTILINE) == list(cli.COMMANDS)


def test_the_version_is_printed_without_importing_a_command() -> None:
    script = (
        "import sys; from agent.cli.app import run; run(['--version']); "
        "heavy = {'prompt_toolkit', 'rich', 'run_agent', 'yaml', 'httpx2'}; "
        "sys.exit(','.join(sorted(heavy & sys.modules.keys())) or 0)"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "hermes 0.1.0\n", "")


def test_completion_offers_subcommands() -> None:
    environment = {
        **os.environ,
        "_HERMES_COMPLETE": "complete_bash",
        "COMP_WORDS": "hermes sessions ",
        "COMP_CWORD": "2",
    }
    done = subprocess.run(HERMES, env=environment, capture_output=True, text=True, check=False)
    assert done.stdout.split() == [
        *("list", "show", "search", "rename", "fork", "export", "import", "delete")
    ]


def test_an_unexpected_failure_is_one_line_and_its_traceback_is_in_the_log(
    hermes: Hermes, monkeypatch: pytest.MonkeyPatch
) -> None:
    app = typer.Typer()

    @app.command()
    def broken() -> None:
        raise RuntimeError("key sk-ant-REDACTED-by-nobody is\nbad")

    monkeypatch.setattr(cli, "app", app)
    log = hermes_home() / "logs" / "hermes.log"
    assert hermes() == Ran(
        1,
        "",
        f"hermes: unexpected RuntimeError: key {redact('sk-ant-REDACTED-by-nobody')} is bad; "
        f"the traceback is in {str(log)!r}, please report it\n",
    )
    text = log.read_text()
    assert "Traceback (most recent call last)" in text
    assert "sk-ant-" not in text.split("RuntimeError: ")[1]


def test_an_interrupt_ends_with_130(hermes: Hermes, monkeypatch: pytest.MonkeyPatch) -> None:
    app = typer.Typer()

    @app.command()
    def stopped() -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(cli, "app", app)
    assert hermes() == Ran(130, "", "")


def test_a_first_interrupt_stops_the_turn_and_the_answer_so_far_is_kept(
    stub: StubModelServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HERMES_MODEL__CONTEXT_LENGTH", "16000")
    stub.script([Reply(text="half an answer that never ends", stall_after_chars=12)])
    process = subprocess.Popen(
        [*HERMES, "chat", "-q", "hello", "--base-url", stub.base_url, "--model", "stub-model"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    [request] = stub.wait_for_requests(1)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=15)
    assert (process.returncode, err) == (130, "hermes: the turn was stopped\n")
    assert request.done.wait(10)
    assert "half an answer that never ends".startswith(out.strip())


def test_on_lines_a_first_interrupt_stops_the_turn_and_a_second_one_leaves(
    stub: StubModelServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HERMES_MODEL__CONTEXT_LENGTH", "16000")
    never = Reply(text="never", before_first_byte_s=math.inf)
    stub.script([never, Reply(text="second answer"), never])
    process = subprocess.Popen(
        [*HERMES, "chat", "--base-url", stub.base_url, "--model", "stub-model"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    assert process.stderr is not None
    process.stdin.write("first\nsecond\nthird\n")
    process.stdin.flush()
    stub.wait_for_requests(1)
    process.send_signal(signal.SIGINT)
    assert process.stderr.readline() == "hermes: the turn was stopped\n"
    assert process.stdout.readline() == "second answer\n"
    stub.wait_for_requests(3)
    process.send_signal(signal.SIGINT)
    assert process.stderr.readline() == "hermes: the turn was stopped\n"
    process.send_signal(signal.SIGINT)
    assert process.wait(15) == 130
    for pipe in (process.stdin, process.stdout, process.stderr):
        pipe.close()
