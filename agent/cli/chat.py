"""`hermes chat`: the interactive screen at a terminal, line mode without one, one turn with -q."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any

import typer

from agent.base.errors import HermesError, UsageError
from agent.base.settings import Settings
from agent.cli.opening import AgentChoice, open_store, require_model
from agent.cli.options import command_app, takes_options
from agent.sessions.records import SessionRecord
from agent.settings import load_settings
from agent.tui.chat import Chat, find_pass
from agent.tui.failures import describe
from agent.tui.lines import (
    JsonScreen,
    LineScreen,
    answer_line,
    event_json,
    failure_events,
    run_lines,
)
from agent.tui.slash import resumed_line
from hermes_state import SessionDB

app = command_app()


@dataclass(frozen=True)
class ChatOptions:
    """What `hermes chat` is called with."""

    text: Annotated[
        str | None, typer.Option("-q", "--query", metavar="TEXT", help="One turn, then exit.")
    ] = None
    session: Annotated[str, typer.Option(metavar="ID|TITLE", help="Go on with this session.")] = ""
    newest: Annotated[
        bool, typer.Option("--continue", help="Go on with the most recent session.")
    ] = False
    model: Annotated[str | None, typer.Option(metavar="NAME", help="Model to use.")] = None
    base_url: Annotated[
        str | None, typer.Option(metavar="URL", help="Endpoint, such as https://host/v1.")
    ] = None
    api_mode: Annotated[
        str | None,
        typer.Option(metavar="MODE", help="The wire, such as responses; see model.api_mode."),
    ] = None
    no_tools: Annotated[bool, typer.Option("--no-tools", help="Offer no tools.")] = False
    yolo: Annotated[
        bool, typer.Option("--yolo", help="Run tools without asking (tools.approval off).")
    ] = False
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one event a line, turn_finished last.")
    ] = False

    def overrides(self) -> dict[str, Any]:
        """Return the settings that the command line sets; None leaves one as it is."""
        return {
            "model.name": self.model,
            "model.base_url": self.base_url,
            "model.api_mode": self.api_mode,
            "tools.approval": "off" if self.yolo else None,
        }


@app.command(epilog="Example: hermes chat -q 'What is in this folder?' --continue")
@takes_options(ChatOptions)
def chat(options: ChatOptions) -> None:
    """Talk with the model. Without a terminal: one message a line in, one answer each out."""
    raise typer.Exit(run(options))


def start() -> None:
    """Run `hermes` without a command."""
    raise typer.Exit(run(ChatOptions()))


def run(options: ChatOptions) -> int:
    """Open settings, store and session, talk, and return the exit code."""
    try:
        return _open_and_talk(options)
    except HermesError as error:
        if options.as_json:
            events = failure_events(describe(error))
            sys.stdout.write("".join(event_json(event) for event in events))
        raise


def _open_and_talk(options: ChatOptions) -> int:
    if options.text is not None and not options.text.strip():
        raise UsageError(f"-q {options.text!r} has no text; give the message to send")
    settings = load_settings(options.overrides())
    require_model(settings)
    store = open_store(settings)
    try:
        record = find_start(store, options)
        return _talk(options, settings, store, record)
    finally:
        store.close()


def find_start(store: SessionDB, options: ChatOptions) -> SessionRecord | None:
    """Return the stored session to go on with, or None for a new one.

    Raises: UsageError when both are named or there is none to continue; UnknownSession.
    """
    if options.session and options.newest:
        raise UsageError("--session and --continue both name a session; give one of them")
    if options.session:
        return store.find_session(options.session)
    if not options.newest:
        return None
    newest = store.sessions(limit=1)
    if not newest:
        raise UsageError("--continue finds no session yet; start one with: hermes chat")
    return newest[0]


def _talk(
    options: ChatOptions, settings: Settings, store: SessionDB, record: SessionRecord | None
) -> int:
    open_agent = AgentChoice(settings, store, tools=not options.no_tools)
    find = partial(find_pass, store)
    session_id = record.id if record is not None else None
    if options.text is None and not options.as_json and _is_interactive():
        # prompt_toolkit takes 100 ms to import, which line mode does not need
        run_terminal: Callable[..., int] = importlib.import_module(
            "agent.tui.interactive"
        ).run_terminal
        greeting = [resumed_line(record)] if record is not None else []
        return run_terminal(open_agent, store, session_id, greeting)
    screen = (
        JsonScreen(sys.stdout, sys.stderr)
        if options.as_json
        else LineScreen(sys.stdout, sys.stderr, find, live=sys.stdout.isatty())
    )
    chat_ = Chat(open_agent, screen, store)
    try:
        chat_.switch(session_id)
        if options.text is None:
            return run_lines(chat_, screen, sys.stdin)
        answer_line(chat_, screen, options.text)
        return screen.exit_code
    finally:
        chat_.close()


def _is_interactive() -> bool:
    return sys.stdin.isatty() and sys.stdout.isatty() and os.environ.get("TERM") not in ("", "dumb")
