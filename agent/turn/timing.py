"""When a pass that is due is left for later, for the sake of the provider's prompt cache."""

from __future__ import annotations

from agent.base.events import Notice
from agent.compaction.cache_timing import CacheUse, Situation, may_wait
from agent.compaction.context_compressor import ContextCompressor
from agent.turn.host import Turn, TurnHost
from agent.turn.request import Shaped


def waits(host: TurnHost, turn: Turn, shaped: Shaped) -> bool:
    """Return whether a pass, prepared or due, is left for a later request; say so once a turn.

    Only where the provider reports a cache, and only for the built-in engine: of another one
    nobody knows what a pass leaves.
    """
    trigger, used_tokens = host.trigger_tokens, turn.used_tokens
    if not isinstance(host.context_compressor, ContextCompressor):
        return False
    use = CacheUse.from_anchor(host.store.usage_anchor(host.session_id))
    budget = host.budget()
    answers = sum(message["role"] == "assistant" for message in shaped.messages)
    situation = Situation(
        used=used_tokens,
        after=host.calibration.apply(budget.target_tokens + budget.overhead_tokens),
        growth=host.calibration.apply(shaped.tokens // max(1, answers)),
        trigger=trigger,
        usable=host.window_tokens - host.reserve_tokens,
    )
    if not may_wait(situation, use, host.clock.now()):
        return False
    if used_tokens >= trigger and not turn.waiting_noted:
        turn.waiting_noted = True
        host.emit(
            Notice(
                level="info",
                text=f"compaction waits at {used_tokens} tokens, past {trigger}: the provider's "
                "prompt cache is warm, and a later pass gains more; /compress does it at once",
            )
        )
    return True
