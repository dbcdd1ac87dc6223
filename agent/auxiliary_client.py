"""Side-model calls: one summary call, and what its answer is worth.

Judges the answer (empty, cut off, declined, only reasoning) but not its content, which
`compaction/verify.py` does; whether to try again is the engine's decision.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final, Protocol

from agent.base.cancel import CancelToken
from agent.base.errors import (
    CallCancelled,
    ContentFiltered,
    ContextOverflow,
    ProviderError,
    SummaryDeclined,
    SummaryEmpty,
    SummaryReasoningOnly,
    SummaryTruncated,
)
from agent.base.messages import Message, text_of
from agent.base.pattern import pattern
from agent.base.record import dataclass
from agent.providers.protocol import (
    CallWatch,
    Delta,
    Limits,
    ModelReply,
    ModelRequest,
    Provider,
    TokenUsage,
)

_MOST_RETRIES = 1
_THOUGHT = pattern(r"\s*<(think|thinking)>.*?(?:</\1>|\Z)", re.DOTALL | re.IGNORECASE)
_THOUGHT_END = pattern(r"(?:(?!<think).)*?</(?:think|thinking)>\s*?(?:\n|\Z)", re.DOTALL)


class AuxiliaryExplicitCancellation(BaseException):
    """A summary call was ended by a person's stop or by its cancelled fence.

    No `Exception`, so that code which retries on those cannot take a stop for a fault.
    """

    cause: Final = "explicit_host_cancel"

    def __init__(self) -> None:
        super().__init__("the summary was stopped")


class SummaryFence(Protocol):
    """What a summary call needs of the commit fence."""

    @property
    def token(self) -> CancelToken:
        """Cancelled with the fence."""
        ...

    def touch_progress(self) -> None:
        """Note that the call is alive."""
        ...


@dataclass(frozen=True)
class SummaryText:
    """The text of a complete summary answer, thoughts removed; `cost` in US dollars or None."""

    text: str
    finish_reason: str | None
    usage: TokenUsage | None
    cost: float | None


class AuxiliaryClient:
    """Asks one model for summaries. Thread-safe when its provider is.

    `window_tokens` None takes the provider's; what an overflow names as smaller is kept.
    """

    def __init__(
        self, provider: Provider, limits: Limits, window_tokens: int | None = None
    ) -> None:
        self._provider = provider
        self._limits = replace(limits, retries=min(limits.retries, _MOST_RETRIES))
        self._window_tokens = window_tokens or provider.window_tokens

    @property
    def window_tokens(self) -> int:
        """The summary model's window."""
        return self._window_tokens

    @property
    def model(self) -> str:
        """The summary model's id."""
        return self._provider.model

    @property
    def route(self) -> str:
        """Model and endpoint for people, without any key."""
        return self._provider.route

    def summarise(
        self,
        prompt_messages: Sequence[Message],
        *,
        max_tokens: int,
        fence: SummaryFence,
        on_delta: Callable[[str], None] | None = None,
    ) -> SummaryText:
        """Return the answer to `prompt_messages`, streamed; `on_delta` hears its text.

        Raises: AuxiliaryExplicitCancellation within 250 ms of a cancel of `fence.token`, which
        wins over an answer or a fault that came with it; ProviderError; SummaryFailure by kind.
        Concurrency: callbacks and `fence.touch_progress` run in the calling thread.
        """

        def touch(_count: int) -> None:
            fence.touch_progress()

        def pass_on(delta: Delta) -> None:
            if on_delta is not None and delta.text:
                on_delta(delta.text)

        watch = CallWatch(cancel=fence.token, on_bytes=touch, on_delta=pass_on)
        request = ModelRequest(messages=prompt_messages, max_tokens=max_tokens)
        try:
            reply = self._provider.complete(request, limits=self._limits, watch=watch)
        except (CallCancelled, ProviderError) as error:
            if fence.token.cancelled:
                raise AuxiliaryExplicitCancellation from error
            if isinstance(error, ContextOverflow) and error.limit_tokens:
                self._window_tokens = min(self._window_tokens, error.limit_tokens)
            if isinstance(error, ContentFiltered):
                raise SummaryDeclined(str(error)) from error
            raise
        if fence.token.cancelled:
            raise AuxiliaryExplicitCancellation
        text = self._usable_text(reply, max_tokens)
        cost = None if reply.usage is None else self._provider.price(reply.usage)
        return SummaryText(text, reply.finish_reason, reply.usage, cost)

    def _usable_text(self, reply: ModelReply, max_tokens: int) -> str:
        """Return the answer's text.

        Raises: the SummaryFailure that says why there is none.
        """
        written = text_of(reply.message.get("content"))
        text = without_thoughts(written)
        if reply.finish_reason == "content_filter":
            raise SummaryDeclined(f"{self.route} declined to write the summary: {text[:200]!r}")
        if reply.finish_reason == "length":
            raise SummaryTruncated(
                f"the summary of {self.route} stopped at its output limit of {max_tokens} tokens"
            )
        if not text:
            if written.strip() or reply.message.get("_reasoning"):
                raise SummaryReasoningOnly(f"{self.route} reasoned but wrote no summary")
            raise SummaryEmpty(f"{self.route} wrote an empty summary")
        if reply.finish_reason is None:
            raise SummaryTruncated(
                f"the summary of {self.route} ended without a finish after {len(text)} characters"
            )
        return text


def without_thoughts(text: str) -> str:
    """Return `text` stripped, without the thoughts that a model writes before its answer.

    A thought that never ends is all there is; an end without a beginning, which templates that
    open the thought themselves leave, ends a thought too.
    """
    while (thought := _THOUGHT.match(text)) is not None:
        text = text[thought.end() :]
    if (end := _THOUGHT_END.match(text)) is not None:
        text = text[end.end() :]
    return text.strip()
