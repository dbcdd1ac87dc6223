"""HTTP for the model wires: one client an endpoint, keep-alive, cancel, life and four limits.

Bytes only; what they mean is the wire's business. httpcore2 is imported at the first request.
Read next: `call.py` (limits and cancel), `network.py` (sockets).
"""

from __future__ import annotations

import functools
import threading
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from typing import TYPE_CHECKING, Protocol
from urllib.parse import unquote, urlsplit

from agent.providers.call import AnswerComplete, Call, Phase
from agent.providers.endpoint import Endpoint
from agent.providers.failures import fault_of_transport
from agent.providers.network import make_pool

if TYPE_CHECKING:
    import ssl

    import httpcore2

    class Answer(Protocol):
        """What a pool gives: an answer whose body has not been read."""

        status: int
        headers: list[tuple[bytes, bytes]]

        def iter_stream(self) -> Iterator[bytes]: ...

    class Pool(Protocol):
        """Connections that requests are sent on."""

        def stream(
            self,
            method: str,
            url: str,
            *,
            content: bytes | None,
            headers: Sequence[tuple[bytes, bytes]],
        ) -> AbstractContextManager[Answer]: ...

        def close(self) -> None: ...


_ERROR_BODY_BYTES = 256 * 1024
_PLAIN = {"accept-encoding": "identity"}
"""Compressed events would arrive late: compressors hold back what they are given."""


_DECODED = frozenset({"gzip", "x-gzip", "deflate"})
"""Encodings that are understood all the same, should a server not listen."""
_GZIP_OR_ZLIB = zlib.MAX_WBITS | 32


@contextmanager
def _faults_named(call: Call, endpoint: Endpoint) -> Iterator[None]:
    """Turn what the HTTP client raises into errors of the tree, a cancel first."""
    import httpcore2

    try:
        yield
    except (
        httpcore2.ConnectionNotAvailable,
        httpcore2.NetworkError,
        httpcore2.ProtocolError,
        httpcore2.ProxyError,
        httpcore2.TimeoutException,
        httpcore2.UnsupportedProtocol,
        zlib.error,
    ) as error:
        call.check()
        raise fault_of_transport(error, route=endpoint.route, key=endpoint.key) from error


class Incoming:
    """An answer whose body has not been read; header names are lower case."""

    def __init__(self, response: Answer, call: Call, endpoint: Endpoint) -> None:
        self.status = response.status
        self.raw_headers = response.headers
        self.headers = _by_name(response.headers)
        self._response = response
        self._call = call
        self._endpoint = endpoint

    @property
    def ok(self) -> bool:
        """Whether this is an answer and not an error or a redirect."""
        return 200 <= self.status < 300

    @property
    def is_json(self) -> bool:
        """Whether the body is said to be one JSON value and not a stream."""
        return "json" in self.headers.get("content-type", "")

    def chunks(self) -> Iterator[bytes]:
        """Yield the body as it arrives; each chunk is life."""
        encoding = self.headers.get("content-encoding", "")
        decoder = zlib.decompressobj(_GZIP_OR_ZLIB) if encoding in _DECODED else None
        with suppress(AnswerComplete), _faults_named(self._call, self._endpoint):
            for chunk in self._response.iter_stream():
                self._call.received(len(chunk), answer=self.ok)
                yield chunk if decoder is None else decoder.decompress(chunk)

    def read_whole(self) -> bytes:
        """Return the whole body; of an error no more than about its first 256 KiB."""
        parts: list[bytes] = []
        size = 0
        for chunk in self.chunks():
            parts.append(chunk)
            size += len(chunk)
            if not self.ok and size > _ERROR_BODY_BYTES:
                break
        return b"".join(parts)

    def expect_end(self) -> None:
        """Say that nothing but the end of the body is due, so the connection can be kept.

        A server that keeps the stream open is not waited for: its connection is given up.
        """
        self._call.enter(Phase.TRAILER)


def _by_name(headers: list[tuple[bytes, bytes]]) -> Mapping[str, str]:
    """Return header lines by lower-case name; lines of one name are joined, as HTTP has it."""
    found: dict[str, str] = {}
    for raw_name, raw_value in headers:
        name, value = raw_name.decode("latin-1").lower(), raw_value.decode("latin-1")
        found[name] = f"{found[name]}, {value}" if name in found else value
    return found


class Transport:
    """Sends requests to one endpoint. Thread-safe; connections are shared and kept alive.

    `make_direct` makes the pool where no proxy of the environment stands between; httpcore2's
    serves where it is not given.
    """

    def __init__(
        self, endpoint: Endpoint, make_direct: Callable[[ssl.SSLContext], Pool] | None = None
    ) -> None:
        self._endpoint = endpoint
        self._make_direct = make_direct
        self._lock = threading.Lock()
        self._pool: Pool | None = None

    @contextmanager
    def send(
        self,
        call: Call,
        path: str,
        body: bytes | None,
        *,
        accept: str = "application/json",
        headers: Mapping[str, str] | None = None,
        more: Mapping[str, str] | None = None,
    ) -> Iterator[Incoming]:
        """Send one request and give the answer, which is closed afterwards.

        `path` is appended to the endpoint's address; a body makes it a POST. `headers` are sent in
        place of all of ours, the key's too, but for the encoding of the answer; `more` beside
        ours. `call` must be entered in this thread.
        Raises: ProviderError by kind; CallCancelled.
        """
        pool = self._opened()
        sent = (
            {**self._headers(accept, has_body=body is not None), **(more or {})}
            if headers is None
            else {**headers, **_PLAIN}
        )
        method = "GET" if body is None else "POST"
        with ExitStack() as opened:
            with _faults_named(call, self._endpoint):
                url = self._endpoint.url(path)
                lines = [(k.encode("latin-1"), v.encode("latin-1")) for k, v in sent.items()]
                exchange = pool.stream(method, url, content=body, headers=lines)
                response = opened.enter_context(exchange)
            try:
                yield Incoming(response, call, self._endpoint)
            finally:
                call.release()

    def close(self) -> None:
        """Close all connections; the next request opens new ones."""
        with self._lock:
            pool, self._pool = self._pool, None
        if pool is not None:
            pool.close()

    def _headers(self, accept: str, *, has_body: bool) -> dict[str, str]:
        headers = {"accept": accept, **_PLAIN, **dict(self._endpoint.headers)}
        headers["user-agent"] = "hermes-continuum"
        if has_body:
            headers["content-type"] = "application/json"
        if self._endpoint.authorization:
            headers["authorization"] = self._endpoint.authorization
        return headers

    def _opened(self) -> Pool:
        with self._lock:
            if self._pool is None:
                proxy = None if self._endpoint.is_loopback else _proxy(self._endpoint)
                context = _ssl_context(self._endpoint.scheme)
                if proxy is None and self._make_direct is not None:
                    self._pool = self._make_direct(context)
                else:
                    self._pool = make_pool(context, proxy)
            return self._pool


_context_lock = threading.Lock()


@functools.cache
def _load_ssl_context() -> ssl.SSLContext:
    import httpcore2

    return httpcore2.default_ssl_context()


def _ssl_context(scheme: str) -> ssl.SSLContext:
    """Return the process's one context; plain HTTP gets an empty one.

    Loading the trust store costs about 40 ms.
    """
    if scheme == "http":
        import ssl

        return ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    with _context_lock:
        return _load_ssl_context()


def _proxy(endpoint: Endpoint) -> httpcore2.Proxy | None:
    """Return the proxy that the environment names for an endpoint, None for a direct connection."""
    from urllib.request import getproxies, proxy_bypass

    import httpcore2

    proxies = getproxies()
    address = proxies.get(endpoint.scheme) or proxies.get("all")
    if not address or proxy_bypass(endpoint.host):
        return None
    parts = urlsplit(address if "://" in address else f"http://{address}")
    login = (unquote(parts.username or ""), unquote(parts.password or ""))
    url = httpcore2.URL(
        scheme=parts.scheme, host=parts.hostname or "", port=parts.port, target=parts.path or "/"
    )
    return httpcore2.Proxy(url, auth=login if parts.username else None)
