"""`hermes compactions`: the ledger, one row for each attempt to compact a conversation."""

from __future__ import annotations

import dataclasses
from typing import Annotated

import typer

from agent.base.clock import SYSTEM_CLOCK
from agent.base.settings import ModelSettings
from agent.cli.opening import opened_agent, opened_store
from agent.cli.options import JsonFlag, SessionName, command_app
from agent.cli.output import changes_shape, print_json, print_lines, terminal_width
from agent.compaction.cooldown import Health
from agent.sessions.shapes import pass_shape
from agent.settings import load_settings, needs_model_name
from agent.tui.changes import changes_lines, undo_lines
from agent.tui.receipt import memory_lines, pass_lines
from agent.tui.render import Line, passes_table, row_lines

PassName = Annotated[str, typer.Argument(metavar="PASS", help="Id or beginning of an id.")]

app = command_app("List, show, compare and undo the compactions of a conversation.")


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
    pass_id: PassName,
    as_json: JsonFlag = False,
) -> None:
    """Show one compaction: its receipt, and the text that stands in for what it covers."""
    with opened_store() as store:
        record = store.pass_record(pass_id)
        _covered, made = store.pass_rows(record.id)
        health = Health.from_dict(store.health(record.session_id))
    rung = health.failed_in(record.id, SYSTEM_CLOCK.now())
    if as_json:
        memory = None if rung is None else dataclasses.asdict(rung)
        texts = [message["content"] for message in made]
        print_json({**pass_shape(record), "made": texts, "not_again": memory})
        return
    lines = [*pass_lines(record), *memory_lines(rung)]
    for message in made:
        lines += [Line(""), *row_lines(message, "stands in for what is covered")]
    print_lines(lines)


@app.command(epilog="Example: hermes compactions diff 3fa9c1d2")
def diff(pass_id: PassName, as_json: JsonFlag = False) -> None:
    """Show what left the view, what stands in its place, and what is in no row of it any more."""
    with opened_store() as store:
        changes = store.pass_changes(pass_id)
    if as_json:
        print_json(changes_shape(changes))
    else:
        print_lines(changes_lines(changes))


@app.command(epilog="Example: hermes compactions undo 'Garden plan' --pass 3fa9c1d2")
def undo(
    session: SessionName,
    pass_id: Annotated[
        str,
        typer.Option("--pass", metavar="PASS", help="Id or beginning of one; the newest without."),
    ] = "",
    as_json: JsonFlag = False,
) -> None:
    """Undo a compaction: what it covered is in the view again, later messages stay."""
    settings = load_settings()
    if needs_model_name(settings):
        # No model is asked, so any will do.
        settings = dataclasses.replace(settings, model=ModelSettings())
    with opened_agent(settings, session) as agent:
        result = agent.undo_compaction(pass_id or None)
    if as_json:
        print_json([pass_shape(record) for record in result.ledger])
    else:
        print_lines(undo_lines(result))
