"""`hermes proxy`: endless conversations for clients that speak to an OpenAI-compatible endpoint."""

from __future__ import annotations

import sys
from typing import Annotated
from urllib.parse import urlsplit

import typer

from agent.base.errors import UsageError
from agent.cli.opening import open_store
from agent.cli.options import command_app
from agent.providers.endpoint import bare_url
from agent.server.guard import Door, Guard
from agent.server.proxy import Proxy
from agent.server.run import Server, address_of, open_socket, run_server
from agent.settings import load_settings

app = command_app()
DEFAULT_PORT = 8788
_GRACE_S = 30.0
_SWITCH_S = 0.001
"""How long a thread that extracts or plans may keep those waiting that pass answers on."""


@app.command(epilog="Example: hermes proxy --upstream https://api.openai.com/v1")
def proxy(
    upstream: Annotated[
        str,
        typer.Option(
            metavar="URL", help="Root of the endpoint that is forwarded to, as in https://host/v1."
        ),
    ],
    host: Annotated[str, typer.Option(metavar="HOST", help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[
        int, typer.Option(metavar="PORT", min=0, max=65_535, help="Port to listen on; 0 is any.")
    ] = DEFAULT_PORT,
) -> None:
    """Forward chat completions so that no conversation outgrows the model's window."""
    if urlsplit(upstream).scheme not in ("http", "https") or not urlsplit(upstream).hostname:
        raise UsageError(
            f"--upstream {bare_url(upstream)!r} is no http or https address; "
            "give one such as 'https://host/v1'"
        )
    sys.setswitchinterval(_SWITCH_S)
    settings = load_settings()
    store = open_store(settings)
    try:
        served = Proxy(store, settings, upstream)
        try:
            with open_socket(host, port) as listener:
                server = Server(Guard(served, Door(host)), served, grace_s=_GRACE_S)
                address = f"{address_of(listener)}/v1"
                code = run_server(
                    server,
                    listener,
                    lambda: typer.echo(
                        f"proxy to {served.upstream}: give clients the base URL {address}", err=True
                    ),
                )
        finally:
            served.close()
    finally:
        store.close()
    raise typer.Exit(code)
