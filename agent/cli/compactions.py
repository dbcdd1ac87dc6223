"""`hermes compactions`: the ledger, one row for each attempt to compact a conversation."""

from __future__ import annotations

from typing import Annotated

import typer

from agent.cli.opening import opened_store
from agent.cli.options import JsonFlag, SessionName, command_app
from agent.cli.output import pass_shape, print_json, print_lines, terminal_width
from agent.tui.receipt import pass_lines
from agent.tui.render import Line, passes_table, row_lines

app = command_app("List and show the compactions of a conversation.")


@app.command("list", epilog="Example: hermes compactions list 'Garden plan'")
def list_passes(
    session: SessionName,
    as_json: JsonFlag = False,
) -> None:
    """List every attempt with its outcome and with tokens and messages before and after."""
    with opened_store() as store:
        records = store.passes(store.find_session(session).id)
    if as_json:
        print_json([pass_shape(record) for record in records])
    else:
        print_lines(passes_table(records, terminal_width()))


@app.command(epilog="Example: hermes compactions show 3fa9c1d2")
def show(
    pass_id: Annotated[str, typer.Argument(metavar="PASS", help="Id or beginning of an id.")],
    as_json: JsonFlag = False,
) -> None:
    """Show one compaction: its receipt, and the text that stands in for what it covers."""
    with opened_store() as store:
        record = store.pass_record(pass_id)
        _covered, made = store.pass_rows(record.id)
    if as_json:
        print_json({**pass_shape(record), "made": [message["content"] for message in made]})
        return
    lines = pass_lines(record)
    for message in made:
        lines += [Line(""), *row_lines(message, "stands in for what is covered")]
    print_lines(lines)
