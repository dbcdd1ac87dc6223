"""HTTP for the model wires: one client an endpoint, keep-alive, cancel, life and four limits.

Bytes only; what they mean is the wire's business. httpx2 is imported at the first request.
Read next: `call.py` (limits and cancel), `network.py` (sockets).
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from agent.providers.call import AnswerComplete, Call, Phase
from agent.providers.endpoint import Endpoint
from agent.providers.failures import fault_of_transport
from agent.providers.network import make_pool

if TYPE_CHECKING:
    import ssl

    import httpcore2
    import httpx2

_ERROR_BODY_BYTES = 256 * 1024
_PLAIN = {"accept-encoding": "identity"}
"""Compressed events would arrive late: compressors hold back what they are given."""


@contextmanager
def _faults_named(call: Call, endpoint: Endpoint) -> Iterator[None]:
    """Turn what the HTTP client raises into errors of the tree, a cancel first."""
    import httpx2

    try:
        yield
    except (httpx2.HTTPError, httpx2.InvalidURL, httpx2.StreamError) as error:
        call.check()
        raise fault_of_transport(error, route=endpoint.route, key=endpoint.key) from error


class Incoming:
    """An answer whose body has not been read; header names are lower case."""

    def __init__(self, response: httpx2.Response, call: Call, endpoint: Endpoint) -> None:
        self.status = response.status_code
        self.headers: Mapping[str, str] = response.headers
        self.raw_headers: list[tuple[bytes, bytes]] = response.headers.raw
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
        with suppress(AnswerComplete), _faults_named(self._call, self._endpoint):
            for chunk in self._response.iter_bytes():
                self._call.received(len(chunk), answer=self.ok)
                yield chunk

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


class Transport:
    """Sends requests to one endpoint. Thread-safe; connections are shared and kept alive."""

    def __init__(self, endpoint: Endpoint) -> None:
        self._endpoint = endpoint
        self._lock = threading.Lock()
        self._client: httpx2.Client | None = None

    @contextmanager
    def send(
        self,
        call: Call,
        path: str,
        body: bytes | None,
        *,
        accept: str = "application/json",
        headers: Mapping[str, str] | None = None,
    ) -> Iterator[Incoming]:
        """Send one request and give the answer, which is closed afterwards.

        `path` is appended to the endpoint's address; a body makes it a POST. `headers` are sent in
        place of all of ours, the key's too, but for the encoding of the answer. `call` must be
        entered in this thread.
        Raises: ProviderError by kind; CallCancelled.
        """
        client = self._opened()
        with _faults_named(call, self._endpoint):
            request = client.build_request(
                "GET" if body is None else "POST",
                self._endpoint.url(path),
                content=body,
                headers=self._headers(accept, has_body=body is not None)
                if headers is None
                else {**headers, **_PLAIN},
            )
            response = client.send(request, stream=True)
        try:
            yield Incoming(response, call, self._endpoint)
        finally:
            call.release()
            response.close()

    def close(self) -> None:
        """Close all connections; the next request opens new ones."""
        with self._lock:
            client, self._client = self._client, None
        if client is not None:
            client.close()

    def _headers(self, accept: str, *, has_body: bool) -> dict[str, str]:
        headers = {"accept": accept, **_PLAIN}
        headers["user-agent"] = "hermes-continuum"
        if has_body:
            headers["content-type"] = "application/json"
        if self._endpoint.key:
            headers["authorization"] = f"Bearer {self._endpoint.key}"
        return headers

    def _opened(self) -> httpx2.Client:
        with self._lock:
            if self._client is None:
                self._client = _make_client(self._endpoint)
            return self._client


def _make_client(endpoint: Endpoint) -> httpx2.Client:
    import ssl

    import httpx2

    is_plain = endpoint.scheme == "http"
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT) if is_plain else _ssl_context()
    transport = httpx2.HTTPTransport(verify=context, trust_env=False)
    # The pool is private; the pinned minor version and a test stand behind this line.
    transport._pool = make_pool(context, None if endpoint.is_loopback else _proxy(endpoint))
    return httpx2.Client(transport=transport, timeout=None, trust_env=False, follow_redirects=False)


_context_lock = threading.Lock()


@functools.cache
def _load_ssl_context() -> ssl.SSLContext:
    import httpx2

    return httpx2.create_ssl_context()


def _ssl_context() -> ssl.SSLContext:
    """Return the process's one context: loading the trust store costs about 40 ms."""
    with _context_lock:
        return _load_ssl_context()


def _proxy(endpoint: Endpoint) -> httpcore2.Proxy | None:
    """Return the proxy that the environment names for an endpoint, None for a direct connection."""
    from urllib.request import getproxies, proxy_bypass

    import httpcore2
    import httpx2

    proxies = getproxies()
    address = proxies.get(endpoint.scheme) or proxies.get("all")
    if not address or proxy_bypass(endpoint.host):
        return None
    proxy = httpx2.Proxy(address if "://" in address else f"http://{address}")
    return httpcore2.Proxy(
        httpcore2.URL(
            scheme=proxy.url.raw_scheme,
            host=proxy.url.raw_host,
            port=proxy.url.port,
            target=proxy.url.raw_path,
        ),
        auth=proxy.raw_auth,
        headers=proxy.headers.raw,
    )
