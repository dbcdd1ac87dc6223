"""`hermes proxy` from start to end: store, socket, server."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable

from agent.base.paths import hermes_home
from agent.base.settings import Settings
from agent.server.guard import Door, Guard
from agent.server.proxy import Proxy
from agent.server.run import Server, address_of, open_socket, run_server
from hermes_state import SessionDB

LOG_FILE = "proxy.log"
_SWITCH_S = 0.001
"""How long a thread that extracts or plans may keep those waiting that pass answers on."""


def serve_proxy(
    settings: Settings, upstream: str, host: str, port: int, say: Callable[[str], None]
) -> int:
    """Forward until a signal stops it and return the exit code; `say` is told the address.

    Raises: UsageError when the address is taken; StoreError.
    """
    sys.setswitchinterval(_SWITCH_S)
    path = hermes_home() / "logs" / LOG_FILE
    path.parent.mkdir(parents=True, exist_ok=True)
    log = logging.FileHandler(path, encoding="utf-8", delay=True, errors="replace")
    log.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s %(message)s"))
    log.setLevel(logging.WARNING)
    logging.getLogger().addHandler(log)
    store = SessionDB(url=settings.database.url or None)
    try:
        proxy = Proxy(store, settings, upstream)
        try:
            with open_socket(host, port) as listener:
                door = Door(host, settings.server.allowed_hosts, settings.server.allowed_origins)
                grace_s = settings.server.shutdown_seconds
                server = Server(Guard(proxy, door), proxy, grace_s=grace_s)
                address = f"{address_of(listener)}/v1"
                return run_server(
                    server,
                    listener,
                    lambda: say(f"proxy to {proxy.upstream}: give clients the base URL {address}"),
                )
        finally:
            proxy.close()
    finally:
        store.close()
        logging.getLogger().removeHandler(log)
        log.close()
