"""`hermes pins`: standing instructions, which every request of a conversation carries."""

from __future__ import annotations

import dataclasses
from typing import Annotated

import typer

from agent.cli.opening import opened_agent, opened_store
from agent.cli.options import JsonFlag, SessionName, command_app
from agent.cli.output import print_json, print_lines, terminal_width
from agent.settings import load_settings
from agent.tui.pins import pin_line, pins_table

app = command_app("List, set and take off the standing instructions of a conversation.")


@app.command("list", epilog="Example: hermes pins list 'Garden plan'")
def list_pins(session: SessionName, as_json: JsonFlag = False) -> None:
    """List the instructions in force, with the messages they come from."""
    with opened_store() as store:
        record = store.find_session(session)
        store.extract_pending()
        pins = store.pins(record.id)
    if as_json:
        print_json([dataclasses.asdict(pin) for pin in pins])
    else:
        print_lines(pins_table(pins, terminal_width()))


@app.command(epilog="Example: hermes pins add 'Garden plan' 'Answer in metric units.'")
def add(
    session: SessionName,
    text: Annotated[str, typer.Argument(metavar="TEXT", help="The instruction, as a sentence.")],
) -> None:
    """Set an instruction; it is shown to the model word for word from now on."""
    with opened_agent(load_settings(), session) as agent:
        pin = agent.pin(text)
    print_lines([pin_line(pin, "set")])


@app.command(epilog="Example: hermes pins remove 'Garden plan' 3")
def remove(
    session: SessionName,
    pin: Annotated[int, typer.Argument(metavar="PIN", help="Its number, as listed.")],
) -> None:
    """Take an instruction off; the message it came from stays."""
    with opened_store() as store:
        taken = store.retire_pin(store.find_session(session).id, pin)
    print_lines([pin_line(taken, "took off")])
