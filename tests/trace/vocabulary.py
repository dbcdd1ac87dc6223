"""What a payload may be made of, as the tests of the trace read it."""

from __future__ import annotations

from agent import compaction_events as events

KEYS = set(
    """harness kind scope official method trigger trigger_class overflow_reason outcome
    failure_class attempt_id session_id tokens_before tokens_after tokens_reclaimed
    token_count_method messages_before messages_after items_dropped context_limit threshold_tokens
    protected_head_tokens middle_window_tokens protected_tail_tokens duration_ms
    summary_generation_ms aux_call_duration_ms queue_wait_ms commit_ms summarizer_provider
    summarizer_model tool_results_pruned reasoning_items_pruned summary_input_omitted_chars
    compression_count in_place session_rotated split_status cache_break has_focus_topic""".split()
)
KINDS = {"summarize", "micro_summarize", "prune_tool_results", "provider_native", "other"}
VOCABULARIES: dict[str, set[str]] = {
    "harness": {"hermes"},
    "kind": KINDS,
    "scope": {"history", "provider"},
    "method": {*events.METHODS, "other"},
    "trigger": {*events.TRIGGER_CLASSES, "other"},
    "trigger_class": {"manual", "overflow", "provider", "unknown", "auto"},
    "overflow_reason": {*events.OVERFLOW_REASONS, "other"},
    "outcome": {*events.OUTCOMES, "other"},
    "failure_class": {*events.FAILURE_CLASSES},
    "split_status": {*events.SPLIT_STATUSES, "other"},
    "token_count_method": {"estimate_rough", "other"},
}
NAMES = {"attempt_id", "session_id", "summarizer_provider", "summarizer_model"}
