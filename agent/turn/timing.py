"""When a pass that is due is left for later, for the sake of the provider's prompt cache."""

from __future__ import annotations

from agent.base.events import Notice
from agent.compaction.budget import total_tokens
from agent.compaction.cache_timing import CacheUse, Situation, may_wait
from agent.compaction.context_compressor import ContextCompressor
from agent.turn.host import Turn, TurnHost


def waits(host: TurnHost, used_tokens: int) -> bool:
    """Return whether a pass is left for a later request when the next one takes `used_tokens`.

    Only where the provider reports a cache, and only for the built-in engine: of another one
    nobody knows what a pass leaves. Linear in the view's length.
    """
    if not isinstance(host.context_compressor, ContextCompressor):
        return False
    use = CacheUse.from_anchor(host.store.usage_anchor(host.session_id))
    if not use.prompt:
        return False
    budget, view = host.budget(), host.live.messages
    answers = sum(message["role"] == "assistant" for message in view)
    situation = Situation(
        used=used_tokens,
        after=host.calibration.apply(budget.target_tokens + budget.overhead_tokens),
        growth=host.calibration.apply(total_tokens(view) // max(1, answers)),
        trigger=host.trigger_tokens,
        usable=host.window_tokens - host.reserve_tokens,
    )
    return may_wait(situation, use, host.clock.now())


def tell_waiting(host: TurnHost, turn: Turn) -> None:
    """Say once in a turn that a pass is due and waits."""
    if turn.waiting_noted or turn.used_tokens < host.trigger_tokens:
        return
    turn.waiting_noted = True
    host.emit(
        Notice(
            level="info",
            text=f"compaction waits at {turn.used_tokens} tokens, past {host.trigger_tokens}: the "
            "provider's prompt cache is warm, and a later pass gains more; /compress does it at "
            "once",
        )
    )
