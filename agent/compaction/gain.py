"""What a pass is expected to gain and what it gained, in tokens and dollars, for the ledger.

Dollars are those of the next request alone, by known prices: what it would have cost without the
pass, less what it costs with it. A pass that breaks a warm cache may cost there and save later.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from agent.base.messages import Message
from agent.compaction.budget import total_tokens
from agent.compaction.cache_timing import CacheUse
from agent.compaction.host import CompressionHost
from agent.providers.protocol import Provider, TokenUsage
from agent.sessions.records import PassStatus

if TYPE_CHECKING:
    from agent.compaction.plan import Plan

GAIN = "gain"
"""Name in the receipt."""


def expected_gain(
    agent: CompressionHost, inputs: Sequence[Message], plan: Plan
) -> dict[str, dict[str, Any]]:
    """Return what the receipt of a plan says of its gain, about to be committed to that view."""
    now, overhead = agent.clock.now(), agent.budget().overhead_tokens
    use = CacheUse.from_anchor(agent.store.usage_anchor(agent.session_id))
    removed = int(plan.receipt.get("tokens_before", 0)) - plan.tokens_after
    before = total_tokens(inputs) + overhead
    real_before, real_after = map(agent.calibration.apply, (before, before - removed))
    without = use.next_usage(real_before, use.prompt, now)
    kept = agent.calibration.apply(overhead)
    cost_without = agent.provider.price(without)
    return {
        GAIN: {
            "cache": use.state(now).value,
            "tokens_before": real_before,
            "predicted_tokens": real_before - real_after,
            "cost_without": cost_without,
            "predicted_dollars": _saved(
                agent.provider, cost_without, use.next_usage(real_after, kept, now)
            ),
        }
    }


def measured_gain(agent: CompressionHost, usage: TokenUsage) -> Mapping[str, Any]:
    """Return what the first request after the newest pass shows of its gain; empty for none."""
    records = reversed(agent.store.passes(agent.session_id))
    committed = (record for record in records if record.status is PassStatus.COMMITTED)
    expected = next((record.receipt.get(GAIN) for record in committed), None)
    if not expected:
        return {}
    asked = TokenUsage(usage.prompt, 0, cached=usage.cached, cache_write=usage.cache_write)
    return {
        GAIN: {
            "actual_tokens": expected["tokens_before"] - usage.held_tokens,
            "actual_dollars": _saved(agent.provider, expected["cost_without"], asked),
        }
    }


def _saved(provider: Provider, without: float | None, usage: TokenUsage) -> float | None:
    cost = None if without is None else provider.price(usage)
    return None if without is None or cost is None else without - cost
