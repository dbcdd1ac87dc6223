"""`hermes sessions`: the stored conversations."""

from __future__ import annotations

import dataclasses
import sys
from pathlib import Path
from typing import Annotated

import typer

from agent.base.errors import UsageError
from agent.base.ids import new_session_id
from agent.cli.opening import opened_store
from agent.cli.options import JsonFlag, SessionName, command_app
from agent.cli.output import print_json, print_lines, terminal_width
from agent.sessions.shapes import place_shape, row_shape, session_shape
from agent.tui import figures
from agent.tui.files import export_file, import_fault, import_file, imported_line
from agent.tui.render import Line, history_lines, sessions_table

app = command_app("List, read, search, name, fork, export, import and delete stored sessions.")


@app.command("list", epilog="Example: hermes sessions list --limit 5")
def list_sessions(
    limit: Annotated[int, typer.Option(min=1, help="Most sessions to list.")] = 50,
    as_json: JsonFlag = False,
) -> None:
    """List sessions, the most recently active first."""
    with opened_store() as store:
        records = store.sessions(limit=limit)
    if as_json:
        print_json([session_shape(record) for record in records])
    else:
        print_lines(sessions_table(records, terminal_width()))


@app.command(epilog="Example: hermes sessions show 'Garden plan'")
def show(session: SessionName, as_json: JsonFlag = False) -> None:
    """Show every message of a session, those that were compacted away too."""
    with opened_store() as store:
        record = store.find_session(session)
        rows = store.history(record.id)
    if as_json:
        places = [place_shape(row) for row in rows]
        print_json({"session": session_shape(record), "messages": places})
    else:
        print_lines(history_lines(rows) or [Line("no messages yet", "dim")])


@app.command(epilog="Example: hermes sessions search 'port 5433'")
def search(
    query: Annotated[str, typer.Argument(metavar="QUERY", help="Words, or a quoted phrase.")],
    session: Annotated[str, typer.Option(metavar="SESSION", help="Only in this session.")] = "",
    limit: Annotated[int, typer.Option(min=1, help="Most messages to find.")] = 20,
    as_json: JsonFlag = False,
) -> None:
    """Find messages that hold every word, in all sessions, compacted ones too."""
    with opened_store() as store:
        session_id = store.find_session(session).id if session else None
        hits = store.search(query, session_id=session_id, limit=limit)
    if as_json:
        print_json(
            [
                {
                    "session_id": hit.session_id,
                    "title": hit.title,
                    "state": hit.state.value,
                    "snippet": hit.snippet,
                    "message": row_shape(hit.message),
                }
                for hit in hits
            ]
        )
        return
    rows = [
        (
            hit.session_id,
            f"#{hit.message['_seq']}",
            str(hit.message["role"]),
            hit.state.value,
            figures.one_line(hit.snippet),
        )
        for hit in hits
    ]
    headers = ("session", "row", "role", "state", "text")
    found = figures.table(headers, rows, terminal_width(), right=("row",))
    print_lines([Line(text) for text in found] if rows else [Line(f"nothing found for {query!r}")])


@app.command(epilog="Example: hermes sessions rename 20261130_144020_3fa9c1 'Garden plan'")
def rename(
    session: SessionName,
    title: Annotated[str, typer.Argument(metavar="TITLE", help="The new title; '' takes it off.")],
) -> None:
    """Give a session a title, by which commands then find it."""
    name = title.strip()
    with opened_store() as store:
        record = store.find_session(session)
        store.set_title(record.id, name or None)
    print_lines([Line(f"{record.id} is now {name!r}" if name else f"{record.id} has no title now")])


@app.command(epilog="Example: hermes sessions fork 'Garden plan' --rows-to 40 --title 'Plan B'")
def fork(
    session: SessionName,
    rows_to: Annotated[
        int | None,
        typer.Option("--rows-to", metavar="SEQ", min=1, help="The last row to take; all without."),
    ] = None,
    title: Annotated[str, typer.Option(metavar="TITLE", help="Title of the fork.")] = "",
    as_json: JsonFlag = False,
) -> None:
    """Make a conversation that goes on from a row of this one, which stays as it is."""
    with opened_store() as store:
        record = store.find_session(session)
        made = store.fork_session(
            record.id, new_session_id(), up_to_seq=rows_to, title=title or None
        )
    if as_json:
        print_json(session_shape(made))
    else:
        count = figures.counted(made.message_count, "message")
        print_lines([Line(f"{made.id} is a fork of {record.id} with {count}")])


@app.command(epilog="Example: hermes sessions export 'Garden plan' -o garden.jsonl")
def export(
    session: SessionName,
    output: Annotated[
        Path | None,
        typer.Option("-o", "--output", metavar="FILE", help="A new file; standard output without."),
    ] = None,
) -> None:
    """Write a whole conversation as JSONL: messages, compactions, pins, what they say."""
    with opened_store() as store:
        record = store.find_session(session)
        if output is not None:
            print_lines([export_file(store, record.id, output)])
        else:
            sys.stdout.flush()
            store.export_session(record.id, sys.stdout.buffer)


@app.command("import", epilog="Example: hermes sessions import garden.jsonl --title 'Garden plan'")
def import_session(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="What 'export' wrote.")],
    title: Annotated[str, typer.Option(metavar="TITLE", help="Title, in place of its own.")] = "",
    as_json: JsonFlag = False,
) -> None:
    """Take an exported conversation in, as a new session; one that is here stays as it is.

    A file that breaks somewhere is taken in up to there; the exit code is 2 then.
    """
    with opened_store() as store:
        imported = import_file(store, file, title or None)
        store.index_pending()
    if as_json:
        shape = dataclasses.asdict(imported)
        print_json({**shape, "session": session_shape(imported.session)})
    else:
        print_lines([imported_line(imported)])
    fault = import_fault(imported, file)
    if fault:
        raise UsageError(fault)


@app.command(epilog="Example: hermes sessions delete 'Garden plan' --yes")
def delete(
    session: SessionName,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
) -> None:
    """Delete a whole conversation for good: its messages, its compactions, its index entries."""
    with opened_store() as store:
        record = store.find_session(session)
        if not yes and not _may_delete(record.id, record.message_count):
            print_lines([Line("nothing was deleted")])
            return
        store.delete_session(record.id)
    print_lines([Line(f"deleted {record.id}")])


def _may_delete(session_id: str, message_count: int) -> bool:
    """Return whether a person agrees. Raises: UsageError when nobody can be asked."""
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise UsageError(
            f"session {session_id!r} would be deleted for good and nobody can be asked; add --yes"
        )
    what = figures.counted(message_count, "message")
    return typer.confirm(f"Delete {session_id} with {what} for good?", err=True)
