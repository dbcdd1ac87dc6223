"""The command `hermes`: finds the module of a command, and turns every failure into one line.

A command's module is imported when that command is named, so `--version` and completion stay
quick. Read next: `chat.py`.
"""

from __future__ import annotations

import contextlib
import errno
import importlib
import os
import signal
import sys
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperGroup
from typer.exceptions import TyperException

from agent.tui.failures import INTERRUPTED, Failure, describe
from agent.tui.figures import one_line

COMMANDS = {
    "chat": "agent.cli.chat",
    "sessions": "agent.cli.sessions",
    "recall": "agent.cli.recall",
    "pins": "agent.cli.pins",
    "compact": "agent.cli.compact",
    "compactions": "agent.cli.compactions",
    "config": "agent.cli.config",
    "doctor": "agent.cli.doctor",
    "local": "agent.cli.local",
    "demo": "agent.cli.demo",
    "serve": "agent.cli.serve",
    "proxy": "agent.cli.proxy",
}


class LazyGroup(TyperGroup):
    """The root command; `COMMANDS` says where each of its commands is defined."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.commands = dict.fromkeys(COMMANDS)  # type: ignore[assignment]  # filled when named

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """Return a command by name, importing its module; None when there is no such command."""
        if cmd_name in COMMANDS and self.commands[cmd_name] is None:
            module = importlib.import_module(COMMANDS[cmd_name])
            self.commands[cmd_name] = typer.main.get_command(module.app)
        return self.commands.get(cmd_name)


app = typer.Typer(
    cls=LazyGroup,
    invoke_without_command=True,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)


@app.callback(epilog="Example: hermes chat -q 'What is in this folder?'")
def root(
    context: typer.Context,
    show_version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False,
) -> None:
    """An agent whose conversations never have to end. `hermes` alone is `hermes chat`."""
    if show_version:
        from importlib.metadata import version

        typer.echo(f"hermes {version('hermes-continuum')}")
    elif context.invoked_subcommand is None:
        importlib.import_module(COMMANDS["chat"]).start()


def main() -> None:
    """Run `hermes` with the arguments of this process and exit.

    A request to end leaves in order, so that no tool outlives the turn that runs it.
    """
    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is signal.SIG_DFL:
            signal.signal(number, _leave)
    sys.exit(run(sys.argv[1:]))


def _leave(number: int, _frame: object) -> None:
    raise SystemExit(128 + number)


def run(arguments: list[str]) -> int:
    """Run `hermes` and return its exit code; each failure is told in one line on standard error."""
    _open_streams()
    try:
        code = app(args=arguments, prog_name="hermes", standalone_mode=False)
    except TyperException as error:
        return _complain(usage_failure(error, arguments))
    except (typer.Abort, KeyboardInterrupt):
        return _end_output(INTERRUPTED)
    except Exception as error:
        return _end_output(_complain(describe(error)))
    return _end_output(code if isinstance(code, int) else 0)


def _open_streams() -> None:
    """Make the standard streams usable: one that the caller closed is empty, or goes nowhere."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        stream = getattr(sys, name)
        if stream is None:
            stream = Path(os.devnull).open(mode, encoding="utf-8")
            setattr(sys, name, stream)
        reconfigure = getattr(stream, "reconfigure", None)
        if reconfigure is not None:
            reconfigure(errors="replace")


def _end_output(code: int) -> int:
    """Write out what standard output still holds and return `code`, or 1 when that fails.

    A reader that has left, as `head` does, is no fault to speak of.
    """
    try:
        sys.stdout.flush()
    except OSError as error:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())  # Python flushes once more when it ends
        os.close(nowhere)
        if error.errno != errno.EPIPE and not code:
            _complain(describe(error))
        return code or 1
    return code


def usage_failure(error: TyperException, arguments: list[str]) -> Failure:
    """Return a wrong use of the command line as one line that names the help to read."""
    context = getattr(error, "ctx", None)
    named = [word for word in arguments[:1] if word in COMMANDS]
    command = context.command_path if context is not None else " ".join(["hermes", *named])
    text = one_line(error.format_message()).rstrip(".").replace(". Did", "; did")
    stop = "" if text.endswith("?") else ";"
    return Failure(f"{text[:1].lower()}{text[1:]}{stop} see '{command} --help'", error.exit_code)


def _complain(failure: Failure) -> int:
    with contextlib.suppress(OSError):
        sys.stderr.write(f"hermes: {failure.text}\n")
    return failure.exit_code
