"""Sockets of the model wires: every blocking step obeys the running call's limits and its cancel.

Plugs into httpcore2 as a network backend; the stock one cannot be interrupted from another
thread. Does not know HTTP.
"""

from __future__ import annotations

import math
import select
import selectors
import socket
import threading
import time
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from agent.base.errors import CallTimeout
from agent.providers.call import Call, Phase, current_call

if TYPE_CHECKING:
    import ssl

    import httpcore2

_CONNECT_SLICE_S = 0.02

Address = tuple[Any, ...]
SocketOption = (
    tuple[int, int, int] | tuple[int, int, bytes | bytearray] | tuple[int, int, None, int]
)


class CallStream:
    """One connection. The timeouts that httpcore2 passes are ignored: the call has its own."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        """Return what has arrived, empty at the end; a cancel is never taken for an end."""
        call = current_call()
        call.attach(self._sock)
        if call.phase in _SENDING:
            call.sent()
        call.keep_alive()
        self._sock.settimeout(call.remaining_s())
        try:
            data = self._sock.recv(max_bytes)
        except TimeoutError:
            raise call.limit_passed() from None
        except OSError as error:
            call.check()
            raise _errors().ReadError(error) from error
        call.check()
        return data

    def write(self, buffer: bytes, timeout: float | None = None) -> None:
        """Send everything; the upload's limit counts from the last piece that was taken."""
        call = current_call()
        call.attach(self._sock)
        view = memoryview(buffer)
        while view:
            call.enter(Phase.UPLOAD)
            self._sock.settimeout(call.remaining_s())
            try:
                sent = self._sock.send(view)
            except TimeoutError:
                raise call.limit_passed() from None
            except OSError as error:
                call.check()
                raise _errors().WriteError(error) from error
            view = view[sent:]

    def start_tls(
        self,
        ssl_context: ssl.SSLContext,
        server_hostname: str | None = None,
        timeout: float | None = None,
    ) -> CallStream:
        """Return the same connection encrypted; the handshake counts as connecting."""
        call = current_call()
        if call.phase is not Phase.CONNECT:
            call.enter(Phase.CONNECT)
        # Wrapping detaches the socket and shakes hands; a cancel reaches the connection by a twin.
        with self._sock.dup() as twin:
            try:
                call.attach(twin)
                self._sock.settimeout(call.remaining_s())
                wrapped = ssl_context.wrap_socket(self._sock, server_hostname=server_hostname)
            except TimeoutError:
                self._sock.close()
                raise call.limit_passed() from None
            except OSError as error:
                self._sock.close()
                call.check()
                raise _errors().ConnectError(error) from error
            except BaseException:
                self._sock.close()
                raise
            finally:
                call.release()
        return CallStream(wrapped)

    def close(self) -> None:
        """Close the socket."""
        self._sock.close()

    def get_extra_info(self, info: str) -> Any:
        """Return what httpcore2 asks about a connection, None for what it has not."""
        if info == "ssl_object":
            return self._sock if hasattr(self._sock, "selected_alpn_protocol") else None
        if info == "socket":
            return self._sock
        if info == "is_readable":
            return self._is_readable()
        return None

    def _is_readable(self) -> bool:
        """Return whether an idle connection has something to read, which means that it ended."""
        if self._sock.fileno() < 0:
            return True
        poll = select.poll()
        poll.register(self._sock, select.POLLIN)
        return bool(poll.poll(0))


_SENDING = frozenset({Phase.CONNECT, Phase.UPLOAD})


class CallBackend:
    """Makes connections; name resolution and connecting hear a cancel too."""

    def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[SocketOption] | None = None,
    ) -> CallStream:
        """Return a connection to the first address of `host` that answers."""
        call = current_call()
        call.enter(Phase.CONNECT)
        try:
            sock = _connect_any(_resolve(host, port, call), call)
        except CallTimeout:
            raise  # ours, though a TimeoutError is an OSError too
        except (OSError, UnicodeError) as error:
            call.check()
            raise _errors().ConnectError(error) from error
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return CallStream(sock)


def _errors() -> Any:
    import httpcore2

    return httpcore2


def _resolve(host: str, port: int, call: Call) -> list[Address]:
    """Return the addresses of a host; a slow resolver is left behind in its own thread."""
    try:
        return socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_NUMERICHOST)
    except socket.gaierror:
        pass
    found: list[list[Address]] = []
    failed: list[OSError | UnicodeError] = []

    def look_up() -> None:
        try:
            found.append(socket.getaddrinfo(host, port, type=socket.SOCK_STREAM))
        except (OSError, UnicodeError) as error:
            failed.append(error)
        call.wake.set()

    call.wake.clear()
    threading.Thread(target=look_up, name="hermes-resolver", daemon=True).start()
    while not (found or failed):
        call.wake.wait(call.remaining_s())
    if failed:
        raise failed[0]
    return found[0]


def _connect_any(addresses: list[Address], call: Call) -> socket.socket:
    """Return a socket connected to the first address that answers.

    What is left of the connect limit is shared by the addresses left, so that a dead one (a
    broken IPv6 route) does not use up the time of the next.
    """
    refused: OSError = OSError("the host has no address")
    for index, (family, kind, protocol, _name, address) in enumerate(addresses):
        left_s = call.remaining_s()
        share_s = None if left_s is None else left_s / (len(addresses) - index)
        sock = socket.socket(family, kind, protocol)
        try:
            _connect(sock, address, share_s, call)
        except OSError as error:
            sock.close()
            call.check()
            refused = error
        except BaseException:
            sock.close()
            raise
        else:
            return sock
    if isinstance(refused, TimeoutError):
        raise call.limit_passed()
    raise refused


def _connect(sock: socket.socket, address: Address, limit_s: float | None, call: Call) -> None:
    """Connect without blocking for more than a slice.

    Raises: OSError when refused; TimeoutError when `limit_s` passed; CallCancelled.
    """
    sock.setblocking(False)
    call.attach(sock)
    sock.connect_ex(address)
    give_up_at = math.inf if limit_s is None else time.monotonic() + limit_s
    with selectors.DefaultSelector() as selector:
        selector.register(sock, selectors.EVENT_WRITE)
        while not selector.select(_CONNECT_SLICE_S):
            call.check()
            if time.monotonic() >= give_up_at:
                raise TimeoutError(f"no answer from {address[0]}")
    call.check()
    code = sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
    if code:
        raise OSError(code, f"cannot connect to {address[0]} port {address[1]}")


def make_pool(
    ssl_context: ssl.SSLContext, proxy: httpcore2.Proxy | None
) -> httpcore2.ConnectionPool:
    """Return a connection pool whose sockets obey the running call.

    Connections are not limited: a wait inside the pool would not hear a cancel.
    """
    import httpcore2

    return httpcore2.ConnectionPool(
        ssl_context=ssl_context,
        proxy=proxy,
        max_connections=None,
        max_keepalive_connections=8,
        keepalive_expiry=60.0,
        network_backend=CallBackend(),  # type: ignore[arg-type]  # same methods, imported lazily
    )
