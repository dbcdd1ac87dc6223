"""One connection of the stub server: writes, silences that end when the client leaves or the
server stops, and the ways in which an answer can break off.
"""

from __future__ import annotations

import contextlib
import math
import selectors
import socket
import struct
import threading
import time

COMMENT = b": keep-alive\n\n"
_RELEASE_LOOK_S = 0.005


class ClientGone(Exception):
    """The client closed the connection while an answer was awaited or sent."""


class ServerStopped(Exception):
    """The server leaves its context while an answer was awaited or sent."""


class Line:
    """A connection as a reply uses it.

    Concurrency: `stop` may be called from any thread; the rest by the connection's own thread.
    """

    def __init__(self, connection: socket.socket, *, stopped: bool) -> None:
        self._connection = connection
        self._wake, self._woken = socket.socketpair()
        self._selector = selectors.DefaultSelector()
        for end in (connection, self._woken):
            self._selector.register(end, selectors.EVENT_READ)
        self._chunked = False
        if stopped:
            self.stop()

    def stop(self) -> None:
        """End every wait on this connection, also one for the next request. Idempotent."""
        for end in (self._wake, self._connection):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Give up what this object opened itself."""
        self._selector.close()
        self._wake.close()
        self._woken.close()

    def use_chunks(self, chunked: bool) -> None:
        """Frame what follows as chunks of HTTP/1.1, or send it as it is."""
        self._chunked = chunked

    def send(self, data: bytes) -> None:
        """Send bytes of the body. Raises: ClientGone."""
        if self._chunked:
            data = b"%x\r\n%b\r\n" % (len(data), data)
        self.send_plain(data)

    def send_plain(self, data: bytes) -> None:
        """Send bytes without chunk framing. Raises: ClientGone."""
        self.look(0.0)
        try:
            self._connection.sendall(data)
        except OSError as error:
            self.look(0.0)
            raise ClientGone from error

    def end_chunks(self) -> None:
        """Send the last chunk when the body is framed in chunks."""
        if self._chunked:
            self.send_plain(b"0\r\n\r\n")

    def reset(self) -> None:
        """Break the connection with RST instead of an orderly end."""
        self._connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self._connection.close()

    def silence(
        self, seconds: float, *, comments_every_s: float, release: threading.Event | None
    ) -> None:
        """Say nothing for `seconds` (`math.inf`: until released), but for comment lines.

        Raises: ClientGone, ServerStopped as soon as that happens.
        """
        ends_at = time.monotonic() + seconds
        comment_at = time.monotonic() + (comments_every_s or math.inf)
        while not (release is not None and release.is_set()):
            now = time.monotonic()
            if now >= ends_at:
                return
            if now >= comment_at:
                self.send(COMMENT)
                comment_at += comments_every_s
            wait_s = max(0.0, min(ends_at, comment_at) - now)
            self.look(wait_s if release is None else min(wait_s, _RELEASE_LOOK_S))

    def look(self, wait_s: float) -> None:
        """Wait for the client to leave or the server to stop, at most `wait_s` (inf: for ever).

        Raises: ClientGone, ServerStopped when that happened.
        """
        timeout = None if wait_s == math.inf else wait_s
        ready = {key.fileobj for key, _ in self._selector.select(timeout)}
        if self._woken in ready:
            raise ServerStopped
        if self._connection not in ready:
            return
        try:
            left = not self._connection.recv(1, socket.MSG_PEEK)
        except OSError as error:
            raise ClientGone from error
        if left:
            raise ClientGone
