"""Listening, running and stopping: one uvicorn server for `hermes serve` and `hermes proxy`.

A signal stops the listening at once; requests under way get `grace_s` to end, then they are told
to. Read next: `app.py`.
"""

from __future__ import annotations

import asyncio
import logging
import signal
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Protocol

import uvicorn
from starlette.types import ASGIApp

from agent.base.errors import SettingsError, UsageError
from agent.base.paths import hermes_home
from agent.server.heads import Heads
from agent.server.uploads import Uploads

_LAST_GRACE_S = 5.0
"""How long requests that were told to end may take before their connections are cut."""
_BACKLOG = 512


class Work(Protocol):
    """What a server does, as far as stopping is concerned."""

    async def drain(self, grace_s: float) -> None:
        """Take nothing new, wait up to `grace_s` for what runs, then tell it to end."""
        ...


def open_socket(host: str, port: int) -> socket.socket:
    """Return a listening socket; port 0 takes a free one.

    Raises: UsageError when the address cannot be listened on.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # asyncio sends small pieces at once only on sockets that name their protocol; else each waits
    # 40 ms for the client's acknowledgement.
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, port))
        listener.listen(_BACKLOG)
    except OSError as error:
        listener.close()
        raise UsageError(
            f"cannot listen on {host}:{port}: {error.strerror or error}; "
            "choose another with --host and --port"
        ) from None
    return listener


def address_of(listener: socket.socket) -> str:
    """Return the URL that a listening socket answers at."""
    host, port = listener.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


@contextmanager
def kept_log(name: str) -> Iterator[None]:
    """Write warnings and what nobody expected to a file of the home folder, which is made with the
    first of them, for the length of a `with` block.

    Raises: SettingsError when its folder cannot be made.
    """
    path = hermes_home() / "logs" / name
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise SettingsError(f"{str(path.parent)!r} cannot be made: {error.strerror}") from None
    log = logging.FileHandler(path, encoding="utf-8", delay=True, errors="replace")
    log.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s %(message)s"))
    log.setLevel(logging.WARNING)
    logging.getLogger().addHandler(log)
    try:
        yield
    finally:
        logging.getLogger().removeHandler(log)
        log.close()


class Server(uvicorn.Server):
    """A server that lets its work end before connections are cut.

    `stop_signal` is the signal that stopped it, None when `should_exit` was set otherwise;
    `on_start` is called once requests are taken and signals are heard.
    """

    def __init__(self, app: ASGIApp, work: Work, *, grace_s: float) -> None:
        self._uploads = Uploads(app)
        super().__init__(
            uvicorn.Config(
                self._uploads,
                http=Heads,
                ws="none",
                log_config=None,
                access_log=False,
                server_header=False,
                timeout_graceful_shutdown=int(grace_s + _LAST_GRACE_S),
            )
        )
        self._work = work
        self._grace_s = grace_s
        self.stop_signal: int | None = None
        self.on_start: Callable[[], None] = lambda: None

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start taking requests, and tell."""
        await super().startup(sockets)
        if not self.should_exit:
            self.on_start()

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Stop in order; a second Ctrl-C stops at once. Signals are not raised again."""
        self.force_exit = self.should_exit and sig == signal.SIGINT
        self.should_exit = True
        self.stop_signal = self.stop_signal or sig

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Stop listening, let the work end, then close what is left."""
        self._uploads.stop()
        draining = asyncio.ensure_future(self._work.drain(self._grace_s))
        await super().shutdown(sockets)
        draining.cancel()
        await asyncio.gather(draining, return_exceptions=True)


def run_server(server: Server, listener: socket.socket, on_start: Callable[[], None]) -> int:
    """Run until a signal stops it and return the exit code: 0, or 130 after Ctrl-C."""
    server.on_start = on_start
    server.run(sockets=[listener])
    return 130 if server.stop_signal == signal.SIGINT else 0
