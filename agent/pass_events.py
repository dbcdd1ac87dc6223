"""From a row of the ledger to the payload that is published for it: the same numbers in both.

Which passes are published at all is decided here too. Read next: `agent/telemetry.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from agent.base.record import dataclass
from agent.compaction_events import (
    IN_PLACE,
    ROTATED,
    Payload,
    attempt_payload,
    change_payload,
    micro_payload,
    provider_native_payload,
    prune_payload,
)
from agent.sessions.records import PassKind, PassRecord, PassStatus


@dataclass(frozen=True)
class PassContext:
    """What a ledger row does not say about its pass: shares of the window, and how it was asked.

    `compression_count` is the number of passes that the conversation has committed.
    Units: real tokens for window and threshold, estimated ones for the tail.
    """

    context_limit_tokens: int | None = None
    threshold_tokens: int | None = None
    tail_tokens: int | None = None
    compression_count: int | None = None
    overflow_reason: str | None = None
    has_focus_topic: bool | None = None


_METHODS: Mapping[PassKind, str] = {
    PassKind.SUMMARY: "llm_summary",
    PassKind.MECHANICAL: "deterministic_fallback",
    PassKind.MASK: "deterministic_prune",
    PassKind.MICRO: "llm_summary",
    PassKind.PROVIDER_NATIVE: "provider",
}
_BUILDERS: Mapping[PassKind, Callable[..., Payload]] = {
    PassKind.SUMMARY: attempt_payload,
    PassKind.MECHANICAL: attempt_payload,
    PassKind.MASK: prune_payload,
    PassKind.MICRO: micro_payload,
    PassKind.PROVIDER_NATIVE: provider_native_payload,
    PassKind.UNDO: change_payload,
    PassKind.REWIND: change_payload,
}
"""Kinds that are published; an import is none of them."""
_ENDED = frozenset(PassStatus) - {PassStatus.PLANNED, PassStatus.PREPARED}
_SPLITTING = frozenset({PassKind.SUMMARY, PassKind.MECHANICAL, PassKind.MASK, PassKind.MICRO})


def is_published(ledger: PassRecord) -> bool:
    """Return whether a pass is marked: it has ended, is no import and no folded repetition."""
    return ledger.status in _ENDED and ledger.kind in _BUILDERS and ledger.count <= 1


def payload_of_pass(ledger: PassRecord, context: PassContext) -> Payload:
    """Return the payload of a pass for which `is_published` holds, by its kind."""
    record = record_of_pass(ledger, context)
    if ledger.kind is PassKind.PROVIDER_NATIVE and ledger.trigger == "manual":
        record["route"] = "codex_app_server"
        return attempt_payload(record, compression_count=context.compression_count)
    return _BUILDERS[ledger.kind](record, compression_count=context.compression_count)


def record_of_pass(ledger: PassRecord, context: PassContext) -> dict[str, Any]:
    """Return the record that the builders take, with the numbers of the ledger row."""
    committed = ledger.status in (PassStatus.COMMITTED, PassStatus.UNDONE)
    wrote = ledger.kind in _METHODS and ledger.receipt.get("summary_calls") != 0
    durations = ledger.durations
    return {
        "attempt_id": ledger.id,
        "session_id": ledger.session_id,
        "commit_status": ledger.status.value,
        "failure_class": ledger.failure_class,
        "method": _METHODS.get(ledger.kind, "none") if committed else "none",
        "trigger_source": ledger.trigger or None,
        "overflow_reason": context.overflow_reason,
        "tokens_before": ledger.tokens_before,
        "tokens_after": ledger.tokens_after,
        "token_count_method": None if ledger.tokens_before is None else "estimate_rough",
        "messages_before": ledger.messages_before,
        "messages_after": ledger.messages_after,
        "main_context_limit": context.context_limit_tokens,
        "effective_threshold": context.threshold_tokens,
        "protected_tail_tokens": context.tail_tokens,
        "total_duration_ms": durations.get("total"),
        "summary_generation_ms": durations.get("summary"),
        "commit_ms": durations.get("commit"),
        "aux_provider": provider_name(ledger.route) if wrote else None,
        "aux_model": ledger.model if wrote else None,
        "tool_results_pruned": _seq_count(ledger.receipt.get("masked")),
        "split_status": _split_status(ledger, committed=committed),
        "has_focus_topic": context.has_focus_topic,
    }


def provider_name(route: str) -> str:
    """Return the host of a route such as `model at https://host/v1`, or its name."""
    place = route.rpartition(" at ")[2]
    return place.partition("://")[2].partition("/")[0] or place


def _split_status(ledger: PassRecord, *, committed: bool) -> str:
    if not committed:
        unstarted = ledger.status in (PassStatus.SKIPPED, PassStatus.BLOCKED)
        return "not_applicable" if unstarted else "aborted"
    if ledger.kind not in _SPLITTING:
        return "not_applicable"
    return ROTATED if ledger.child_session_id else IN_PLACE


def _seq_count(ranges: Any) -> int | None:
    """Return how many seqs a receipt's text such as `1-4,7` names."""
    if not isinstance(ranges, str):
        return None
    ends = [part.split("-") for part in ranges.split(",") if part]
    return sum(int(end[-1]) - int(end[0]) + 1 for end in ends)
