"""Kept connections to an upstream: HTTP/1.1 read by httptools, in a third of the time of httpcore2.

Sockets, limits and cancel are those of `agent/providers/network.py`; what is raised is what
httpcore2 raises. Read next: `agent/providers/transport.py`, which decides who gets to use it.
"""

from __future__ import annotations

import ssl
import threading
import time
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from urllib.parse import SplitResult, urlsplit

import httpcore2
import httptools

from agent.providers.network import CallBackend, CallStream

_READ_BYTES = 64 * 1024
_LARGEST_HEAD_BYTES = 100 * 1024
_MOST_IDLE = 64
_IDLE_S = 60.0
_NO_LENGTH = frozenset({b"content-length", b"transfer-encoding"})

Headers = Sequence[tuple[bytes, bytes]]


class Connection:
    """One connection, for one exchange at a time.

    Its methods `on_*` are called by the parser. `status` and `headers` are those of the answer that
    is being read, `can_stay` says whether the connection can be used for another once it was read.
    """

    def __init__(self, stream: CallStream) -> None:
        self._stream = stream
        self._parser = httptools.HttpResponseParser(self)
        # As lenient as other clients are with what a server sends.
        self._parser.set_dangerous_leniencies(
            lenient_chunked_length=True,
            lenient_optional_cr_before_lf=True,
            lenient_spaces_after_chunk_size=True,
        )
        self._body: deque[bytes] = deque()
        self.headers: list[tuple[bytes, bytes]] = []
        self.status = 0
        self.idle_since = time.monotonic()
        self._begin()

    def _begin(self) -> None:
        self.headers = []
        self._body.clear()
        self._has_head = False
        self._has_length = False
        self._is_whole = False
        self._is_sent = True
        self.can_stay = False

    # -- what the parser says ------------------------------------------------------------------
    def on_message_begin(self) -> None:
        """Give the connection up when something follows an answer that nobody asked for."""
        if self._is_whole:
            self.can_stay = False

    def on_header(self, name: bytes, value: bytes) -> None:
        """Take in a header; trailers are dropped."""
        if not self._has_head:
            self.headers.append((name, value))

    def on_headers_complete(self) -> None:
        """Take in the head; those of interim answers are dropped."""
        if self._has_head:
            return
        self.status = self._parser.get_status_code()
        if self.status < 200:
            self.headers.clear()
            return
        self._has_head = True
        self._has_length = any(name.lower() in _NO_LENGTH for name, _value in self.headers)

    def on_body(self, piece: bytes) -> None:
        """Take in a piece of the body."""
        if not self._is_whole:
            self._body.append(piece)

    def on_message_complete(self) -> None:
        """Note the end of an answer."""
        if self._has_head and not self._is_whole:
            self._is_whole = True
            self.can_stay = self._is_sent and self._parser.should_keep_alive()

    # -- an exchange ---------------------------------------------------------------------------
    def ask(self, head: bytes, body: bytes | None) -> None:
        """Send a request and read the head of its answer."""
        self._begin()
        try:
            self._stream.write(head + body if body else head)
        except httpcore2.WriteError:
            # The server may have answered before it took everything, and hung up.
            self._is_sent = False
        read = 0
        while not self._has_head:
            read += self._read()
            if read > _LARGEST_HEAD_BYTES and not self._has_head:
                raise httpcore2.RemoteProtocolError("the head of the answer is too long")

    def iter_stream(self) -> Iterator[bytes]:
        """Yield the body as it arrives."""
        while True:
            while self._body:
                yield self._body.popleft()
            if self._is_whole:
                return
            self._read()

    def _read(self) -> int:
        data = self._stream.read(_READ_BYTES)
        if not data:
            self._end()
            return 0
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade) as error:
            self.can_stay = False
            if not self._is_whole:
                raise httpcore2.RemoteProtocolError(str(error)) from error
        return len(data)

    def _end(self) -> None:
        """Take the end of the connection for that of the answer, where it may be."""
        if not self._has_head:
            raise httpcore2.RemoteProtocolError("Server disconnected without sending a response.")
        if self._has_length:
            raise httpcore2.RemoteProtocolError("the connection ended before the answer did")
        self._is_whole = True

    # -- between exchanges ---------------------------------------------------------------------
    @property
    def is_usable(self) -> bool:
        """Whether another request can be sent; what arrives while nothing is due is the end."""
        is_young = time.monotonic() - self.idle_since < _IDLE_S
        return is_young and not self._stream.get_extra_info("is_readable")

    def close(self) -> None:
        """Close the connection."""
        self._stream.close()


class Connections:
    """Connections to one origin, kept while they are idle; not limited. Thread-safe."""

    def __init__(self, ssl_context: ssl.SSLContext) -> None:
        ssl_context.set_alpn_protocols(["http/1.1"])
        self._ssl_context = ssl_context
        self._lock = threading.Lock()
        self._idle: deque[Connection] = deque()

    @contextmanager
    def stream(
        self, method: str, url: str, *, content: bytes | None, headers: Headers
    ) -> Iterator[Connection]:
        """Send a request and give the connection, which has read the head of the answer.

        Raises: what httpcore2 does; what the running call's limits and cancel do.
        """
        parts = urlsplit(url)
        head = _head(method, parts, headers, content)
        connection = self._take() or self._connect(parts)
        try:
            connection.ask(head, content)
            yield connection
        finally:
            self._give_back(connection)

    def _connect(self, parts: SplitResult) -> Connection:
        is_secure = parts.scheme == "https"
        host = parts.hostname or ""
        stream = CallBackend().connect_tcp(host, parts.port or (443 if is_secure else 80))
        if is_secure:
            stream = stream.start_tls(self._ssl_context, host)
        return Connection(stream)

    def _take(self) -> Connection | None:
        """Return the connection that was used last, None when none can be used again."""
        while True:
            with self._lock:
                if not self._idle:
                    return None
                connection = self._idle.pop()
            if connection.is_usable:
                return connection
            connection.close()

    def _give_back(self, connection: Connection) -> None:
        now = time.monotonic()
        left = []
        with self._lock:
            if connection.can_stay:
                connection.idle_since = now
                self._idle.append(connection)
            else:
                left.append(connection)
            while len(self._idle) > _MOST_IDLE or (
                self._idle and now - self._idle[0].idle_since > _IDLE_S
            ):
                left.append(self._idle.popleft())
        for one in left:
            one.close()

    def close(self) -> None:
        """Close what is idle."""
        with self._lock:
            idle, self._idle = self._idle, deque()
        for connection in idle:
            connection.close()


def _head(method: str, parts: SplitResult, headers: Headers, content: bytes | None) -> bytes:
    """Return a request up to its body. Raises: LocalProtocolError for what no header can hold."""
    target = parts.path + (f"?{parts.query}" if parts.query else "")
    lines = [f"{method} {target} HTTP/1.1\r\nhost: {parts.netloc}".encode("latin-1")]
    lines += [b"%s: %s" % header for header in headers]
    if content is not None:
        lines.append(b"content-length: %d" % len(content))
    head = b"\r\n".join(lines)
    if not head.count(b"\n") == head.count(b"\r") == len(lines):
        raise httpcore2.LocalProtocolError("a header holds the end of a line")
    return head + b"\r\n\r\n"
