"""`hermes proxy`: endless conversations for clients that speak to an OpenAI-compatible endpoint."""

from __future__ import annotations

from functools import partial
from typing import Annotated
from urllib.parse import urlsplit

import typer

from agent.base.errors import UsageError
from agent.cli.opening import import_extra
from agent.cli.options import command_app
from agent.providers.endpoint import bare_url
from agent.settings import load_settings

app = command_app()


@app.command(epilog="Example: hermes proxy --upstream https://api.openai.com/v1")
def proxy(
    upstream: Annotated[
        str,
        typer.Option(
            metavar="URL", help="Root of the endpoint that is forwarded to, as in https://host/v1."
        ),
    ],
    host: Annotated[str, typer.Option(metavar="H", help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[
        int, typer.Option(metavar="P", min=0, max=65_535, help="Port; 0 takes a free one.")
    ] = 8788,
) -> None:
    """Forward chat completions so that no conversation outgrows the model's window.

    Clients keep their keys; each conversation is a session that the other commands read.
    """
    parts = urlsplit(upstream)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise UsageError(
            f"--upstream {bare_url(upstream)!r} is no http or https address; "
            "give one such as 'https://host/v1'"
        )
    serving = import_extra("agent.server.proxy_serving", "server")
    settings = load_settings()
    say = partial(typer.echo, err=True)
    raise typer.Exit(serving.serve_proxy(settings, upstream, host, port, say))
