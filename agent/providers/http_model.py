"""What every wire over HTTP shares: one exchange, its retries, its faults, and quirks learned.

A wire says where it sends, how a request is written and how an answer is put together; sockets,
cancel and limits are `transport.py`'s, the meaning of faults `failures.py`'s.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import ClassVar

from agent.base.errors import ProviderError, RequestRefused
from agent.base.messages import Message
from agent.providers.answer import AnswerPieces, AnswerReader
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
from agent.providers.retry import send_with_retries
from agent.providers.transport import Incoming, Transport

Quirks = frozenset[str]
"""Words of refusals that an endpoint has given: what it will not take, or takes by another name."""


class HttpModel(ABC):
    """One model behind one HTTP endpoint.

    `prices` are the user's own; `name` replaces the address in `route`, which never shows a key.
    Raises: SettingsError when the address or the key cannot be used.
    """

    path: ClassVar[str]
    """Where requests go, below the endpoint's address."""
    headers: ClassVar[tuple[tuple[str, str], ...]] = ()
    """What requests carry beside the key."""
    list_name: ClassVar[str] = "messages"
    """The field of a request that holds the messages."""
    learnable: ClassVar[tuple[str, ...]] = ()
    """Names whose refusal changes how requests are written from then on."""

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
        self._endpoint = Endpoint(base_url, api_key, route, self.headers)
        self._transport = Transport(self._endpoint)
        self._encoder = RowEncoder(self._write_row, self.list_name)
        self._quirks: Quirks = frozenset()

    @abstractmethod
    def _write_row(self, message: Message, replays: bool) -> bytes:
        """Return a message as this wire has it; see `agent.providers.encode.WriteRow`."""

    @abstractmethod
    def _body(self, request: ModelRequest, quirks: Quirks) -> bytes:
        """Return the body of a request to an endpoint with these quirks."""

    def _more_headers(self, request: ModelRequest, quirks: Quirks) -> Mapping[str, str]:
        """Return the headers that only this request needs."""
        return {}

    @abstractmethod
    def _pieces(self) -> AnswerPieces:
        """Return what puts one answer together."""

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
        """Send once, and again for each name that the endpoint turns out not to take."""
        while True:
            quirks = self._quirks
            answer = self._exchange(request, quirks, call)
            if isinstance(answer, ModelReply):
                return answer
            self._quirks = self._quirks | answer

    def _exchange(self, request: ModelRequest, quirks: Quirks, call: Call) -> ModelReply | Quirks:
        """Send one HTTP request; return the answer, or the quirks that the refusal shows."""
        body = self._body(request, quirks)
        accept = "text/event-stream" if request.stream else "application/json"
        call.expect_whole(not request.stream)
        more = self._more_headers(request, quirks)
        with self._transport.send(call, self.path, body, accept=accept, more=more) as incoming:
            if incoming.ok:
                call.expect_whole(incoming.is_json or not request.stream)
                return self._read(incoming, call.watch)
            complaint = read_complaint(incoming.read_whole())
            fault = self._fault(incoming.status, complaint, incoming.headers)
            refused = self._refused(complaint, quirks) if type(fault) is RequestRefused else None
            if refused is None:
                raise fault
            return quirks | {refused}

    def _refused(self, complaint: Complaint, quirks: Quirks) -> str | None:
        """Return the first name in a refusal that can be learned and is new, None for none."""
        words = f"{complaint.codes} {complaint.text}"
        return next((n for n in self.learnable if n in words and n not in quirks), None)

    def _read(self, incoming: Incoming, watch: CallWatch) -> ModelReply:
        reader = AnswerReader(
            self._pieces(),
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
