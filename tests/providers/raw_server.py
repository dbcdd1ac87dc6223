"""Servers below HTTP for the wire's tests: silent ones, half bodies, bodies that nobody reads."""

from __future__ import annotations

import contextlib
import socket
import ssl
import threading
from collections.abc import Callable
from pathlib import Path

CERTIFICATE = Path(__file__).with_name("loopback.pem")
STREAM_HEAD = (
    b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
)

Talk = Callable[["Peer"], None]


class Peer:
    """The server's end of one connection."""

    def __init__(self, sock: socket.socket, number: int) -> None:
        self.sock = sock
        self.number = number
        """Counts the server's connections from 1."""
        self.gone = threading.Event()
        """Set when the client has closed the connection."""

    def read_request(self) -> bytes:
        """Return one request, head and body; empty when the client is gone."""
        data = b""
        while b"\r\n\r\n" not in data:
            piece = self.sock.recv(65536)
            if not piece:
                return b""
            data += piece
        head, _, body = data.partition(b"\r\n\r\n")
        length = 0
        for line in head.split(b"\r\n"):
            name, _, value = line.partition(b":")
            if name.lower() == b"content-length":
                length = int(value)
        while len(body) < length:
            piece = self.sock.recv(65536)
            if not piece:
                return b""
            body += piece
        return head + b"\r\n\r\n" + body

    def send(self, data: bytes) -> None:
        self.sock.sendall(data)

    def send_chunk(self, data: bytes) -> None:
        self.send(b"%x\r\n%s\r\n" % (len(data), data))

    def wait_until_gone(self) -> None:
        """Read until the client closes, then set `gone`."""
        with contextlib.suppress(OSError):
            while self.sock.recv(65536):
                pass
        self.gone.set()


class RawServer:
    """Accepts connections on loopback and lets `talk` do the rest, each in its own thread."""

    def __init__(self, talk: Talk, *, encrypted: bool = False) -> None:
        self._talk = talk
        self._context = None
        if encrypted:
            self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            self._context.load_cert_chain(CERTIFICATE)
        self.scheme = "https" if encrypted else "http"
        self.peers: list[Peer] = []
        self._grew = threading.Condition()
        self.arrived = threading.Semaphore(0)
        self._threads: list[threading.Thread] = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._accepting = threading.Thread(target=self._accept, name="raw-server")
        self._accepting.start()

    @property
    def port(self) -> int:
        return int(self._listener.getsockname()[1])

    @property
    def base_url(self) -> str:
        return f"{self.scheme}://127.0.0.1:{self.port}/v1"

    def peer(self, number: int) -> Peer:
        """Return a connection, counted from 1, once accepted: its client may be done by then."""
        with self._grew:
            assert self._grew.wait_for(lambda: len(self.peers) >= number, 10)
            return self.peers[number - 1]

    def _accept(self) -> None:
        while True:
            try:
                sock, _address = self._listener.accept()
            except OSError:
                return
            peer = Peer(sock, len(self.peers) + 1)
            with self._grew:
                self.peers.append(peer)
                self._grew.notify_all()
            self.arrived.release()
            thread = threading.Thread(target=self._run, args=(peer,), name="raw-peer")
            self._threads.append(thread)
            thread.start()

    def _run(self, peer: Peer) -> None:
        with contextlib.suppress(OSError):
            if self._context is not None:
                peer.sock = self._context.wrap_socket(peer.sock, server_side=True)
            self._talk(peer)
        peer.gone.set()
        peer.sock.close()

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._accepting.join()
        for peer in self.peers:
            with contextlib.suppress(OSError):
                socket.socket.shutdown(peer.sock, socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join()


Serve = Callable[..., RawServer]
