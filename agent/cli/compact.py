"""`hermes compact`: one manual pass on a stored session, or the plan of one."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial
from typing import Annotated

import typer

from agent.cli.opening import AgentChoice, open_store, require_model
from agent.cli.options import JsonFlag, SessionName, command_app
from agent.cli.output import print_json, print_lines
from agent.sessions.records import PassRecord, PassStatus
from agent.sessions.shapes import pass_shape
from agent.settings import load_settings
from agent.tui.chat import Chat, find_pass
from agent.tui.lines import LineScreen, run_job
from agent.tui.receipt import as_planned, pass_failure, plan_lines
from agent.tui.render import Line, pass_line
from run_agent import AIAgent

app = command_app()


@app.command(epilog="Example: hermes compact 'Garden plan' --focus 'frost dates' --preview")
def compact(
    session: SessionName,
    focus: Annotated[str, typer.Option(metavar="TEXT", help="What to keep in more detail.")] = "",
    preview: Annotated[
        bool, typer.Option("--preview", help="Show plan and receipt; leave the pass prepared.")
    ] = False,
    as_json: JsonFlag = False,
) -> None:
    """Compact a session now. What was compacted stays readable (see 'hermes recall').

    A preview commits nothing. At a terminal it asks; otherwise the same command without --preview
    commits it, without a second summary.
    """
    settings = load_settings()
    require_model(settings)
    store = open_store(settings)
    screen = LineScreen(sys.stdout, sys.stderr, partial(find_pass, store))
    chat = Chat(AgentChoice(settings, store), screen, store)
    try:
        chat.switch(store.find_session(session).id)
        command = _Command(chat, screen, as_json)
        raise typer.Exit(command.preview(focus) if preview else command.commit(focus))
    finally:
        chat.close()
        store.close()


class _Command:
    """The steps of the command; a pass runs on the worker, so that Ctrl-C stops it."""

    def __init__(self, chat: Chat, screen: LineScreen, as_json: bool) -> None:
        self._chat = chat
        self._screen = screen
        self._as_json = as_json

    def commit(self, focus: str) -> int:
        """Commit the pass that a preview left, or run one; return the exit code."""
        return self._tell(self._run(lambda agent: agent.compress(focus or None)))

    def preview(self, focus: str) -> int:
        """Prepare a pass, show it, and ask whether to commit it if somebody can be asked."""
        record = self._run(lambda agent: agent.compress(focus or None, preview=True))
        if record is None or record.status is not PassStatus.PREPARED or self._as_json:
            return self._tell(record)
        print_lines(plan_lines(record))
        if not (sys.stdin.isatty() and sys.stderr.isatty()):
            print_lines([Line(f"commit it with: hermes compact {record.session_id}")])
            return 0
        sys.stdout.flush()
        if typer.confirm("Commit this compaction?", err=True):
            return self._tell(self._run(lambda agent: agent.commit_prepared()))
        if self._run(lambda agent: agent.discard_prepared()) is not None:
            print_lines([Line("the preview was dropped, nothing changed")])
        return self._screen.exit_code

    def _run(self, step: Callable[[AIAgent], PassRecord | None]) -> PassRecord | None:
        """Run one step of the agent and return its record; None when it failed, which is told."""
        done: list[PassRecord | None] = []

        def job() -> None:
            done.append(step(self._chat.agent))

        run_job(self._chat, self._screen, partial(self._chat.start, job))
        return done[0] if done else None

    def _tell(self, record: PassRecord | None) -> int:
        """Print the outcome and return the exit code."""
        if record is None:
            return self._screen.exit_code
        failure = pass_failure(record)
        if self._as_json:
            print_json(pass_shape(as_planned(record)))
        elif failure is None:
            print_lines([pass_line(record)])
        if failure is not None:
            self._screen.print_failure(failure)
        return failure.exit_code if failure is not None else 0
