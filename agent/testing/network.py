"""Keep a process off the network: only loopback and sockets without an address are reachable.

For test suites; in-process only. A breach is recorded as well as refused, so that a caller which
swallows the error is found out too.
"""

from __future__ import annotations

import functools
import ipaddress
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any


class ForbiddenConnection(OSError):
    """Something tried to reach a host other than this machine."""


class LoopbackOnly:
    """Refuse, while entered, every connection and name look-up that would leave the machine.

    `breaches` lists what was refused, oldest first. Names under `.invalid` fail to resolve, as
    they do everywhere, and are no breach. May be nested: the inner one hears first.
    """

    def __init__(self) -> None:
        self.breaches: list[str] = []
        self._undo: list[Callable[[], None]] = []

    def __enter__(self) -> LoopbackOnly:
        for name in ("connect", "connect_ex", "sendto"):
            self._patch(socket.socket, name, self._guard_call(getattr(socket.socket, name), name))
        for name in ("getaddrinfo", "gethostbyname"):
            self._patch(socket, name, self._guard_look_up(getattr(socket, name)))
        return self

    def __exit__(self, *_error: object) -> None:
        while self._undo:
            self._undo.pop()()

    def take_breaches(self) -> list[str]:
        """Return what was refused since the last call and forget it."""
        taken, self.breaches = self.breaches, []
        return taken

    def _patch(self, owner: Any, name: str, stand_in: Any) -> None:
        if name in vars(owner):
            self._undo.append(functools.partial(setattr, owner, name, getattr(owner, name)))
        else:
            self._undo.append(functools.partial(delattr, owner, name))
        setattr(owner, name, stand_in)

    def _guard_call(self, inherited: Any, name: str) -> Any:
        def call(sock: socket.socket, *arguments: Any) -> Any:
            address = arguments[-1]
            if sock.family in (socket.AF_INET, socket.AF_INET6):
                self._admit(address[0], f"{name} to {address!r}")
            return inherited(sock, *arguments)

        return call

    def _guard_look_up(self, resolve: Any) -> Any:
        def look_up(host: Any, *arguments: Any, **named: Any) -> Any:
            self._admit(host, f"look-up of {host!r}")
            return resolve(host, *arguments, **named)

        return look_up

    def _admit(self, host: Any, what: str) -> None:
        name = host.decode() if isinstance(host, bytes) else host
        if name in (None, "", "localhost") or _is_loopback(name):
            return
        if name.rstrip(".").endswith(".invalid"):
            raise socket.gaierror(socket.EAI_NONAME, f"name {name!r} does not exist")
        self.breaches.append(what)
        raise ForbiddenConnection(f"{what} refused: only loopback is allowed here")


@contextmanager
def closed_port() -> Iterator[int]:
    """Give a port of 127.0.0.1 that refuses connections for the length of a `with` block: it is
    held, so that no other process gets to listen there."""
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        yield holder.getsockname()[1]


def _is_loopback(name: str) -> bool:
    try:
        return ipaddress.ip_address(name.partition("%")[0]).is_loopback
    except ValueError:
        return False
