"""A provider in memory, scripted by data: for tests that need no wire."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal

import orjson

from agent.base.errors import CallCancelled
from agent.base.messages import Message, wire_message
from agent.base.record import dataclass
from agent.providers.protocol import CallWatch, Delta, Limits, ModelReply, ModelRequest, TokenUsage
from agent.testing.stub_strict import check_messages, count_text, count_tokens

_PIECE_CHARS = 12
_LOOK_S = 0.005


@dataclass(frozen=True)
class Scripted:
    """One answer of a scripted provider."""

    text: str | None = "ok"
    reasoning: str = ""
    tool_calls: Sequence[Mapping[str, Any]] = ()
    """Calls as `builders.call` makes them."""
    finish: str | None = "auto"
    """Finish reason; `auto` is `tool_calls` or `stop`."""
    usage: TokenUsage | Literal["auto"] | None = "auto"
    """`auto` counts with the strict counter; None reports nothing."""
    hold: threading.Event | None = None
    """Answer only once this is set; a cancel ends the wait."""


Reply = Scripted | str | Exception
Script = Iterable[Reply] | Callable[[ModelRequest], Reply]


class ScriptedProvider:
    """`agent.providers.protocol.Provider` that answers from a script.

    `script` is a list of replies used in order, then `then` for ever, or a function of the
    request. A plain string is a reply with that text, an exception is raised. `requests` holds
    what was asked, oldest first. A message list that no strict provider takes raises ValueError.
    """

    supports_tools = True
    one_slot = False

    def __init__(
        self,
        script: Script = (),
        *,
        then: Reply = "ok",
        model: str = "scripted",
        window_tokens: int = 128_000,
        prices: tuple[float, float] | None = None,
    ) -> None:
        """Units: `prices` are dollars a million prompt and completion tokens; None is unknown."""
        self.model = model
        self.window_tokens = window_tokens
        self.requests: list[ModelRequest] = []
        self.closed = False
        self._prices = prices
        self._ask = script if callable(script) else None
        self._queue = deque(() if callable(script) else script)
        self._then = then
        self._changed = threading.Condition()

    @property
    def route(self) -> str:
        """Endpoint and model for people and for the ledger."""
        return f"scripted/{self.model}"

    def complete(self, request: ModelRequest, *, limits: Limits, watch: CallWatch) -> ModelReply:
        """Answer as the script says; limits mean nothing without a network."""
        with self._changed:
            self.requests.append(request)
            number = len(self.requests)
            self._changed.notify_all()
        refusal = check_messages([wire_message(message) for message in request.messages])
        if refusal is not None:
            raise ValueError(f"no strict provider takes this: {refusal.message}")
        given = self._next_reply(request)
        if isinstance(given, Exception):
            raise given
        reply = Scripted(text=given) if isinstance(given, str) else given
        while reply.hold is not None and not reply.hold.is_set():
            if watch.cancel.wait(_LOOK_S):
                break
        _stream(reply, watch)
        if watch.cancel.cancelled:
            raise CallCancelled(f"the call to {self.route!r} was cancelled")
        return self._whole(reply, request, number)

    def price(self, usage: TokenUsage) -> float | None:
        """Return the cost of a call by the given prices."""
        if self._prices is None:
            return None
        return (usage.prompt * self._prices[0] + usage.completion * self._prices[1]) / 1_000_000

    def close(self) -> None:
        """Remember that it was closed."""
        self.closed = True

    def wait_for_requests(self, count: int, timeout_s: float = 10.0) -> None:
        """Block until `count` requests were made. Raises: TimeoutError."""
        with self._changed:
            if not self._changed.wait_for(lambda: len(self.requests) >= count, timeout_s):
                made = len(self.requests)
                raise TimeoutError(f"{made} of {count} requests were made within {timeout_s} s")

    def _next_reply(self, request: ModelRequest) -> Reply:
        if self._ask is not None:
            return self._ask(request)
        try:
            return self._queue.popleft()
        except IndexError:
            return self._then

    def _whole(self, reply: Scripted, request: ModelRequest, number: int) -> ModelReply:
        message: Message = {"role": "assistant", "content": reply.text}
        if reply.tool_calls:
            message["tool_calls"] = [dict(call) for call in reply.tool_calls]
        if reply.reasoning:
            kept = {"route": self.route, "fields": {"reasoning": reply.reasoning}}
            message["_reasoning"] = orjson.dumps(kept).decode()
        finish = reply.finish
        if finish == "auto":
            finish = "tool_calls" if reply.tool_calls else "stop"
        usage = _count(reply, request) if reply.usage == "auto" else reply.usage
        return ModelReply(message, finish, usage, self.model, f"scripted-{number}")


def _stream(reply: Scripted, watch: CallWatch) -> None:
    for delta in _deltas(reply):
        if watch.cancel.cancelled:
            return
        if watch.on_bytes is not None:
            watch.on_bytes(len((delta.text + delta.reasoning).encode()))
        if watch.on_delta is not None:
            watch.on_delta(delta)


def _deltas(reply: Scripted) -> Iterator[Delta]:
    for start in range(0, len(reply.reasoning), _PIECE_CHARS):
        yield Delta(reasoning=reply.reasoning[start : start + _PIECE_CHARS])
    text = reply.text or ""
    for start in range(0, len(text), _PIECE_CHARS):
        yield Delta(text=text[start : start + _PIECE_CHARS])


def _count(reply: Scripted, request: ModelRequest) -> TokenUsage:
    reasoning = count_text(reply.reasoning)
    calls = "".join(
        call["function"]["name"] + call["function"]["arguments"] for call in reply.tool_calls
    )
    return TokenUsage(
        prompt=count_tokens(request.messages, request.tools),
        completion=count_text(reply.text or "") + count_text(calls) + reasoning,
        reasoning=reasoning,
    )
