"""Requests on their way to the upstream, and its answers on their way back: bytes and headers go
through untouched. Read next: `proxy_exchange.py` (what is sent), `proxy_recall.py`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import orjson

from agent.base.cancel import CancelToken
from agent.base.errors import CallCancelled, ContextOverflow, ProviderError
from agent.base.messages import Message
from agent.base.record import dataclass
from agent.providers.call import Call
from agent.providers.endpoint import Endpoint
from agent.providers.failures import Complaint, fault_of_answer, read_complaint
from agent.providers.protocol import CallWatch, Limits
from agent.providers.text import load_json
from agent.providers.transport import Incoming, Transport
from agent.server.proxy_outlet import Outlet, Sign, Start, Whole
from agent.server.proxy_recall import Rounds, Sieve, without_recall
from agent.server.proxy_reply import ReplyReader
from agent.server.stream import DONE

PATH = "/chat/completions"
_HOP_BY_HOP = frozenset(
    b"connection keep-alive proxy-authenticate proxy-authorization te trailer transfer-encoding "
    b"upgrade content-length content-encoding date".split()
)
_NOT_FORWARDED = frozenset(
    "connection keep-alive proxy-authenticate proxy-authorization proxy-connection te trailer "
    "transfer-encoding upgrade host content-length accept-encoding expect cookie origin".split()
)


@dataclass(frozen=True)
class Asked:
    """An HTTP request as it arrived; header names are lower case, `body` None for a GET.

    `path` is below the upstream's address, with its query.
    """

    path: str
    headers: Mapping[str, str]
    body: bytes | None

    @property
    def credentials(self) -> str:
        """What tells one caller from another: the key, or what stands for it; empty without one."""
        value = self.headers.get("authorization", "")
        scheme, _, key = value.partition(" ")
        if scheme.lower() == "bearer":
            return key.strip()
        return value or self.headers.get("api-key") or self.headers.get("x-api-key") or ""

    @property
    def key(self) -> str:
        """The key that passes ask their model with; empty where no header of ours can carry it."""
        key = self.credentials
        return key if key.isascii() and key.isprintable() and " " not in key else ""

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
class TooLarge:
    """The upstream's refusal of a request as too large, as it would go to the client."""

    error: ContextOverflow
    items: Sequence[Start | Whole | bytes]


@dataclass(frozen=True)
class Answered:
    """An answer that went to the client; `reader` is empty for one that was an error."""

    reader: ReplyReader | None


Keep = Callable[[Message, bool], None]
"""Stores an answer; the second argument says whether it is complete."""


class Passage:
    """The calls of one request to the upstream.

    `on_sent` is called when the upstream has a request and the client nothing of its answer; `keep`
    once, with what arrived of the answer, before the client sees its end; `model` is what answers
    when the answer does not say.
    """

    def __init__(
        self,
        asked: Asked,
        upstream: Upstream,
        outlet: Outlet,
        cancel: CancelToken,
        *,
        keep: Keep,
        on_sent: Callable[[], None],
        model: str,
    ) -> None:
        self._asked = asked
        self._upstream = upstream
        self._outlet = outlet
        self._cancel = cancel
        self._keep = keep
        self._on_sent = on_sent
        self._model = model

    def forward(self, body: bytes | None, *, streams: bool) -> Answered | TooLarge:
        """Send a body and pass the answer on, unless it is a refusal of it as too large."""
        with self._open(body, streams=streams) as (incoming, is_stream):
            answered = self._relay(incoming) if is_stream else self._pass(incoming)
        assert answered is not None
        return answered

    def forward_whole(self, body: bytes | None) -> bytes:
        """Send a request of no conversation, pass its answer on in one piece and return it."""
        with self._open(body, streams=False) as (incoming, _is_stream):
            whole = incoming.read_whole()
            headers = _headers(incoming)
            self._outlet.put(Whole(incoming.status, headers, whole, _parsed(whole)))
        return whole

    def forward_rounds(self, rounds: Rounds, *, streams: bool) -> Answered | TooLarge:
        """Send a request that offers recall, again after each recall, and pass the answer on."""
        while True:
            with self._open(encode_body(rounds.body()), streams=streams) as (incoming, is_stream):
                answered = (
                    self._relay_round(incoming, rounds)
                    if is_stream
                    else self._pass(incoming, rounds)
                )
            if answered is not None:
                return answered
            self._outlet.put(Sign.WAITING)

    @contextmanager
    def _open(self, body: bytes | None, *, streams: bool) -> Iterator[tuple[Incoming, bool]]:
        """Send a request and give its answer, and whether that comes as a stream."""
        upstream, asked = self._upstream, self._asked
        watch = CallWatch(cancel=self._cancel, on_sent=self._on_sent)
        with Call(upstream.limits, watch, upstream.endpoint.route) as call:
            call.expect_whole(not streams)
            with upstream.transport.send(
                call, asked.path, body, headers=asked.forwarded()
            ) as incoming:
                is_stream = streams and incoming.ok and not incoming.is_json
                call.expect_whole(not is_stream)
                yield incoming, is_stream

    def _pass(self, incoming: Incoming, rounds: Rounds | None = None) -> Answered | TooLarge | None:
        """Pass an answer on that comes in one piece; None when it was a recall."""
        body = incoming.read_whole()
        whole = Whole(incoming.status, _headers(incoming), body, _parsed(body))
        if not incoming.ok:
            fault = self._upstream.fault(incoming.status, read_complaint(body), incoming.headers)
            if isinstance(fault, ContextOverflow):
                return TooLarge(fault, [whole])
            self._outlet.put(whole)
            return Answered(None)
        reader = self._reader()
        reader.whole(body)
        message = reader.message()
        if rounds is not None and rounds.answer(message):
            return None
        if message is not None:
            self._keep(message, reader.finished)
        self._outlet.put(whole)
        return Answered(reader)

    def _relay(self, incoming: Incoming) -> Answered | TooLarge:
        """Pass a stream on as it arrives; its answer is stored before the client sees its end."""
        reader = self._reader()
        headers, is_started, is_stored = _headers(incoming), False, False
        try:
            for chunk in incoming.chunks():
                reader.feed(chunk)
                if reader.complaint is not None and not is_stored:
                    fault = self._upstream.fault(None, reader.complaint, {})
                    if isinstance(fault, ContextOverflow):
                        return TooLarge(fault, [Start(incoming.status, headers), chunk])
                if reader.done and not is_stored:
                    is_stored = True
                    incoming.expect_end()
                    self._keep_of(reader)
                if is_started:
                    self._outlet.put(chunk)
                else:
                    is_started = True
                    self._outlet.put(Start(incoming.status, headers, chunk))
                    self._outlet.settle()
        except (CallCancelled, ProviderError):
            if not is_stored:
                self._keep_of(reader)
            raise
        if not is_started:
            self._outlet.put(Start(incoming.status, headers))
        if not is_stored:
            self._keep_of(reader)
        return Answered(reader)

    def _relay_round(self, incoming: Incoming, rounds: Rounds) -> Answered | None:
        """Pass on of a stream what is no recall; None when it was one, so that it goes on."""
        reader = self._reader()
        sieve = Sieve(reader, hides=rounds.left > 0)
        self._outlet.put(Start(incoming.status, _headers(incoming)))
        try:
            for chunk in incoming.chunks():
                for event in sieve.feed(chunk):
                    self._outlet.put(event)
                if reader.done:
                    incoming.expect_end()
        except (CallCancelled, ProviderError):
            self._keep_of(reader, rounds)
            raise
        message = reader.message()
        if sieve.is_recall and rounds.answer(message):
            return None
        self._keep_of(reader, rounds)
        if sieve.held_done:
            self._outlet.put(DONE)
        return Answered(reader)

    def _reader(self) -> ReplyReader:
        return ReplyReader(self._model, self._upstream.endpoint.route)

    def _keep_of(self, reader: ReplyReader, rounds: Rounds | None = None) -> None:
        """Keep an answer as the client has it, if anything of it arrived."""
        message = reader.message()
        if message is not None and rounds is not None:
            said = "".join(rounds.said) + (message.get("content") or "")
            message = {**without_recall(message), "content": said}
        if message is not None:
            self._keep(message, reader.finished)


def _headers(incoming: Incoming) -> list[tuple[bytes, bytes]]:
    """Return the headers that go on to the client."""
    return [(k.lower(), v) for k, v in incoming.raw_headers if k.lower() not in _HOP_BY_HOP]


def _parsed(body: bytes) -> Any:
    try:
        return load_json(body)
    except ValueError:
        return {"error": {"message": body[:2_000].decode("utf-8", "replace")}}


def encode_body(body: Mapping[str, Any]) -> bytes:
    """Return the bytes of a body that was made anew."""
    try:
        return orjson.dumps(body)
    except TypeError:
        return json.dumps(body).encode()
