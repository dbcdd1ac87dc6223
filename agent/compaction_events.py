"""Content-free records of compaction attempts: closed vocabularies and the builders of payloads.

A payload is flat, has the same 40 keys always, and holds no text but the names of provider and
model and two ids; what is unknown is None. Nothing is published here.
Read next: `agent/pass_events.py`.
"""

from __future__ import annotations

from collections.abc import Container, Mapping
from typing import Any

from agent.base.ids import new_pass_id
from agent.base.messages import clean_text
from agent.base.record import dataclass

Payload = dict[str, Any]
Record = Mapping[str, Any]

HARNESS = "hermes"
OTHER = "other"
NAME_CHARS = 200
"""Names and ids are cut to this length."""

METHODS = frozenset(
    "llm_summary aux_fallback_main deterministic_fallback deterministic_prune provider none".split()
)
TRIGGER_CLASSES: Mapping[str, str] = {
    "manual": "manual",
    "overflow": "overflow",
    "provider": "provider",
    "unknown": "unknown",
    "turn_start_threshold": "auto",
    "pre_api": "auto",
    "post_tool": "auto",
    "idle": "auto",
    "engine_preflight": "auto",
    "gateway_hygiene": "auto",
    "between_turns": "auto",
    "proactive_prune": "auto",
}
"""Trigger to its class."""
OVERFLOW_REASONS = frozenset({"context_overflow", "payload_too_large", "long_context_tier"})
OUTCOMES = frozenset({"committed", "aborted", "failed", "skipped", "blocked"})
IN_PLACE, ROTATED = "in_place_committed", "rotated_committed"
SPLIT_STATUSES = frozenset({"not_applicable", IN_PLACE, ROTATED, "failed_not_indexed", "aborted"})
TOKEN_METHODS = frozenset({"estimate_rough"})
FAILURE_CLASSES = frozenset(
    """
    none unknown other exception rollback lock_contended no_progress would_grow request_lost
    pairing_broken empty empty_transcript commit_fence_cancelled explicit_interrupt cancelled
    stall_interrupted attempt_superseded pool_saturated crashed store store_busy unknown_session
    session_split_failed session_ownership_lost session_ownership_unreadable
    cooldown_state_unreadable summary_refused summary_generation_failed summary_generation_aborted
    summary_auth_failure summary_network_failure summary_truncated_failure
    summary_empty_content_failure summary_overload_failure summary_model_benched aux_model_fallback
    feasibility_skip insufficient_messages no_compressible_window empty_post_handoff_window
    blocked:cooldown blocked:structural_backoff blocked:ineffective blocked:disabled blocked:unknown
    blocked:spend_limit blocked:failed_rung
    codex_auto_native codex_auto_off codex_no_thread codex_compaction_failed
    summarize_failed exchange_skipped defrag_failed stale_generation watermark_unavailable
    """.split()
)
_PREFIX_CLASSES = frozenset({"exception", "rollback", "summary_refused"})
"""Classes that the ledger details after a colon; only the class itself goes out."""

_STATUS_OUTCOMES: Mapping[str, str] = {
    **{outcome: outcome for outcome in OUTCOMES},
    "undone": "committed",
    "superseded": "aborted",
}
_ABORT_OUTCOMES: Mapping[str, str] = {
    "would_grow": "aborted",
    "no_progress": "aborted",
    "commit_fence_cancelled": "aborted",
    "lock_contended": "skipped",
    "feasibility_skip": "skipped",
    "insufficient_messages": "skipped",
    "no_compressible_window": "skipped",
    "empty_post_handoff_window": "skipped",
    "blocked:failed_rung": "blocked",
}
"""Failure class of an aborted attempt to what it is called outside; every other one failed."""

_MICRO_ENDINGS: Mapping[str, tuple[str, str]] = {
    "absorbed": ("committed", "none"),
    "defrag": ("committed", "none"),
    "stale_generation": ("skipped", "stale_generation"),
    "watermark_unavailable": ("skipped", "watermark_unavailable"),
}
"""How a micro pass ended to (status, failure class); every other word is a failure's class."""

_COUNTS: Mapping[str, str] = {
    "tokens_before": "tokens_before",
    "tokens_after": "tokens_after",
    "messages_before": "messages_before",
    "messages_after": "messages_after",
    "context_limit": "main_context_limit",
    "threshold_tokens": "effective_threshold",
    "protected_head_tokens": "protected_head_tokens",
    "middle_window_tokens": "middle_window_tokens",
    "protected_tail_tokens": "protected_tail_tokens",
    "duration_ms": "total_duration_ms",
    "summary_generation_ms": "summary_generation_ms",
    "aux_call_duration_ms": "aux_call_duration_ms",
    "queue_wait_ms": "queue_wait_ms",
    "commit_ms": "commit_ms",
    "tool_results_pruned": "tool_results_pruned",
    "reasoning_items_pruned": "reasoning_items_pruned",
    "summary_input_omitted_chars": "summary_input_omitted_chars",
}
"""Numbers: key of the payload to key of the record."""
_LARGEST = 2**63


@dataclass(frozen=True)
class _Form:
    """What is fixed for one kind of pass; an empty `trigger` takes the record's."""

    kind: str
    scope: str = "history"
    official: bool = False
    trigger: str = ""


_SUMMARIZE = _Form("summarize", official=True)
_CODEX = _Form("provider_native", scope="provider", official=True)
_MICRO = _Form("micro_summarize", trigger="between_turns")
_PRUNE = _Form("prune_tool_results")
_NATIVE = _Form("provider_native", scope="provider", trigger="provider")
_CHANGE = _Form(OTHER, trigger="manual")


# -- builders -------------------------------------------------------------------------------------
def attempt_payload(record: Record, *, compression_count: int | None = None) -> Payload:
    """Return the payload of a `compress_context` attempt; the record may be partial.

    `compression_count` is the number of passes that the conversation has committed.
    """
    form = _CODEX if record.get("route") == "codex_app_server" else _SUMMARIZE
    return _payload(form, record, compression_count)


def micro_payload(record: Record, *, compression_count: int | None = None) -> Payload:
    """Return the payload of a micro pass; its `outcome` may be its own word for how it ended."""
    ending = record.get("outcome")
    if isinstance(ending, str):
        status, failure_class = _MICRO_ENDINGS.get(ending, ("failed", ending))
        record = {**record, "commit_status": status, "failure_class": failure_class}
    return _payload(_MICRO, record, compression_count)


def prune_payload(record: Record, *, compression_count: int | None = None) -> Payload:
    """Return the payload of a masking pass."""
    return _payload(_PRUNE, record, compression_count)


def provider_native_payload(record: Record, *, compression_count: int | None = None) -> Payload:
    """Return the payload of a compaction that the provider did by itself."""
    return _payload(_NATIVE, record, compression_count)


def change_payload(record: Record, *, compression_count: int | None = None) -> Payload:
    """Return the payload of an undo or a rewind, which a person asked for."""
    return _payload(_CHANGE, record, compression_count)


def event_name(payload: Payload) -> str:
    """Return the name of the mark: `compaction` when what the model sees next has changed."""
    changed = payload["outcome"] == "committed" and payload["scope"] in ("history", "provider")
    return "compaction" if changed else "compaction.attempt"


def wire_outcome(status: str, failure_class: str) -> str:
    """Return what an attempt of that ledger status and class is called outside.

    A cancel is `failed`, a superseded pass `aborted`, an undone one was `committed`.
    """
    if status == "aborted":
        return _ABORT_OUTCOMES.get(failure_class, "failed")
    return _STATUS_OUTCOMES.get(status, OTHER)


def _payload(form: _Form, record: Record, compression_count: int | None) -> Payload:
    counts = {key: _count(record.get(source)) for key, source in _COUNTS.items()}
    trigger, trigger_class = _trigger(form.trigger or record.get("trigger_source"))
    failure_class = _failure_class(record.get("failure_class"))
    outcome = _outcome(record, failure_class)
    split_status = _word(record.get("split_status"), SPLIT_STATUSES)
    split = split_status in (IN_PLACE, ROTATED)
    return {
        "harness": HARNESS,
        "kind": form.kind,
        "scope": form.scope,
        "official": form.official,
        "method": _word(record.get("method"), METHODS) or "none",
        "trigger": trigger,
        "trigger_class": trigger_class,
        "overflow_reason": _word(record.get("overflow_reason"), OVERFLOW_REASONS),
        "outcome": outcome,
        "failure_class": failure_class,
        "attempt_id": _name(record.get("attempt_id")) or new_pass_id(),
        "session_id": _name(record.get("session_id")) or "",
        **counts,
        "tokens_reclaimed": _less(counts["tokens_before"], counts["tokens_after"]),
        "token_count_method": _word(record.get("token_count_method"), TOKEN_METHODS),
        "items_dropped": _less(counts["messages_before"], counts["messages_after"]),
        "summarizer_provider": _name(record.get("aux_provider")),
        "summarizer_model": _name(record.get("aux_model")),
        "compression_count": _count(compression_count),
        "in_place": split_status == IN_PLACE if split else None,
        "session_rotated": split_status == ROTATED if split else None,
        "split_status": split_status,
        "cache_break": outcome == "committed" if form.scope == "history" else None,
        "has_focus_topic": _flag(record.get("has_focus_topic")),
    }


# -- values ---------------------------------------------------------------------------------------
def _word(value: Any, allowed: Container[str]) -> str | None:
    """Return a word of a closed set, `other` for anything else, None for nothing."""
    if value is None:
        return None
    return str(value) if isinstance(value, str) and value in allowed else OTHER


def _trigger(value: Any) -> tuple[str, str]:
    """Return trigger and class; a bare `auto` says only the class."""
    if value == "auto":
        return "unknown", "auto"
    trigger = _word(value, TRIGGER_CLASSES) or "unknown"
    return trigger, TRIGGER_CLASSES.get(trigger, "unknown")


def _failure_class(value: Any) -> str:
    if isinstance(value, str):
        prefix = value.partition(":")[0]
        value = prefix if prefix in _PREFIX_CLASSES else value
    return _word(value or None, FAILURE_CLASSES) or "none"


def _outcome(record: Record, failure_class: str) -> str:
    if record.get("history_rewritten") is True:
        return "committed"
    status = record.get("commit_status")
    return wire_outcome(status, failure_class) if isinstance(status, str) else OTHER


def _count(value: Any) -> int | None:
    """Return a number that fits 64 bits; a bool is none."""
    if isinstance(value, bool) or not isinstance(value, int):
        return None
    return int(value) if -_LARGEST <= value < _LARGEST else None


def _less(before: int | None, after: int | None) -> int | None:
    return None if before is None or after is None else _count(before - after)


def _flag(value: Any) -> bool | None:
    return value if isinstance(value, bool) else None


def _name(value: Any) -> str | None:
    """Return a name or an id: one clean line of bounded length."""
    if not isinstance(value, str):
        return None
    return " ".join(clean_text(value[:NAME_CHARS]).split()) or None
