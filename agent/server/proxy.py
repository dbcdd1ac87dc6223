"""`hermes proxy`: chat completions for clients that send their whole history each time.

What is forwarded fits the upstream's window, however long the conversation is. Read next:
`proxy_exchange.py` (one request), `proxy_chain.py` (how a conversation is recognised).
"""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from urllib.parse import unquote

from starlette.types import Receive, Scope, Send

from agent.base.cancel import CancelToken
from agent.base.settings import Settings
from agent.providers.endpoint import Endpoint, bare_url
from agent.providers.protocol import Limits
from agent.providers.transport import Transport
from agent.server.faults import SERVER, Fault, answer_of, busy, refused
from agent.server.proxy_connections import Connections
from agent.server.proxy_conversations import Conversations
from agent.server.proxy_exchange import Exchange
from agent.server.proxy_outlet import Outlet
from agent.server.proxy_passage import PATH, Asked, Upstream
from agent.server.stream import end_tasks, wait_until_gone
from hermes_state import SessionDB

COMPANY_S = 2.0
"""How long a client that streams waits for a pass before it gets a comment."""
_ROOT = "/v1"
_MODELS = "/models"
_LARGEST_BODY_BYTES = 64 * 1024 * 1024


class Proxy:
    """The ASGI application. `close` it when the server has stopped; the store stays open."""

    def __init__(
        self, store: SessionDB, settings: Settings, upstream: str, *, company_s: float = COMPANY_S
    ) -> None:
        model = settings.model
        endpoint = Endpoint(upstream, "", bare_url(upstream))
        self._upstream = Upstream(
            endpoint,
            Transport(endpoint, Connections),
            Limits(
                connect_s=model.connect_timeout_seconds,
                first_byte_s=model.first_token_timeout_seconds,
                idle_s=model.idle_timeout_seconds,
                total_s=model.total_timeout_seconds,
            ),
        )
        self._running: dict[asyncio.Future[None], CancelToken] = {}
        self._conversations = Conversations(store, settings, upstream, lambda: bool(self._running))
        self._company_s = company_s
        self._most = settings.proxy.max_requests
        self._threads = ThreadPoolExecutor(self._most, thread_name_prefix="hermes-proxy")
        self._is_stopping = False

    @property
    def upstream(self) -> str:
        """The address that is forwarded to, without anything secret."""
        return self._upstream.endpoint.route

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http":
            return
        try:
            asked = await self._read(scope, receive)
        except Exception as error:
            await answer_of(error).response()(scope, receive, send)
            return
        cancel = CancelToken()
        outlet = Outlet(company_s=self._company_s)
        exchange = Exchange(asked, self._conversations, self._upstream, outlet, cancel)
        loop = asyncio.get_running_loop()
        work = loop.run_in_executor(self._threads, exchange.run)
        self._running[work] = cancel
        work.add_done_callback(lambda done: self._running.pop(done, None))
        leaving = asyncio.ensure_future(wait_until_gone(receive))

        def gone(_task: object) -> None:
            outlet.leave()
            cancel.cancel()

        leaving.add_done_callback(gone)
        try:
            await outlet.pass_on(send)
        except BaseException:  # cut off while it sends: nothing takes the pieces any more
            gone(leaving)
            raise
        finally:
            leaving.remove_done_callback(gone)
            await end_tasks(leaving)

    async def _read(self, scope: Scope, receive: Receive) -> Asked:
        """Return a request. Raises: Fault."""
        method, path = scope["method"], _path_below_root(scope)
        expected = "POST" if path == PATH else "GET"
        if method != expected:
            raise Fault(405, f"{scope['path'][:200]} takes {expected}", code="method_not_allowed")
        if self._is_stopping:
            raise Fault(503, "the proxy is stopping", code="stopping", type=SERVER)
        if len(self._running) >= self._most:
            raise busy(f"{self._most} requests are being served (proxy.max_requests); try again")
        headers = {k.decode("latin-1"): v.decode("latin-1") for k, v in scope["headers"]}
        query = scope["query_string"].decode("latin-1")
        target = f"{path}?{query}" if query else path
        if expected == "GET":
            return Asked(target, headers, None)
        return Asked(target, headers, await _read_body(receive))

    async def drain(self, grace_s: float) -> None:
        """Take nothing new, wait up to `grace_s` for what runs, then tell it to end."""
        self._is_stopping = True
        if self._running:
            await asyncio.wait(self._running, timeout=grace_s)
        for cancel in list(self._running.values()):
            cancel.cancel()
        if self._running:
            await asyncio.wait(self._running)

    def close(self) -> None:
        """Stop what is being prepared and close connections."""
        self._threads.shutdown(wait=True)
        self._conversations.close()
        self._upstream.transport.close()


def _path_below_root(scope: Scope) -> str:
    """Return the path of a request below the root, as the client wrote it. Raises: Fault 404."""
    whole: str = scope["raw_path"].decode("latin-1")
    path = whole.removeprefix(_ROOT)
    is_listing = path == _MODELS or path.startswith(f"{_MODELS}/")
    leads_out = not {".", ".."}.isdisjoint(unquote(path).split("/"))
    if not whole.startswith(_ROOT) or leads_out or not (path == PATH or is_listing):
        raise Fault(
            404,
            f"no such path {whole[:200]!r}: the proxy serves {_ROOT}{PATH} and {_ROOT}{_MODELS}; "
            "ask the endpoint itself for others",
            code="not_found",
        )
    return path


async def _read_body(receive: Receive) -> bytes:
    """Return a request's body. Raises: Fault when it is too large or never comes whole."""
    pieces: list[bytes] = []
    size, is_more = 0, True
    while is_more:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise refused("the request was cut off")
        pieces.append(message.get("body", b""))
        size += len(pieces[-1])
        is_more = message.get("more_body", False)
        if size > _LARGEST_BODY_BYTES:
            raise Fault(413, f"the body is over {_LARGEST_BODY_BYTES} bytes", code="too_large")
    return pieces[0] if len(pieces) == 1 else b"".join(pieces)
