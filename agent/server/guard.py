"""Who may ask: the token, and the Host and Origin that a browser cannot forge.

An ASGI layer around the whole application; what it refuses never reaches a route.
"""

from __future__ import annotations

import hmac
import ipaddress
import os
import secrets
from collections.abc import Collection
from pathlib import Path
from urllib.parse import urlsplit

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from agent.base.errors import SettingsError
from agent.base.paths import hermes_home
from agent.base.record import dataclass
from agent.server.faults import Fault

TOKEN_FILE = "server.token"
_LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})


def server_token(home: Path | None = None) -> str:
    """Return the token of `$HERMES_HOME/server.token`, which is made when it is missing.

    Raises: SettingsError when it can be neither read nor made.
    """
    path = (home or hermes_home()) / TOKEN_FILE
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        _make(path)
        token = path.read_text("ascii").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise SettingsError(f"the token in {str(path)!r} cannot be read or made: {error}") from None
    if not token:
        raise SettingsError(f"{str(path)!r} is empty; remove it and start again")
    return token


def _make(path: Path) -> None:
    """Write a new token in one step unless there is one: two servers may start at once."""
    if path.exists():
        return
    draft = path.with_name(f"{path.name}.{secrets.token_hex(4)}")
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(descriptor, "w") as file:
            file.write(secrets.token_urlsafe(32) + "\n")
        os.link(draft, path)
    except FileExistsError:
        return
    finally:
        draft.unlink()


@dataclass(frozen=True)
class Door:
    """What a request must show.

    `host` is the address that is listened on, `hosts` and `origins` what is let in beside it;
    `token` None asks for none; `open_paths` need none either.
    """

    host: str = "127.0.0.1"
    hosts: Collection[str] = ()
    origins: Collection[str] = ()
    token: str | None = None
    open_paths: Collection[str] = ()

    def check(self, path: str, headers: Headers) -> None:
        """Return when a request may pass. Raises: Fault with 400, 401 or 403."""
        host = headers.get("host", "")
        if not self._knows(host):
            raise Fault(
                403,
                f"the host {host[:200]!r} is not served here; add it to server.allowed_hosts",
                code="unknown_host",
            )
        origin = headers.get("origin")
        if origin is not None and not self._trusts(origin, host):
            raise Fault(
                403,
                f"the origin {origin[:200]!r} may not ask; add it to server.allowed_origins",
                code="unknown_origin",
            )
        if self.token is not None and path not in self.open_paths:
            _check_token(headers.get("authorization", ""), self.token)

    def _knows(self, host: str) -> bool:
        name = _name_of(host)
        if name in _LOOPBACK or name == self.host or name in self.hosts:
            return bool(name)
        # A name can be made to lead here by its owner's name server, an address cannot.
        return self._is_everywhere() and _address(name) is not None

    def _is_everywhere(self) -> bool:
        address = _address(self.host)
        return not self.host or (address is not None and address.is_unspecified)

    def _trusts(self, origin: str, host: str) -> bool:
        return origin in (f"http://{host}", f"https://{host}") or origin in self.origins


class Guard:
    """Lets requests through a `Door`."""

    def __init__(self, app: ASGIApp, door: Door) -> None:
        self._app = app
        self._door = door

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            try:
                self._door.check(scope["path"], Headers(scope=scope))
            except Fault as fault:
                await fault.answer.response()(scope, receive, send)
                return
        await self._app(scope, receive, send)


def _check_token(given: str, token: str) -> None:
    scheme, _, value = given.partition(" ")
    same = hmac.compare_digest(value.strip().encode("utf-8", "replace"), token.encode())
    if scheme.lower() != "bearer" or not same:
        what = "the token is wrong" if given else "a token is needed"
        raise Fault(
            401,
            f"{what}; send 'Authorization: Bearer TOKEN' with the line of {TOKEN_FILE}",
            code="invalid_api_key",
            type="authentication_error",
            headers={"WWW-Authenticate": "Bearer"},
        )


def _name_of(host: str) -> str:
    try:
        return urlsplit(f"//{host}").hostname or ""
    except ValueError:
        return ""


def _address(name: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(name)
    except ValueError:
        return None
