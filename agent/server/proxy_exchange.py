"""One request of a client: stored, made to fit, forwarded, and its answer passed on and stored.

Runs in a thread of its own. Read next: `proxy_host.py` (what is forwarded), `proxy_outlet.py`.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping, Sequence
from typing import Any

import orjson

from agent.base.cancel import CancelToken
from agent.base.errors import CallCancelled, ContextOverflow, ProviderError, StoreError
from agent.base.record import dataclass
from agent.providers.call import Call
from agent.providers.endpoint import Endpoint
from agent.providers.failures import Complaint, fault_of_answer, read_complaint
from agent.providers.protocol import CallWatch, Limits, TokenUsage
from agent.providers.text import load_json
from agent.providers.transport import Incoming, Transport
from agent.server.faults import Answer, answer_of, refused
from agent.server.proxy_chain import Sent, Unreadable, read_request
from agent.server.proxy_conversations import Conversations
from agent.server.proxy_host import Moved, Prepared, ProxyHost, compose, overhead_of
from agent.server.proxy_outlet import Outlet, Sign, Start, Whole
from agent.server.proxy_reply import ReplyReader
from agent.sessions.prefixes import Standing

PATH = "/chat/completions"
_MOVES = 4
_HOP_BY_HOP = frozenset(
    b"connection keep-alive proxy-authenticate proxy-authorization te trailer transfer-encoding "
    b"upgrade content-length content-encoding date".split()
)
_NOT_FORWARDED = frozenset(
    "connection keep-alive proxy-authenticate proxy-authorization proxy-connection te trailer "
    "transfer-encoding upgrade host content-length accept-encoding expect cookie origin".split()
)
_JSON = (b"content-type", b"application/json")
_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Asked:
    """An HTTP request as it arrived; header names are lower case, `body` None for a GET.

    `path` is below the upstream's address, with its query.
    """

    path: str
    headers: Mapping[str, str]
    body: bytes | None

    @property
    def key(self) -> str:
        """The caller's key, wherever it stands; empty without one."""
        scheme, _, key = self.headers.get("authorization", "").partition(" ")
        if scheme.lower() == "bearer":
            return key.strip()
        return self.headers.get("api-key") or self.headers.get("x-api-key") or scheme

    def forwarded(self) -> dict[str, str]:
        """Return the headers that go to the upstream."""
        return {k: v for k, v in self.headers.items() if k not in _NOT_FORWARDED}


@dataclass(frozen=True)
class Upstream:
    """Where requests go; the connections are shared by all of them."""

    endpoint: Endpoint
    transport: Transport
    limits: Limits

    def fault(
        self, status: int | None, complaint: Complaint, headers: Mapping[str, str]
    ) -> ProviderError:
        """Return what an error of the upstream means."""
        return fault_of_answer(
            status, complaint, headers=headers, route=self.endpoint.route, key=""
        )


@dataclass(frozen=True)
class _TooLarge:
    """The upstream's refusal of a request as too large, as it would go to the client."""

    error: ContextOverflow
    items: Sequence[Start | Whole | bytes]


@dataclass(frozen=True)
class _Answered:
    """An answer that went to the client; `reader` is empty for one that was an error."""

    reader: ReplyReader | None


class Exchange:
    """Serves one request; `run` is called once, in a thread.

    `cancel` is set when the client leaves or the server stops: the call to the upstream is closed
    at once, and what has arrived of an answer is kept.
    """

    def __init__(
        self,
        asked: Asked,
        conversations: Conversations,
        upstream: Upstream,
        outlet: Outlet,
        cancel: CancelToken,
    ) -> None:
        self._asked = asked
        self._conversations = conversations
        self._upstream = upstream
        self._outlet = outlet
        self._cancel = cancel
        self._stored: Standing | None = None
        self._usage: TokenUsage | None = None

    def run(self, body: Any) -> None:
        """Answer the client; `body` is what the request's body says, None for a listing."""
        follow = None
        try:
            if body is None:
                self._serve_listing()
            else:
                follow = self._serve(body)
        except Unreadable as error:
            self._fail(refused(str(error)).answer)
        except Exception as error:
            self._fail(answer_of(error))
        self._outlet.put(Sign.END)
        if follow is not None:
            try:
                self._follow(*follow)
            except Exception as error:
                _log.warning("after a reply: %s", answer_of(error).message)

    def _fail(self, answer: Answer) -> None:
        headers = [
            (name.lower().encode(), value.encode()) for name, value in answer.headers.items()
        ]
        body = orjson.dumps(answer.body())
        self._outlet.put(Whole(answer.status, [_JSON, *headers], body, answer.body()))

    # -- the steps -----------------------------------------------------------------------------
    def _serve_listing(self) -> None:
        """Pass a list of models on, and take the windows out of it."""
        body = self._ask_whole(None)
        try:
            self._conversations.learn_listing(load_json(body))
        except ValueError:
            return

    def _serve(self, body: Any) -> tuple[Sent, Prepared] | None:
        """Serve a request; return what `_follow` takes when an answer was stored."""
        sent = read_request(body, self._asked.key)
        if not sent.rows or not sent.model:
            self._ask_whole(self._asked.body)
            return None
        standing = self._conversations.accept(sent)
        host = self._conversations.host_if_near(sent, standing, len(self._asked.body or b""))
        prepared = Prepared(None, 0)
        if host is not None:
            host, prepared = self._prepare(sent, host)
        answered = self._forward(sent, prepared)
        tries = self._conversations.settings.compression.max_attempts
        while isinstance(answered, _TooLarge):
            if not prepared.estimated:
                prepared = Prepared(None, standing.live_tokens + overhead_of(sent))
            smaller = None
            if tries > 0:
                host = host or self._conversations.host(standing)
                smaller = self._shrink(sent, host, prepared, answered.error)
            if smaller is None:
                for item in answered.items:
                    self._outlet.put(item)
                return None
            tries -= 1
            prepared = smaller
            answered = self._forward(sent, prepared)
        if self._stored is None:
            return None
        if not prepared.estimated:
            prepared = Prepared(None, standing.live_tokens + overhead_of(sent))
        self._usage = answered.reader.usage if answered.reader is not None else None
        return sent, prepared

    def _prepare(self, sent: Sent, host: ProxyHost) -> tuple[ProxyHost, Prepared]:
        """Return what to send, and the conversation's host: a fork when it moved meanwhile."""
        self._outlet.put(Sign.WAITING)
        for _ in range(_MOVES):
            try:
                with host.held(self._cancel):
                    host.take(sent, self._conversations.model_settings(sent, self._asked.key))
                    prepared = host.prepare(sent, self._cancel)
            except Moved:
                host = self._conversations.host(self._conversations.accept(sent))
            else:
                self._outlet.put(Sign.READY)
                return host, prepared
        raise StoreError(f"the conversation went on {_MOVES} times meanwhile; send it again")

    def _shrink(
        self, sent: Sent, host: ProxyHost, refused: Prepared, error: ContextOverflow
    ) -> Prepared | None:
        """Return what to send in place of what the upstream refused as too large, None when
        nothing can be left out."""
        conversations = self._conversations
        if error.limit_tokens is not None:
            conversations.lower_window(sent.model, error.limit_tokens)
        self._outlet.put(Sign.WAITING)
        with host.held(self._cancel):
            host.take(sent, conversations.model_settings(sent, self._asked.key))
            smaller = host.shrink(sent, self._cancel, refused, error)
        self._outlet.put(Sign.READY)
        return smaller

    def _follow(self, sent: Sent, prepared: Prepared) -> None:
        """After the reply: keep the upstream's count, and have a pass prepared when it is near."""
        standing, size = self._stored, len(self._asked.body or b"")
        host = standing and self._conversations.host_if_near(sent, standing, size)
        if host:
            with host.held(CancelToken()):
                host.take(sent, self._conversations.model_settings(sent, self._asked.key))
                host.follow(prepared, self._usage)

    # -- the upstream --------------------------------------------------------------------------
    def _forward(self, sent: Sent, prepared: Prepared) -> _Answered | _TooLarge:
        """Send a request and pass its answer on, unless it was refused as too large."""
        body = self._asked.body
        if prepared.messages is not None:
            body = _encode({**sent.body, "messages": compose(sent, prepared)})
        upstream, streams = self._upstream, bool(sent.body.get("stream"))
        with Call(upstream.limits, CallWatch(cancel=self._cancel), upstream.endpoint.route) as call:
            call.expect_whole(not streams)
            with upstream.transport.send(
                call, self._asked.path, body, headers=self._asked.forwarded()
            ) as incoming:
                streams = streams and incoming.ok and not incoming.is_json
                call.expect_whole(not streams)
                return self._relay(sent, incoming) if streams else self._pass(sent, incoming)

    def _ask_whole(self, body: bytes | None) -> bytes:
        """Send a request that is no conversation's and pass its answer on."""
        upstream = self._upstream
        with (
            Call(upstream.limits, CallWatch(cancel=self._cancel), upstream.endpoint.route) as call,
            upstream.transport.send(
                call, self._asked.path, body, headers=self._asked.forwarded()
            ) as incoming,
        ):
            whole = incoming.read_whole()
            self._outlet.put(Whole(incoming.status, _headers(incoming), whole, None))
        return whole

    def _pass(self, sent: Sent, incoming: Incoming) -> _Answered | _TooLarge:
        """Pass an answer on that comes in one piece."""
        body = incoming.read_whole()
        whole = Whole(incoming.status, _headers(incoming), body, _parsed(body))
        if not incoming.ok:
            fault = self._upstream.fault(incoming.status, read_complaint(body), incoming.headers)
            if isinstance(fault, ContextOverflow):
                return _TooLarge(fault, [whole])
            self._outlet.put(whole)
            return _Answered(None)
        reader = ReplyReader(sent.model, self._upstream.endpoint.route)
        reader.whole(body)
        self._store(sent, reader)
        self._outlet.put(whole)
        return _Answered(reader)

    def _relay(self, sent: Sent, incoming: Incoming) -> _Answered | _TooLarge:
        """Pass a stream on as it arrives; its answer is stored before the client sees its end."""
        reader = ReplyReader(sent.model, self._upstream.endpoint.route)
        head: list[Start | Whole | bytes] = [Start(incoming.status, _headers(incoming))]
        is_stored = False
        try:
            for chunk in incoming.chunks():
                reader.feed(chunk)
                if reader.complaint is not None and not is_stored:
                    fault = self._upstream.fault(None, reader.complaint, {})
                    if isinstance(fault, ContextOverflow):
                        return _TooLarge(fault, [*head, chunk])
                if head:
                    self._outlet.put(head.pop())
                if reader.done and not is_stored:
                    is_stored = True
                    incoming.expect_end()
                    self._store(sent, reader)
                self._outlet.put(chunk)
        except (CallCancelled, ProviderError):
            if not is_stored:
                self._store(sent, reader)
            raise
        if head:
            self._outlet.put(head.pop())
        if not is_stored:
            self._store(sent, reader)
        return _Answered(reader)

    def _store(self, sent: Sent, reader: ReplyReader) -> None:
        """Store an answer. When that fails the client has it all the same and sends it again."""
        message = reader.message()
        if message is None:
            return
        try:
            self._stored = self._conversations.accept_answer(
                sent, message, tip_only=not reader.finished
            )
        except StoreError as error:
            _log.warning("an answer was not stored: %s", error)


def _headers(incoming: Incoming) -> list[tuple[bytes, bytes]]:
    """Return the headers that go on to the client."""
    return [(k.lower(), v) for k, v in incoming.raw_headers if k.lower() not in _HOP_BY_HOP]


def _parsed(body: bytes) -> Any:
    try:
        return load_json(body)
    except ValueError:
        return {"error": {"message": body[:2_000].decode("utf-8", "replace")}}


def _encode(body: Mapping[str, Any]) -> bytes:
    try:
        return orjson.dumps(body)
    except TypeError:
        return json.dumps(body).encode()
