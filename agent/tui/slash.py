"""Commands inside a conversation: one table for line mode and for the interactive screen."""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable
from pathlib import Path

from agent.base.errors import UsageError
from agent.base.record import dataclass
from agent.providers.catalog import list_models
from agent.sessions.records import PassRecord, PassStatus, SessionRecord
from agent.tui import figures
from agent.tui.changes import undo_lines
from agent.tui.chat import Chat
from agent.tui.files import export_file
from agent.tui.pins import pin_line, pins_table
from agent.tui.receipt import pass_failure, plan_lines
from agent.tui.render import (
    Line,
    meter_lines,
    pass_line,
    passes_table,
    row_lines,
    sessions_table,
)

_COMMAND = re.compile(r"/([a-zA-Z][a-zA-Z-]*)(?:\s+(.*))?", re.DOTALL)
_TOLD_CELLS = 60
_ROWS = re.compile(r"\d+(\s*-\s*\d+)?")


@dataclass(frozen=True)
class Slash:
    """A command. `idle_only` ones are refused while a turn or a pass runs."""

    name: str
    usage: str
    about: str
    run: Callable[[Chat, str], None]
    idle_only: bool = False


def parse(text: str) -> tuple[str, str] | None:
    """Return (name, argument) of a command line, or None for a message such as `/etc/hosts?`."""
    found = _COMMAND.fullmatch(text.strip())
    return (found.group(1).lower(), (found.group(2) or "").strip()) if found else None


def run(chat: Chat, text: str) -> bool:
    """Run `text` if it is a command; return whether it was one.

    Raises: UsageError for an unknown command, and what the command raises.
    """
    parsed = parse(text)
    if parsed is None:
        return False
    name, argument = parsed
    command = COMMANDS.get(name)
    if command is None:
        near = difflib.get_close_matches(name, COMMANDS, n=1, cutoff=0.6)
        advice = f"did you mean /{near[0]}? " if near else ""
        raise UsageError(f"unknown command '/{name}'; {advice}/help lists all of them")
    if command.idle_only and chat.busy:
        raise UsageError(f"'/{name}' has to wait: a turn or a pass is running; /stop ends it")
    command.run(chat, argument)
    return True


def _compress(chat: Chat, argument: str) -> None:
    preview = re.fullmatch(r"--preview(?:\s+(.*))?|(.*?)\s+--preview", argument, re.DOTALL)
    if preview is None:
        chat.start(lambda: _run_pass(chat, argument))
    else:
        focus = preview.group(1) or preview.group(2) or ""
        chat.start(lambda: _preview_pass(chat, focus))


def _run_pass(chat: Chat, focus: str) -> None:
    _show_outcome(chat, chat.agent.compress(focus or None))


def _show_outcome(chat: Chat, record: PassRecord) -> None:
    failure = pass_failure(record)
    if failure is None:
        chat.screen.show([pass_line(record)])
    else:
        chat.screen.failed(failure)


def _preview_pass(chat: Chat, focus: str) -> None:
    record = chat.agent.compress(focus or None, preview=True)
    if record.status is not PassStatus.PREPARED:
        _show_outcome(chat, record)
    else:
        chat.screen.show(plan_lines(record))
        answer = chat.screen.ask("commit this compaction? [y]es / [n]o")
        if answer is None:
            chat.screen.show([Line("/compress commits it, without a second summary", "dim")])
        else:
            _decide(chat, answer)


def _decide(chat: Chat, answer: str) -> None:
    if answer in ("y", "yes"):
        _show_outcome(chat, chat.agent.commit_prepared())
    else:
        chat.agent.discard_prepared()
        chat.screen.show([Line("the preview was dropped, nothing changed", "dim")])


def _undo_compress(chat: Chat, argument: str) -> None:
    chat.screen.show(undo_lines(chat.agent.undo_compaction(argument or None)))


def _undo(chat: Chat, _argument: str) -> None:
    chat.start(lambda: chat.screen.show([_taken_back(chat.agent.undo_turn())]))


def _taken_back(text: str) -> Line:
    said = figures.clip(figures.one_line(text), _TOLD_CELLS)
    return Line(f"took back {said!r} and what followed", "dim")


def _retry(chat: Chat, _argument: str) -> None:
    chat.start(lambda: chat.screen.ended(chat.agent.retry()))


def _branch(chat: Chat, argument: str) -> None:
    before = chat.agent.session_id
    branch = chat.agent.branch(argument or None)
    chat.screen.show([Line(f"now in {branch}, a fork; /resume {before} goes back", "dim")])


def _export(chat: Chat, argument: str) -> None:
    session_id = chat.agent.session_id
    path = Path(argument or f"{session_id}.jsonl")
    chat.start(lambda: chat.screen.show([export_file(chat.store, session_id, path)]))


def _context(chat: Chat, _argument: str) -> None:
    chat.screen.show(meter_lines(chat.agent.context(), chat.screen.width))


def _compactions(chat: Chat, _argument: str) -> None:
    records = chat.store.passes(chat.agent.session_id)
    chat.screen.show(passes_table(records, chat.screen.width))


def _recall(chat: Chat, argument: str) -> None:
    if not argument:
        raise UsageError("/recall needs words to look for, or numbers of rows such as 40-62")
    if _ROWS.fullmatch(argument):
        messages = chat.agent.recall(rows="".join(argument.split()))
    else:
        messages = chat.agent.recall(argument)
    lines = [line for message in messages for line in row_lines(message)]
    chat.screen.show(lines or [Line(f"nothing found for {argument!r}", "dim")])


def _pin(chat: Chat, argument: str) -> None:
    if not argument:
        raise UsageError("/pin needs the instruction, such as /pin Answer in metric units.")
    chat.screen.show([pin_line(chat.agent.pin(argument), "set")])


def _pins(chat: Chat, _argument: str) -> None:
    chat.screen.show(pins_table(chat.agent.pins(), chat.screen.width))


def _unpin(chat: Chat, argument: str) -> None:
    if not argument.isdecimal():
        raise UsageError(f"/unpin needs the number of a pin, not {argument!r}; /pins lists them")
    chat.screen.show([pin_line(chat.agent.unpin(int(argument)), "took off")])


def _stop(chat: Chat, _argument: str) -> None:
    if not chat.busy:
        chat.screen.show([Line("nothing is running", "dim")])
        return
    chat.interrupt()


def _new(chat: Chat, _argument: str) -> None:
    chat.switch(None)
    chat.screen.show([Line(f"new session {chat.agent.session_id}", "dim")])


def _resume(chat: Chat, argument: str) -> None:
    if not argument:
        raise UsageError("/resume needs the id or title of a session; /sessions lists them")
    record = chat.store.find_session(argument)
    chat.switch(record.id)
    chat.screen.show([resumed_line(record)])


def resumed_line(record: SessionRecord) -> Line:
    """Return what is said when a stored session is opened."""
    title = f" {figures.one_line(record.title)!r}" if record.title else ""
    return Line(
        f"session {record.id}{title}: {figures.counted(record.message_count, 'message')}, "
        f"{record.pass_count} compacted",
        "dim",
    )


def _sessions(chat: Chat, _argument: str) -> None:
    chat.screen.show(sessions_table(chat.store.sessions(limit=20), chat.screen.width))


def _title(chat: Chat, argument: str) -> None:
    if not argument:
        raise UsageError("/title needs the new title, such as /title Garden plan")
    chat.agent.set_title(argument)
    chat.screen.show([Line(f"title set: {figures.one_line(argument)}", "dim")])


def _model(chat: Chat, argument: str) -> None:
    agent = chat.agent
    if argument:
        agent.switch_model(argument)
        chat.screen.show([Line(f"model set: {agent.provider.route}", "dim")])
        return
    chat.start(lambda: _show_models(chat))


def _show_models(chat: Chat) -> None:
    """Show the model, and what else its endpoint has, which it is asked for."""
    agent = chat.agent
    chat.screen.show([Line(f"model: {agent.provider.route}")])
    names = list_models(agent.settings.model)
    if names:
        chat.screen.show([Line(f"this endpoint has: {', '.join(names)}", "dim")])


def _usage(chat: Chat, _argument: str) -> None:
    totals = chat.agent.usage_totals()
    rows = [
        ("model calls", figures.count(totals.calls)),
        ("prompt tokens", figures.count(totals.prompt)),
        ("of them cached", figures.count(totals.cached)),
        ("of them written to the cache", figures.count(totals.cache_write)),
        ("answer tokens", figures.count(totals.completion)),
        ("cost", figures.dollars(totals.cost)),
    ]
    lines = figures.table(("since this start", ""), rows, right=("",))
    chat.screen.show([Line(text) for text in lines])


def _tools(chat: Chat, _argument: str) -> None:
    agent = chat.agent
    rows = [
        (schema["function"]["name"], figures.one_line(schema["function"]["description"]))
        for schema in agent.tool_schemas
    ]
    if not agent.provider.supports_tools:
        chat.screen.show([Line(f"{agent.provider.model} takes no tools: none are offered", "dim")])
    elif not rows:
        chat.screen.show([Line("no tools are offered", "dim")])
    else:
        lines = figures.table(("tool", "what it does"), rows, chat.screen.width)
        chat.screen.show([Line(text) for text in lines])
        chat.screen.show([Line(f"approval: {agent.settings.tools.approval}", "dim")])


def _help(chat: Chat, _argument: str) -> None:
    rows = [(f"/{command.name} {command.usage}".strip(), command.about) for command in _TABLE]
    lines = figures.table(("command", "what it does"), rows, chat.screen.width)
    chat.screen.show([Line(text) for text in lines])


def _quit(chat: Chat, _argument: str) -> None:
    chat.leaving = True


_TABLE = (
    Slash(
        "compress", "[FOCUS]", "compact the conversation now; --preview shows it first", _compress
    ),
    Slash("undo-compress", "[PASS]", "undo the newest compaction, or that one", _undo_compress),
    Slash("undo", "", "take back your last message and what followed", _undo),
    Slash("retry", "", "take back the answer and send your last message again", _retry),
    Slash("branch", "[TITLE]", "go on in a fork of this conversation", _branch, idle_only=True),
    Slash("context", "", "tokens of the next request, by part", _context),
    Slash("compactions", "", "every compaction of this conversation", _compactions),
    Slash("recall", "WORDS or A-B", "find or show accepted rows, compacted ones too", _recall),
    Slash("pin", "TEXT", "set an instruction that every request carries", _pin),
    Slash("pins", "", "the standing instructions and where they come from", _pins),
    Slash("unpin", "NUMBER", "take a standing instruction off", _unpin),
    Slash("stop", "", "stop the running turn or compaction (also Ctrl-C)", _stop),
    Slash("new", "", "start a new session", _new, idle_only=True),
    Slash("resume", "ID or TITLE", "go on with a stored session", _resume, idle_only=True),
    Slash("sessions", "", "the newest sessions", _sessions),
    Slash("title", "TEXT", "name this session", _title),
    Slash("model", "[NAME]", "show or change the model", _model, idle_only=True),
    Slash("usage", "", "tokens and cost since this start", _usage),
    Slash("tools", "", "tools that the model is offered", _tools),
    Slash("export", "[FILE]", "write this conversation as JSONL", _export),
    Slash("help", "", "this list", _help),
    Slash("quit", "", "leave (also Ctrl-D)", _quit),
)

COMMANDS = {command.name: command for command in _TABLE}
