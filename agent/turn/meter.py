"""What fills the window, by part."""

from __future__ import annotations

from collections.abc import Iterable

from agent.base.messages import Message
from agent.base.record import dataclass
from agent.base.tokens import Calibration, estimate_message, estimate_text, estimate_tools
from agent.turn.host import TurnHost
from agent.turn.preflight import shape_view
from agent.turn.request import ShapeLimits

_PARTS = {"user": "user", "assistant": "assistant", "tool": "tool_results"}


@dataclass(frozen=True)
class ContextMeter:
    """Tokens of the next request by part, as the provider would count them."""

    system: int
    tools: int
    summary: int
    user: int
    assistant: int
    tool_results: int
    total: int
    usable: int
    trigger: int
    window: int
    reserve: int


def measure(host: TurnHost) -> ContextMeter:
    """Return the meter of the live view; nothing is sent or changed."""
    host.live.refresh()
    budget = host.budget()
    limits = ShapeLimits(
        budget.round_tokens,
        budget.message_tokens,
        recall=host.recall_offered,
        images=host.takes_images,
    )
    pins, _beyond = host.standing_pins()
    shaped = shape_view(host, limits, pins)
    estimated = shaped.tokens + budget.overhead_tokens
    scale = Calibration(host.counted(estimated) / max(1, estimated))
    parts = _by_part(shaped.messages, scale)
    system = scale.apply(estimate_text(host.system_prompt))
    tools = scale.apply(estimate_tools(host.tool_schemas))
    return ContextMeter(
        system=system,
        tools=tools,
        **parts,
        total=system + tools + sum(parts.values()),
        usable=host.window_tokens - host.reserve_tokens,
        trigger=host.trigger_tokens,
        window=host.window_tokens,
        reserve=host.reserve_tokens,
    )


def _by_part(messages: Iterable[Message], scale: Calibration) -> dict[str, int]:
    parts = {"summary": 0, "user": 0, "assistant": 0, "tool_results": 0}
    for message in messages:
        part = "summary" if message.get("_kind") == "frame" else _PARTS[message["role"]]
        parts[part] += message.get("_tokens") or estimate_message(message)
    return {part: scale.apply(tokens) for part, tokens in parts.items()}
