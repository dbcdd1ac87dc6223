"""What a model route can do. Wires implement `Provider`; the turn loop and the summariser call it.

Read next: `transport.py` (bytes, limits, cancel), then `chat_completions.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import field
from typing import Any, Protocol, runtime_checkable

from agent.base.cancel import CancelToken
from agent.base.events import Event
from agent.base.messages import Message
from agent.base.record import dataclass


@dataclass(frozen=True)
class Limits:
    """Four limits of one call in seconds; 0 disables that limit.

    `connect_s` covers name resolution and encryption; `first_byte_s` runs from the end of the
    upload to the first byte of the body (headers alone do not count), and bounds an upload of
    which nothing is taken; `idle_s` between any two bytes after it, comment lines included;
    `total_s` covers everything, our own retries and their waits too. `retries` is how often the
    wire may send the request again before an answer has begun; 0 disables.
    """

    connect_s: float = 10.0
    first_byte_s: float = 300.0
    idle_s: float = 120.0
    total_s: float = 1800.0
    retries: int = 2


@dataclass(frozen=True)
class TokenUsage:
    """The provider's own count of one call in the one form that every wire is brought to.

    `prompt` is everything the window held as input: `cached` (read from the provider's cache)
    and `cache_write` (written to it) are parts of it. `completion` includes `reasoning`.
    Where the counts sum several calls of a turn, `in_window` is the input of the last of them, 0
    when it is unknown; None everywhere else.
    """

    prompt: int
    completion: int
    cached: int = 0
    reasoning: int = 0
    cache_write: int = 0
    in_window: int | None = None

    @property
    def held_tokens(self) -> int:
        """What the window held as input at the last call; 0 when that is unknown."""
        return self.prompt if self.in_window is None else self.in_window


@dataclass(frozen=True)
class ModelRequest:
    """One request in wire-valid form.

    `messages` begin with the system message, keep our `_` keys (the wire drops them) and must
    not be mutated while in use; a message with `_row_id` is immutable for ever, so its encoded
    bytes may be kept. `tools` are OpenAI function schemas; empty means none are offered.
    `max_tokens` is always sent. `replay_from` is the first seq whose reasoning may go back when
    it is bound to what stood before it: a pass has replaced the prefix of every earlier message.
    From `compact_at` tokens on the provider may compact by itself where it offers that; 0: never.
    From `clear_at` on it may leave out old tool results in what it reads, where it offers that,
    and with `clear_thinking` the thinking of earlier turns; 0: never.
    """

    messages: Sequence[Message]
    tools: Sequence[dict[str, Any]] = ()
    max_tokens: int = 4096
    temperature: float | None = None
    stream: bool = True
    replay_from: int = 0
    compact_at: int = 0
    clear_at: int = 0
    clear_thinking: bool = False


@dataclass(frozen=True)
class Delta:
    """A piece of an answer as it arrives: text or reasoning, never both empty."""

    text: str = ""
    reasoning: str = ""


@dataclass(frozen=True)
class Cleared:
    """What the provider left out of the request that it answered, by its own count: the tokens,
    the tool calls whose results they were, and the turns whose thinking they were."""

    tokens: int = 0
    tool_uses: int = 0
    thinking_turns: int = 0


NOTHING_CLEARED = Cleared()


@dataclass(frozen=True)
class ModelReply:
    """A complete answer.

    `message` is an assistant message (role, content, tool_calls, and `_reasoning` opaque);
    `finish_reason` is stop, length, tool_calls, content_filter, or None when the stream ended
    without one (then the answer counts as truncated). `request_id` is the provider's, if any.
    """

    message: Message
    finish_reason: str | None
    usage: TokenUsage | None
    model: str
    request_id: str = ""
    cleared: Cleared = NOTHING_CLEARED


@dataclass
class CallWatch:
    """What the caller of one model call hears and says while it runs.

    `cancel` ends the call within 50 ms at every phase and closes the socket; `on_bytes` is
    called with the size of each chunk that arrives (life, comment lines too); `on_delta` with
    each piece of the answer; `on_sent` once a try, when the request is out and nothing of the
    answer has been read: what it does takes no time where the answer takes longer, and what it
    raises ends the call. Callbacks run in the calling thread.

    A provider with tools of its own tells of them by `on_event`, asks `confirm(call_id, why)` in a
    thread of its own before one writes or executes (None: nobody can be asked, so it may not), and
    runs them in `cwd`.
    """

    cancel: CancelToken = field(default_factory=CancelToken)
    on_bytes: Callable[[int], None] | None = None
    on_delta: Callable[[Delta], None] | None = None
    on_sent: Callable[[], None] | None = None
    on_event: Callable[[Event], None] | None = None
    confirm: Callable[[str, str], bool] | None = None
    cwd: str = ""


@runtime_checkable
class KeepsHistory(Protocol):
    """A provider that keeps the conversation itself and compacts it itself: our transcript is
    never rewritten for it."""

    def compact(self, messages: Sequence[Message], *, limits: Limits, watch: CallWatch) -> str:
        """Let it compact the conversation that these messages belong to; return an empty text, or
        the class of the failure: `codex_no_thread`, `codex_compaction_failed`.

        Raises: CallCancelled.
        """
        ...

    def brought_compaction(self, message: Message) -> bool:
        """Return whether it compacted by itself while it made this answer."""
        ...


@runtime_checkable
class SendsCompactionsBack(Protocol):
    """A provider whose answers may bring a compaction that stands for all that was before it."""

    def holds_compaction(self, message: Message) -> bool:
        """Return whether an answer brought a compaction that this provider may be sent again.

        False for what another model, endpoint or wire brought.
        """
        ...


class Provider(Protocol):
    """One model on one endpoint. Thread-safe; construction touches no network, nothing heavy."""

    @property
    def model(self) -> str:
        """The model id that is sent."""
        ...

    @property
    def route(self) -> str:
        """Endpoint and model for people and for the ledger, without any key."""
        ...

    @property
    def window_tokens(self) -> int:
        """The model's window: input and output together."""
        ...

    @property
    def supports_tools(self) -> bool:
        """Whether tools may be offered."""
        ...

    @property
    def one_slot(self) -> bool:
        """Whether calls take turns, so that one holds up every other."""
        ...

    def complete(self, request: ModelRequest, *, limits: Limits, watch: CallWatch) -> ModelReply:
        """Send one request and return the whole answer.

        Raises: a `ProviderError` by kind; `CallCancelled` when `watch.cancel` was set.
        A retry of ours happens only before the first byte of an answer, on rate, overload and
        network faults, and never once the token is cancelled.
        """
        ...

    def price(self, usage: TokenUsage) -> float | None:
        """Return the cost of a call in US dollars, or None when the price is unknown."""
        ...

    def close(self) -> None:
        """Close connections; the embedded model's server stops. Idempotent."""
        ...
