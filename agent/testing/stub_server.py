"""A model server for tests: real HTTP/1.1 on loopback, scripted by data, with every fault that a
provider shows. It does not know any wire: shapes do (`stub_chat.py`), and `stub_line.py` sends.
"""

from __future__ import annotations

import contextlib
import json
import math
import socket
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any

import orjson

from agent.testing.stub_anthropic import ANTHROPIC
from agent.testing.stub_chat import CHAT
from agent.testing.stub_line import ClientGone, Line, ServerStopped
from agent.testing.stub_reply import Frame, RecordedRequest, Refusal, Reply, Shape, Strictness
from agent.testing.stub_responses import RESPONSES

DEFAULT_MODEL = "stub-model"
SHAPES: dict[str, Shape] = {
    "/v1/chat/completions": CHAT,
    "/v1/responses": RESPONSES,
    "/v1/messages": ANTHROPIC,
}

Script = Iterable[Reply] | Callable[[RecordedRequest], Reply]


class _Route:
    """The replies for one model name, in order, then `then` for ever."""

    def __init__(self, script: Script, then: Reply, window_tokens: int) -> None:
        self._ask = script if callable(script) else None
        self._queue = deque(() if callable(script) else script)
        self._then = then
        self.window_tokens = window_tokens

    def next_reply(self, request: RecordedRequest) -> Reply:
        if self._ask is not None:
            return self._ask(request)
        try:
            return self._queue.popleft()
        except IndexError:
            return self._then


class StubModelServer:
    """A scripted model server; use it as a context manager.

    `requests` grows as requests arrive, oldest first. In strict mode a request that the
    strictest provider refuses gets a 400 and takes nothing from the script.
    Concurrency: all methods may be called from any thread. Leaving the context ends every
    silence and every open answer at once, and raises what a script function raised.
    """

    def __init__(
        self,
        script: Script = (),
        *,
        then: Reply | None = None,
        strict: bool = True,
        window_tokens: int = 128_000,
        max_body_bytes: int = 64_000_000,
    ) -> None:
        self.requests: list[RecordedRequest] = []
        self.strict = strict
        self.memory: dict[str, Any] = {}
        self._max_body_bytes = max_body_bytes
        self._changed = threading.Condition()
        self._stopped = threading.Event()
        self._lines: set[Line] = set()
        self._fault: Exception | None = None
        self._routes = {"": _Route(script, then or Reply(), window_tokens)}
        self._listener = _Listener(self)
        self._thread = threading.Thread(
            target=self._listener.serve_forever, args=(0.02,), name="stub-server", daemon=True
        )

    @property
    def base_url(self) -> str:
        """The root that clients are given, ending in `/v1`."""
        return f"http://127.0.0.1:{self._listener.server_address[1]}/v1"

    def script(
        self,
        script: Script,
        *,
        model: str = "",
        then: Reply | None = None,
        window_tokens: int | None = None,
    ) -> None:
        """Replace what requests for `model` are answered with; "" is every model not named.

        `script` is a list of replies used in order, then `then` (default `ok`), or a function
        of the request. `window_tokens` defaults to that of the unnamed models.
        """
        with self._changed:
            window = self._routes[""].window_tokens if window_tokens is None else window_tokens
            self._routes[model] = _Route(script, then or Reply(), window)

    def requests_for(self, model: str) -> list[RecordedRequest]:
        """Return the requests for one model name that arrived so far, oldest first."""
        with self._changed:
            return [request for request in self.requests if request.model == model]

    def wait_for_requests(self, count: int, timeout_s: float = 10.0) -> list[RecordedRequest]:
        """Block until `count` requests arrived and return them all, oldest first.

        Raises: TimeoutError when they do not arrive within `timeout_s`.
        """
        with self._changed:
            if not self._changed.wait_for(lambda: len(self.requests) >= count, timeout_s):
                raise TimeoutError(
                    f"{len(self.requests)} of {count} requests arrived within {timeout_s} s"
                )
            return list(self.requests)

    def __enter__(self) -> StubModelServer:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._listener.shutdown()
        with self._changed:
            self._stopped.set()
            lines = list(self._lines)
        for line in lines:
            line.stop()
        self._thread.join()
        self._listener.server_close()
        if self._fault is not None and error is None:
            raise self._fault

    # -- called by the connection threads ---------------------------------------------------
    def _open(self, connection: socket.socket) -> Line:
        with self._changed:
            line = Line(connection, stopped=self._stopped.is_set())
            self._lines.add(line)
        return line

    def _close(self, line: Line) -> None:
        with self._changed:
            self._lines.discard(line)
        line.close()

    def _arrive(self, request: RecordedRequest) -> int:
        with self._changed:
            self.requests.append(request)
            self._changed.notify_all()
            return len(self.requests)

    def _choose(self, request: RecordedRequest, shape: Shape) -> Reply:
        with self._changed:
            route = self._routes.get(request.model, self._routes[""])
        if self.strict:
            limits = Strictness(route.window_tokens, self._max_body_bytes)
            refusal = shape.check(request, limits)
            if refusal is not None:
                request.refusal = refusal.message
                return refusal.as_reply()
        try:
            return route.next_reply(request)
        except Exception as error:
            self._fault = self._fault or error
            return Reply(status=500, error=f"the script of the stub failed: {error!r}")

    def _models(self) -> bytes:
        with self._changed:
            routes = {name or DEFAULT_MODEL: route for name, route in self._routes.items()}
        data = [
            {"id": name, "object": "model", "context_length": route.window_tokens}
            for name, route in routes.items()
        ]
        return orjson.dumps({"object": "list", "data": data})


class _Listener(ThreadingHTTPServer):
    daemon_threads = False
    request_queue_size = 128

    def __init__(self, stub: StubModelServer) -> None:
        self.stub = stub
        super().__init__(("127.0.0.1", 0), _Handler)

    def server_bind(self) -> None:
        self.socket.bind(self.server_address)
        self.server_address = self.socket.getsockname()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Keep what broke; connections that a client broke are no fault."""
        error = sys.exc_info()[1]
        if isinstance(error, Exception) and not isinstance(error, OSError):
            self.stub._fault = self.stub._fault or error


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    server: _Listener

    def setup(self) -> None:
        super().setup()
        self._line = self.server.stub._open(self.connection)

    def finish(self) -> None:
        self.server.stub._close(self._line)
        super().finish()

    def log_message(self, format: str, *args: Any) -> None:
        """Say nothing: tests read `requests`."""

    def do_GET(self) -> None:
        with self._recorded(b"") as (request, _number):
            if self.path == "/v1/models":
                self._send_whole(request, Reply(), self.server.stub._models())
            else:
                self._send_unknown(request)

    def do_POST(self) -> None:
        length = int(self.headers.get("Content-Length", 0))
        try:
            raw = self.rfile.read(length)
        except ConnectionError:
            raw = b""
        with self._recorded(raw) as (request, number):
            if len(raw) < length:
                self._line.look(0.0)
            shape = SHAPES.get(self.path)
            if shape is None:
                self._send_unknown(request)
                return
            broken = Refusal(request.refusal).as_reply() if request.refusal else None
            reply = broken or self.server.stub._choose(request, shape)
            self._answer(request, reply, shape, number)

    @contextlib.contextmanager
    def _recorded(self, raw: bytes) -> Iterator[tuple[RecordedRequest, int]]:
        """Record a request, and how its answer ended."""
        headers = {name.lower(): value for name, value in self.headers.items()}
        request = RecordedRequest(self.command, self.path, headers, raw, time.monotonic())
        request.memory = self.server.stub.memory
        _parse_body(request)
        try:
            yield request, self.server.stub._arrive(request)
        except ClientGone:
            request.client_closed_at = time.monotonic()
            self.close_connection = True
        except ServerStopped:
            self.close_connection = True
        finally:
            request.finished_at = time.monotonic()
            request.done.set()

    def _answer(self, request: RecordedRequest, reply: Reply, shape: Shape, number: int) -> None:
        if reply.raw_body is not None:
            self._send_whole(request, reply, reply.raw_body)
        elif reply.status != 200:
            self._send_whole(request, reply, shape.error(reply))
        elif request.body.get("stream") and not reply.ignore_stream:
            self._send_stream(request, reply, shape.stream(reply, request, number))
        else:
            self._send_whole(request, reply, shape.whole(reply, request, number))

    def _send_unknown(self, request: RecordedRequest) -> None:
        reply = Reply(status=404, error=f"no such path: {self.path!r}")
        self._send_whole(request, reply, CHAT.error(reply))

    def _send_whole(self, request: RecordedRequest, reply: Reply, body: bytes) -> None:
        headers = {"content-type": "application/json", "content-length": str(len(body))}
        self._line.use_chunks(False)
        self._send_head(request, reply, headers)
        self._line.send(body[: reply.reset_after_chars])
        if reply.reset_after_chars is not None:
            self._reset()

    def _send_stream(self, request: RecordedRequest, reply: Reply, frames: Iterable[Frame]) -> None:
        closing = reply.close_without_finish
        framing = {"connection": "close"} if closing else {"transfer-encoding": "chunked"}
        self._line.use_chunks(not closing)
        self._send_head(request, reply, {"content-type": "text/event-stream", **framing})
        sent_chars, delay_s = 0, 0.0
        stall_at = math.inf if reply.stall_after_chars is None else reply.stall_after_chars
        reset_at = math.inf if reply.reset_after_chars is None else reply.reset_after_chars
        for frame in frames:
            if sent_chars >= reset_at:
                self._reset()
                return
            if sent_chars >= stall_at:
                stall_at = math.inf
                self._silence(reply, reply.stall_s)
            self._silence(reply, delay_s)
            self._line.send(frame.data)
            sent_chars += frame.chars
            delay_s = reply.chunk_delay_s
        self._line.end_chunks()

    def _send_head(
        self, request: RecordedRequest, reply: Reply, headers: Mapping[str, str]
    ) -> None:
        """Send status line and headers, before or after the silence that the reply asks for."""
        given = {name.lower(): value for name, value in reply.headers.items()}
        lines = [f"HTTP/1.1 {reply.status} {self.responses.get(reply.status, ('Status',))[0]}"]
        lines += [f"{name}: {value}" for name, value in {**headers, **given}.items()]
        head = "\r\n".join([*lines, "", ""]).encode("latin-1")
        if "connection" in headers:
            self.close_connection = True
        if reply.headers_first:
            request.status = reply.status
            self._line.send_plain(head)
        self._silence(reply, reply.before_first_byte_s, is_stream="content-length" not in headers)
        if not reply.headers_first:
            request.status = reply.status
            self._line.send_plain(head)

    def _silence(self, reply: Reply, seconds: float, *, is_stream: bool = True) -> None:
        comments_every_s = reply.comments_every_s if is_stream and reply.headers_first else 0.0
        self._line.silence(seconds, comments_every_s=comments_every_s, release=reply.release)

    def _reset(self) -> None:
        self.close_connection = True
        self.rfile.close()
        self._line.reset()


def _parse_body(request: RecordedRequest) -> None:
    """Fill `body`, or `refusal` when it cannot be read; the slow parser takes surrogates too."""
    if not request.raw:
        return
    try:
        body = orjson.loads(request.raw)
    except orjson.JSONDecodeError:
        try:
            body = json.loads(request.raw)
        except ValueError as error:
            request.refusal = f"the body is no JSON: {error}"
            return
    if isinstance(body, dict):
        request.body = body
    else:
        request.refusal = f"the body must be a JSON object, not {type(body).__name__}"
