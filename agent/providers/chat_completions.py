"""The chat-completions wire: any OpenAI-compatible endpoint, streaming and not.

What goes out is made by `encode.py`, what comes back put together by `reply.py`; sockets, cancel
and limits are `transport.py`'s, the meaning of faults `failures.py`'s.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from agent.base.errors import ProviderError, RequestRefused
from agent.base.record import dataclass
from agent.providers.answer import AnswerReader
from agent.providers.call import Call
from agent.providers.encode import RowEncoder
from agent.providers.endpoint import Endpoint, bare_url
from agent.providers.failures import (
    Complaint,
    fault_of_answer,
    read_complaint,
    unreadable_answer,
)
from agent.providers.prices import OwnPrices, price_of
from agent.providers.protocol import (
    CallWatch,
    Limits,
    ModelReply,
    ModelRequest,
    TokenUsage,
)
from agent.providers.reply import ReplyPieces
from agent.providers.retry import send_with_retries
from agent.providers.transport import Incoming, Transport

_PATH = "/chat/completions"


@dataclass(frozen=True)
class _Dialect:
    """What this endpoint takes; learned from its first refusal that names a field."""

    limit_field: str = "max_tokens"
    asks_usage: bool = True
    sends_temperature: bool = True

    def after(self, complaint: Complaint) -> _Dialect | None:
        """Return the dialect that a refusal asks for, None when it asks for nothing else."""
        words = f"{complaint.codes} {complaint.text}"
        for name, change in _LEARNED:
            learned = replace(self, **change)
            if name in words and learned != self:
                return learned
        return None


_LEARNED: tuple[tuple[str, dict[str, Any]], ...] = (
    ("max_completion_tokens", {"limit_field": "max_completion_tokens"}),
    ("stream_options", {"asks_usage": False}),
    ("temperature", {"sends_temperature": False}),
)


class ChatCompletions:
    """One model behind one chat-completions endpoint.

    `prices` are the user's own; `name` replaces the address in `route`, which never shows a key.
    Raises: SettingsError when the address or the key cannot be used.
    """

    def __init__(
        self,
        *,
        base_url: str,
        api_key: str = "",
        model: str,
        window_tokens: int,
        supports_tools: bool = True,
        prices: OwnPrices = (),
        name: str = "",
    ) -> None:
        self._model = model
        self._window_tokens = window_tokens
        self._supports_tools = supports_tools
        self._prices = prices
        route = f"{model} at {name or bare_url(base_url)}"
        self._endpoint = Endpoint(base_url, api_key, route)
        self._transport = Transport(self._endpoint)
        self._encoder = RowEncoder(route)
        self._dialect = _Dialect()

    @property
    def model(self) -> str:
        """The model id that is sent."""
        return self._model

    @property
    def route(self) -> str:
        """Model and endpoint, without any key."""
        return self._endpoint.route

    @property
    def window_tokens(self) -> int:
        """The model's window."""
        return self._window_tokens

    @property
    def supports_tools(self) -> bool:
        """Whether tools may be offered."""
        return self._supports_tools

    @property
    def one_slot(self) -> bool:
        """Never: servers take calls side by side."""
        return False

    def complete(self, request: ModelRequest, *, limits: Limits, watch: CallWatch) -> ModelReply:
        """Send one request and return the whole answer; see `Provider.complete`."""
        with Call(limits, watch, self.route) as call:
            call.check()
            return send_with_retries(
                lambda: self._send(request, call), call=call, retries=limits.retries
            )

    def price(self, usage: TokenUsage) -> float | None:
        """Return the cost of a call in US dollars, or None when the price is unknown."""
        return price_of(usage, self._model, self._endpoint, self._prices)

    def close(self) -> None:
        """Close the connections. Idempotent."""
        self._transport.close()

    def _send(self, request: ModelRequest, call: Call) -> ModelReply:
        """Send once, and again for each field that the endpoint turns out not to take."""
        while True:
            dialect = self._dialect
            answer = self._exchange(request, dialect, call)
            if isinstance(answer, ModelReply):
                return answer
            self._dialect = answer

    def _exchange(
        self, request: ModelRequest, dialect: _Dialect, call: Call
    ) -> ModelReply | _Dialect:
        """Send one HTTP request; return the answer, or the dialect that the endpoint wants."""
        body = self._encoder.body(request.messages, self._fields(request, dialect))
        accept = "text/event-stream" if request.stream else "application/json"
        call.expect_whole(not request.stream)
        with self._transport.send(call, _PATH, body, accept=accept) as incoming:
            if incoming.ok:
                call.expect_whole(incoming.is_json or not request.stream)
                return self._read(incoming, call.watch)
            complaint = read_complaint(incoming.read_whole())
            fault = self._fault(incoming.status, complaint, incoming.headers)
            learned = dialect.after(complaint) if type(fault) is RequestRefused else None
            if learned is None:
                raise fault
            return learned

    def _fields(self, request: ModelRequest, dialect: _Dialect) -> dict[str, Any]:
        fields: dict[str, Any] = {
            "model": self._model,
            dialect.limit_field: request.max_tokens,
            "stream": request.stream,
        }
        if request.stream and dialect.asks_usage:
            fields["stream_options"] = {"include_usage": True}
        if request.temperature is not None and dialect.sends_temperature:
            fields["temperature"] = request.temperature
        if request.tools:
            fields["tools"] = list(request.tools)
        return fields

    def _read(self, incoming: Incoming, watch: CallWatch) -> ModelReply:
        reader = AnswerReader(
            ReplyPieces(self._model, self.route),
            watch,
            on_complaint=lambda complaint: self._fault(None, complaint, {}),
            on_unreadable=lambda said: unreadable_answer(
                said, route=self.route, key=self._endpoint.key
            ),
        )
        return reader.read(incoming)

    def _fault(
        self, status: int | None, complaint: Complaint, headers: Mapping[str, str]
    ) -> ProviderError:
        return fault_of_answer(
            status, complaint, headers=headers, route=self.route, key=self._endpoint.key
        )
