"""Where a wire sends to, and how that is shown without showing a key."""

from __future__ import annotations

import functools
from base64 import b64encode
from dataclasses import field
from urllib.parse import quote, unquote, urlsplit, urlunsplit

from agent.base.errors import SettingsError
from agent.base.record import dataclass

_KEPT = "/%:@!$&'()*+,;=?~"
"""Characters of a path or query that mean what they are."""


@dataclass(frozen=True)
class Endpoint:
    """The root of an API. `key` is sent and never shown; `route` is what people read.

    `headers` go out with every request, names in lower case.
    Raises: SettingsError when the address or the key cannot be sent to or with.
    """

    base_url: str = field(repr=False)
    key: str = field(repr=False)
    route: str
    headers: tuple[tuple[str, str], ...] = ()

    def __post_init__(self) -> None:
        parts = urlsplit(self.base_url)
        if parts.scheme not in {"http", "https"} or not parts.hostname:
            raise SettingsError(
                f"model.base_url {bare_url(self.base_url)!r} is no http or https address; "
                "set it to one such as 'https://host/v1'"
            )
        if not (self.key.isascii() and self.key.isprintable() and " " not in self.key):
            raise SettingsError(
                "model.api_key holds a space or another character that no header can carry; "
                "copy the key again"
            )

    @property
    def scheme(self) -> str:
        """`http` or `https`."""
        return urlsplit(self.base_url).scheme

    @property
    def host(self) -> str:
        """The host name, in lower case."""
        return urlsplit(self.base_url).hostname or ""

    @property
    def is_loopback(self) -> bool:
        """Whether the endpoint is this machine: no proxy stands between, no price list knows it."""
        return self.host.startswith("127.") or self.host in {"localhost", "::1"}

    @property
    def authorization(self) -> str:
        """The header that carries the key, or the user and password of the address; else empty."""
        if self.key:
            return f"Bearer {self.key}"
        parts = urlsplit(self.base_url)
        if parts.username is None:
            return ""
        login = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
        return f"Basic {b64encode(login.encode()).decode()}"

    def url(self, path: str) -> str:
        """Return the address of `path`, which begins with a slash, in the characters of a URL."""
        return _joined(self.base_url, path)


@functools.lru_cache(maxsize=64)
def _joined(base_url: str, path: str) -> str:
    parts = urlsplit(base_url.rstrip("/") + path)
    host = parts.netloc.rpartition("@")[2].encode("idna").decode()
    return urlunsplit((parts.scheme, host, quote(parts.path, _KEPT), quote(parts.query, _KEPT), ""))


def bare_url(url: str) -> str:
    """Return an address without user, password, query and fragment, where keys may stand."""
    parts = urlsplit(url)
    host = parts.netloc.rpartition("@")[2]
    return f"{parts.scheme}://{host}{parts.path}".rstrip("/") if parts.scheme else parts.path
