"""`hermes serve`: the agent over HTTP, for OpenAI-compatible clients and for programs of ours."""

from __future__ import annotations

from functools import partial
from typing import Annotated

import typer

from agent.cli.opening import import_extra, require_model
from agent.cli.options import command_app
from agent.settings import load_settings

app = command_app()


@app.command(epilog="Example: hermes serve --port 8787")
def serve(
    host: Annotated[
        str | None, typer.Option(metavar="H", help="Address to listen on; default 127.0.0.1.")
    ] = None,
    port: Annotated[
        int | None, typer.Option(metavar="P", help="Port; 0 takes a free one; default 8787.")
    ] = None,
) -> None:
    """Serve the agent over HTTP until Ctrl-C or SIGTERM; turns that run may end first.

    Clients send the line of server.token in $HERMES_HOME as their key; /openapi.json describes
    every route.
    """
    serving = import_extra("agent.server.serving", "server")
    settings = load_settings({"server.host": host, "server.port": port})
    require_model(settings)
    raise typer.Exit(serving.serve(settings, partial(typer.echo, err=True)))
