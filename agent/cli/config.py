"""`hermes config`: the settings file and the settings in force."""

from __future__ import annotations

import json
import sys
from typing import Annotated, Any

import typer

from agent.base.paths import config_file
from agent.cli.options import JsonFlag, command_app
from agent.cli.output import print_json, print_lines
from agent.settings import get_value, key_names, load_settings, redact_value, set_value
from agent.tui.render import Line

app = command_app("Show and change settings.")

KeyName = Annotated[str, typer.Argument(metavar="KEY", help="Dotted key, such as model.name.")]


@app.command(epilog="Example: hermes config path")
def path() -> None:
    """Print the path of the settings file."""
    print_lines([Line(str(config_file()))])


@app.command(epilog="Example: hermes config show --json")
def show(as_json: JsonFlag = False) -> None:
    """Print every setting in force, whether from the environment, the file or by default."""
    settings = load_settings()
    values = {key: redact_value(key, get_value(settings, key)) for key in key_names()}
    if as_json:
        print_json(values)
    else:
        print_lines([Line(f"{key}: {as_text(value)}") for key, value in values.items()])


@app.command(epilog="Example: hermes config get model.name")
def get(key: KeyName, as_json: JsonFlag = False) -> None:
    """Print one setting in force; of a key for an endpoint only its last characters."""
    value = redact_value(key, get_value(load_settings(), key))
    if as_json:
        print_json(value)
    else:
        print_lines([Line(as_text(value))])


@app.command("set", epilog="Example: hermes config set model.base_url http://127.0.0.1:8000/v1")
def set_(
    key: KeyName, value: Annotated[str, typer.Argument(metavar="VALUE", help="The new value.")]
) -> None:
    """Write one setting to the file; comments and other keys stay."""
    written = set_value(key, value)
    print_lines([Line(f"{key}: {as_text(redact_value(key, written))}")])
    in_force = get_value(load_settings(), key)
    if in_force != written:
        shown = as_text(redact_value(key, in_force))
        sys.stderr.write(f"hermes: the environment wins: {key} stays {shown} until it is unset\n")


def as_text(value: Any) -> str:
    """Return a value as it is typed: text bare, everything else as JSON."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
