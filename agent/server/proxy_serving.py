"""`hermes proxy` from start to end: store, socket, server."""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import closing

from agent.base.settings import Settings
from agent.server.guard import Door, Guard
from agent.server.proxy import Proxy
from agent.server.run import Server, address_of, kept_log, open_socket, run_server
from hermes_state import SessionDB

LOG_FILE = "proxy.log"
_SWITCH_S = 0.001
"""How long a thread that extracts or plans may keep those waiting that pass answers on."""


def serve_proxy(
    settings: Settings, upstream: str, host: str, port: int, say: Callable[[str], None]
) -> int:
    """Forward until a signal stops it and return the exit code; `say` is told the address.

    Raises: UsageError when the address is taken; StoreError; SettingsError.
    """
    sys.setswitchinterval(_SWITCH_S)
    with (
        kept_log(LOG_FILE),
        closing(SessionDB(url=settings.database.url or None)) as store,
        closing(Proxy(store, settings, upstream)) as proxy,
        open_socket(host, port) as listener,
    ):
        door = Door(host, settings.server.allowed_hosts, settings.server.allowed_origins)
        grace_s = settings.server.shutdown_seconds
        server = Server(Guard(proxy, door), proxy, grace_s=grace_s)
        address = f"{address_of(listener)}/v1"
        return run_server(
            server,
            listener,
            lambda: say(f"proxy to {proxy.upstream}: give clients the base URL {address}"),
        )
