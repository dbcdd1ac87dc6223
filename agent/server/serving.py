"""`hermes serve` from start to end: store, token, socket, server."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing

from agent.base.settings import Settings
from agent.server.app import ServedApp
from agent.server.guard import TOKEN_FILE, server_token
from agent.server.run import Server, address_of, kept_log, open_socket, run_server
from agent.server.store import ServedStore

LOG_FILE = "server.log"


def serve(settings: Settings, say: Callable[[str], None]) -> int:
    """Serve until a signal stops it and return the exit code; `say` is told the address.

    Raises: UsageError when the address is taken; StoreError; SettingsError.
    """
    token = server_token()
    with kept_log(LOG_FILE), closing(ServedStore(url=settings.database.url or None)) as store:
        app = ServedApp(settings, store, token)
        with open_socket(settings.server.host, settings.server.port) as listener:
            server = Server(app, app, grace_s=settings.server.shutdown_seconds)
            address = address_of(listener)
            return run_server(
                server,
                listener,
                lambda: say(f"serving at {address} (key: the line of $HERMES_HOME/{TOKEN_FILE})"),
            )
