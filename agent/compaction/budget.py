"""How the window is shared out. Every figure is in estimated tokens: real ones over the ratio."""

from __future__ import annotations

from collections.abc import Sequence

from agent.base.images import is_image
from agent.base.messages import Message
from agent.base.record import dataclass
from agent.base.tokens import IMAGE_TOKENS, estimate_message

TRIGGER_SHARE = 0.75
TRIGGER_SHARE_LARGE = 0.50
LARGE_WINDOW_TOKENS = 512_000
TRIGGER_MAX_TOKENS = 256_000
TRIGGER_REACH = 0.85
PREPARE_SHARE = 0.80
"""Part of the trigger from which on a pass is prepared in the background."""
TARGET_SHARE = 0.50
TAIL_SHARE = 0.20
TAIL_MAX_TOKENS = 25_000
USER_SHARE = 0.10
PIN_SHARE = 0.05
ANCHOR_SHARE = 0.03
SUMMARY_SHARE = 0.05
SUMMARY_MIN_TOKENS = 400
SUMMARY_MAX_TOKENS = 10_000
ROUND_SHARE = 0.25
MESSAGE_SHARE = 0.25
FRAME_TOKENS = 170
"""What a request says around a summary: that it is reference, and how to read on."""
SMALLEST_RESULT_TOKENS = 80
"""A result is never cut below this in a request, however many there are in its round."""
_FRAMED = frozenset({"summary", "mechanical"})


@dataclass(frozen=True)
class Budget:
    """The shares of one window.

    `usable_tokens` is the window less the reserved output; `overhead_tokens` is what system
    prompt and tool schemas take of it. `target_tokens` is what the messages may take after a
    pass; `trigger_tokens` is compared with messages and overhead together.
    """

    usable_tokens: int
    overhead_tokens: int
    trigger_tokens: int
    target_tokens: int
    tail_tokens: int
    user_tokens: int
    pin_tokens: int
    anchor_tokens: int
    summary_tokens: int
    round_tokens: int
    message_tokens: int

    def fits(self, tokens: int) -> bool:
        """Return whether messages of `tokens` can be sent."""
        return tokens + self.overhead_tokens <= self.usable_tokens

    def under_trigger(self, tokens: int) -> bool:
        """Return whether messages of `tokens` would not start another pass."""
        return tokens + self.overhead_tokens < self.trigger_tokens


def budget_for(
    window_tokens: int,
    reserve_tokens: int,
    overhead_tokens: int,
    ratio: float = 1.0,
    *,
    threshold: float = 0.0,
    target_ratio: float = TARGET_SHARE,
) -> Budget:
    """Return the budget of a window.

    `ratio` is the provider's count over our estimate; `overhead_tokens` is an estimate.
    `threshold` is the share of the usable window at which a pass starts, 0 for the built-in rule;
    `target_ratio` the share that a pass brings the request down to.
    """
    usable = max(1, window_tokens - reserve_tokens)
    share = threshold
    if share <= 0:
        share = TRIGGER_SHARE if window_tokens < LARGE_WINDOW_TOKENS else TRIGGER_SHARE_LARGE
    trigger = min(share, TRIGGER_REACH) * usable
    if threshold <= 0:
        trigger = min(trigger, TRIGGER_MAX_TOKENS)
    summary = min(max(SUMMARY_SHARE * usable, SUMMARY_MIN_TOKENS), SUMMARY_MAX_TOKENS)

    def estimated(real_tokens: float) -> int:
        return max(1, int(real_tokens / ratio))

    return Budget(
        usable_tokens=estimated(usable),
        overhead_tokens=overhead_tokens,
        trigger_tokens=estimated(trigger),
        target_tokens=max(1, int(target_ratio * (usable / ratio - overhead_tokens))),
        tail_tokens=estimated(min(TAIL_SHARE * usable, TAIL_MAX_TOKENS)),
        user_tokens=estimated(USER_SHARE * usable),
        pin_tokens=estimated(PIN_SHARE * usable),
        anchor_tokens=estimated(ANCHOR_SHARE * usable),
        summary_tokens=estimated(summary),
        round_tokens=estimated(ROUND_SHARE * usable),
        message_tokens=estimated(MESSAGE_SHARE * usable),
    )


def row_tokens(message: Message) -> int:
    """Return the stored estimate of a message, or a fresh one when it has none."""
    tokens = message.get("_tokens")
    return tokens if isinstance(tokens, int) else estimate_message(message)


def total_tokens(messages: Sequence[Message]) -> int:
    """Return the sum of the messages' estimates."""
    return sum(map(row_tokens, messages))


def shown_sizes(messages: Sequence[Message], budget: Budget) -> list[int]:
    """Return what each message takes in a request; a user message at most `message_tokens`, or
    what its images take."""
    limit = budget.message_tokens
    sizes = [*map(row_tokens, messages)]
    for index, tokens in enumerate(sizes):
        if tokens > limit and messages[index].get("role") == "user":
            sizes[index] = _excerpt_size(messages[index], tokens, limit)
    return sizes


def _excerpt_size(message: Message, tokens: int, message_tokens: int) -> int:
    content = message.get("content")
    images = sum(map(is_image, content)) if isinstance(content, list) else 0
    return min(tokens, max(message_tokens, images * IMAGE_TOKENS))


def shown_tokens(messages: Sequence[Message], budget: Budget) -> int:
    """Return what the messages take in a request, where long ones are shown as excerpts.

    A user message counts at most `message_tokens`, the results of one tool round together at most
    `round_tokens`, and the frame that a summary is shown in `FRAME_TOKENS`.
    """
    kinds = {message.get("_kind") for message in messages}
    total = 0 if kinds.isdisjoint(_FRAMED) else FRAME_TOKENS
    whole = smallest = 0  # of the round of tool results that is being read
    for message, tokens in zip(messages, shown_sizes(messages, budget), strict=True):
        if message.get("role") == "tool":
            whole += tokens
            smallest += min(tokens, SMALLEST_RESULT_TOKENS)
            continue
        if whole:
            total += max(smallest, min(whole, budget.round_tokens))
            whole = smallest = 0
        total += tokens
    return total + max(smallest, min(whole, budget.round_tokens))
