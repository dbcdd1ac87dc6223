"""`hermes recall`: what the model's tool of that name does, for people."""

from __future__ import annotations

import re
from typing import Annotated

import typer

from agent.base.errors import ToolError, UsageError
from agent.cli.opening import opened_store
from agent.cli.options import JsonFlag, SessionName, command_app
from agent.cli.output import print_json, print_lines
from agent.sessions.shapes import row_shape
from agent.tools.recall import BUDGET_TOKENS, SMALLEST_BUDGET_TOKENS, Recalled, Slice, recall_rows
from agent.tools.recall import recall as read_archive
from agent.tui.render import Line, row_lines
from agent.turn.reader import StoredRows

app = command_app()
_CALL = re.compile(r'recall\(rows="([\d-]+)"(?:, offset=(\d+))?(?:, budget_tokens=\d+)?\)')


@app.command(epilog="Example: hermes recall 'Garden plan' 'frost dates'")
def recall(
    session: SessionName,
    query: Annotated[str, typer.Argument(metavar="QUERY", help="Words that a row holds.")] = "",
    rows: Annotated[
        str, typer.Option(metavar="A-B", help="Show the rows with these numbers instead.")
    ] = "",
    offset: Annotated[
        int,
        typer.Option(metavar="CHARS", min=0, help="Characters to skip in the first of the rows."),
    ] = 0,
    budget: Annotated[
        int,
        typer.Option(metavar="TOKENS", min=SMALLEST_BUDGET_TOKENS, help="Most tokens to show."),
    ] = BUDGET_TOKENS,
    as_json: JsonFlag = False,
) -> None:
    """Search a session's messages or show them by number, compacted ones too, word for word."""
    with opened_store() as store:
        record = store.find_session(session)
        reader = StoredRows(store, record.id)
        try:
            if as_json:
                found = recall_rows(reader, query, rows, offset, budget)
                print_json([row_shape(message) for message in found])
            else:
                recalled = read_archive(reader, query, rows, offset, budget)
                print_lines(recalled_lines(recalled, record.id))
        except ToolError as error:
            raise UsageError(str(error)) from None


def recalled_lines(recalled: Recalled, session: str) -> list[Line]:
    """Return each row with a heading; what was left out is named with the command that shows it."""
    lines = [line for piece in recalled.slices for line in slice_lines(piece)]
    if recalled.left_out:
        lines.append(
            Line(f"[{_CALL.sub(lambda call: _command(call, session), recalled.left_out)}]")
        )
    return lines


def slice_lines(piece: Slice) -> list[Line]:
    """Return a row, or the part of it that is shown, under its heading."""
    row = {"_seq": piece.row["_seq"], "_at": piece.row.get("_at"), "role": piece.row["role"]}
    end = piece.start + len(piece.text)
    part = f"characters {piece.start} to {end} of {piece.total}" if piece.partial else ""
    return row_lines({**row, "content": piece.text}, part)


def _command(call: re.Match[str], session: str) -> str:
    skip = f" --offset {call[2]}" if call[2] else ""
    return f"hermes recall {session} --rows {call[1]}{skip}"
