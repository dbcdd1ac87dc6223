"""`hermes serve` from start to end: store, token, socket, server."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path

from agent.base.errors import SettingsError
from agent.base.paths import hermes_home
from agent.base.settings import Settings
from agent.server.app import ServedApp
from agent.server.guard import TOKEN_FILE, server_token
from agent.server.run import Server, address_of, open_socket, run_server
from agent.server.store import ServedStore

LOG_FILE = "server.log"


def serve(settings: Settings, say: Callable[[str], None]) -> int:
    """Serve until a signal stops it and return the exit code; `say` is told the address.

    Raises: UsageError when the address is taken; StoreError; SettingsError.
    """
    token = server_token()
    _keep_log(hermes_home() / "logs" / LOG_FILE)
    store = ServedStore(url=settings.database.url or None)
    try:
        app = ServedApp(settings, store, token)
        with open_socket(settings.server.host, settings.server.port) as listener:
            server = Server(app, app, grace_s=settings.server.shutdown_seconds)
            address = address_of(listener)
            return run_server(
                server,
                listener,
                lambda: say(f"serving at {address} (key: the line of $HERMES_HOME/{TOKEN_FILE})"),
            )
    finally:
        store.close()


def _keep_log(path: Path) -> None:
    """Write warnings and what nobody expected to a file, which is made with the first of them.

    Raises: SettingsError when its folder cannot be made.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise SettingsError(f"{str(path.parent)!r} cannot be made: {error.strerror}") from None
    log = logging.FileHandler(path, encoding="utf-8", delay=True, errors="replace")
    log.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s %(message)s"))
    log.setLevel(logging.WARNING)
    logging.getLogger().addHandler(log)
