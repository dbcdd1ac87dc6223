from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent import compaction_events as events
from agent.base import errors
from agent.compaction.cooldown import (
    BACKOFFS,
    BLOCKED_AS_INEFFECTIVE,
    BLOCKED_BY_COOLDOWN,
    ledger_class,
)
from agent.compaction.verify import (
    EMPTY,
    EMPTY_TRANSCRIPT,
    NO_PROGRESS,
    PAIRING_BROKEN,
    REQUEST_LOST,
    WOULD_GROW,
)
from agent.sessions.records import PassKind, PassStatus
from tests.trace.vocabulary import KEYS, NAMES, VOCABULARIES

RECORD_KEYS = sorted(
    KEYS
    | {"route", "commit_status", "trigger_source", "main_context_limit", "effective_threshold"}
    | {"total_duration_ms", "aux_provider", "aux_model", "history_rewritten", "summary", "error"}
)
BUILDERS = [
    events.attempt_payload,
    events.micro_payload,
    events.prune_payload,
    events.provider_native_payload,
    events.change_payload,
]

words = st.sampled_from(sorted(set().union(*VOCABULARIES.values()) | {"auto", "codex_app_server"}))
secrets = st.sampled_from(
    ["sk-live-0123456789abcdef", "Bearer eyJhbGciOi", "exception:password=hunter2", "x" * 100_000]
)
scalars = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.integers(min_value=2**62, max_value=2**70),
    st.floats(),
    st.text(alphabet=st.characters(), max_size=30),
    st.binary(max_size=8),
    words,
    secrets,
    st.sampled_from([*PassStatus, *PassKind]),
)
junk = st.recursive(
    scalars,
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.text(), inner)),
    max_leaves=5,
)
records = st.dictionaries(st.one_of(st.sampled_from(RECORD_KEYS), st.text(max_size=5)), junk)


@given(record=records, count=st.one_of(st.none(), st.integers()), builder=st.sampled_from(BUILDERS))
def test_no_record_whatever_puts_free_text_into_a_payload(
    record: dict[str, Any], count: int | None, builder: Any
) -> None:
    payload = builder(record, compression_count=count)

    assert payload.keys() == KEYS
    assert len(KEYS) == 40
    json.dumps(payload, allow_nan=False).encode()
    for key, value in payload.items():
        if key in NAMES and value is not None:
            assert len(value) <= events.NAME_CHARS
            assert value.splitlines() == ([value] if value else [])
        elif isinstance(value, str):
            assert value in VOCABULARIES[key]
        else:
            assert value is None or type(value) is bool or -(2**63) <= value < 2**63
    assert events.event_name(payload) in ("compaction", "compaction.attempt")


def test_an_empty_record_gives_every_key_and_a_fresh_attempt_id() -> None:
    payload = events.attempt_payload({})
    attempt_id = payload.pop("attempt_id")

    given = {
        "harness": "hermes",
        "kind": "summarize",
        "scope": "history",
        "official": True,
        "method": "none",
        "trigger": "unknown",
        "trigger_class": "unknown",
        "outcome": "other",
        "failure_class": "none",
        "session_id": "",
        "cache_break": False,
    }
    assert payload == {**dict.fromkeys(KEYS - {"attempt_id"}), **given}
    assert len(attempt_id) == 32
    assert events.attempt_payload({})["attempt_id"] != attempt_id


FULL_RECORD = {
    "attempt_id": "a1",
    "session_id": "s1",
    "commit_status": "committed",
    "method": "llm_summary",
    "trigger_source": "overflow",
    "overflow_reason": "payload_too_large",
    "tokens_before": 9_000,
    "tokens_after": 4_000,
    "token_count_method": "estimate_rough",
    "messages_before": 40,
    "messages_after": 10,
    "main_context_limit": 128_000,
    "effective_threshold": 96_000,
    "protected_head_tokens": 1,
    "middle_window_tokens": 2,
    "protected_tail_tokens": 3,
    "total_duration_ms": 4,
    "summary_generation_ms": 5,
    "aux_call_duration_ms": 6,
    "queue_wait_ms": 7,
    "commit_ms": 8,
    "aux_provider": "models.example",
    "aux_model": "small-model",
    "tool_results_pruned": 9,
    "reasoning_items_pruned": 10,
    "summary_input_omitted_chars": 11,
    "split_status": "rotated_committed",
    "has_focus_topic": True,
    "summary": "the user said hunter2",
}


def test_a_full_record_is_carried_over_under_the_names_of_the_payload() -> None:
    assert events.attempt_payload(FULL_RECORD, compression_count=12) == {
        "harness": "hermes",
        "kind": "summarize",
        "scope": "history",
        "official": True,
        "method": "llm_summary",
        "trigger": "overflow",
        "trigger_class": "overflow",
        "overflow_reason": "payload_too_large",
        "outcome": "committed",
        "failure_class": "none",
        "attempt_id": "a1",
        "session_id": "s1",
        "tokens_before": 9_000,
        "tokens_after": 4_000,
        "tokens_reclaimed": 5_000,
        "token_count_method": "estimate_rough",
        "messages_before": 40,
        "messages_after": 10,
        "items_dropped": 30,
        "context_limit": 128_000,
        "threshold_tokens": 96_000,
        "protected_head_tokens": 1,
        "middle_window_tokens": 2,
        "protected_tail_tokens": 3,
        "duration_ms": 4,
        "summary_generation_ms": 5,
        "aux_call_duration_ms": 6,
        "queue_wait_ms": 7,
        "commit_ms": 8,
        "summarizer_provider": "models.example",
        "summarizer_model": "small-model",
        "tool_results_pruned": 9,
        "reasoning_items_pruned": 10,
        "summary_input_omitted_chars": 11,
        "compression_count": 12,
        "in_place": False,
        "session_rotated": True,
        "split_status": "rotated_committed",
        "cache_break": True,
        "has_focus_topic": True,
    }


@pytest.mark.parametrize(
    ("given", "trigger", "trigger_class"),
    [
        (None, "unknown", "unknown"),
        ("auto", "unknown", "auto"),
        ("pre_api", "pre_api", "auto"),
        ("manual", "manual", "manual"),
        ("because I said so", "other", "unknown"),
    ],
)
def test_a_trigger_has_a_class(given: str | None, trigger: str, trigger_class: str) -> None:
    payload = events.attempt_payload({"trigger_source": given})

    assert (payload["trigger"], payload["trigger_class"]) == (trigger, trigger_class)


def test_a_rewritten_history_is_committed_whatever_the_status_says() -> None:
    record = {"history_rewritten": True, "commit_status": "aborted", "failure_class": "rollback:X"}

    payload = events.attempt_payload(record)

    assert (payload["outcome"], payload["failure_class"]) == ("committed", "rollback")


@pytest.mark.parametrize(
    ("ending", "outcome", "failure_class"),
    [
        ("absorbed", "committed", "none"),
        ("defrag", "committed", "none"),
        ("stale_generation", "skipped", "stale_generation"),
        ("watermark_unavailable", "skipped", "watermark_unavailable"),
        ("summarize_failed", "failed", "summarize_failed"),
        ("made up", "failed", "other"),
    ],
)
def test_a_micro_pass_has_endings_of_its_own(ending: str, outcome: str, failure_class: str) -> None:
    payload = events.micro_payload({"outcome": ending, "trigger_source": "manual"})

    assert (payload["kind"], payload["official"]) == ("micro_summarize", False)
    assert (payload["trigger"], payload["trigger_class"]) == ("between_turns", "auto")
    assert (payload["outcome"], payload["failure_class"]) == (outcome, failure_class)


def test_a_compaction_by_the_provider_breaks_no_cache_of_ours() -> None:
    observed = events.provider_native_payload({"commit_status": "committed"})
    asked = events.attempt_payload({"commit_status": "committed", "route": "codex_app_server"})

    parts = ("kind", "scope", "official", "trigger", "cache_break")
    assert [observed[part] for part in parts] == [
        "provider_native",
        "provider",
        False,
        "provider",
        None,
    ]
    assert [asked[part] for part in parts] == [
        "provider_native",
        "provider",
        True,
        "unknown",
        None,
    ]
    assert events.event_name(observed) == events.event_name(asked) == "compaction"


def _ends_attempts(error: type[errors.HermesError]) -> bool:
    kinds = (errors.ProviderError, errors.StoreError, errors.SummaryFailure, errors.CallCancelled)
    return issubclass(error, kinds)


def _tree(error: type[errors.HermesError]) -> list[type[errors.HermesError]]:
    return [error, *(below for child in error.__subclasses__() for below in _tree(child))]


def test_every_class_that_the_ledger_can_hold_is_in_the_vocabulary() -> None:
    raised = {ledger_class(e.failure_class) for e in _tree(errors.HermesError) if _ends_attempts(e)}
    judged = {EMPTY, EMPTY_TRANSCRIPT, NO_PROGRESS, PAIRING_BROKEN, REQUEST_LOST, WOULD_GROW}
    braked = {ledger_class(word) for word in BACKOFFS}
    gated = {BLOCKED_AS_INEFFECTIVE, BLOCKED_BY_COOLDOWN, "blocked:disabled", "lock_contended"}

    known = {word for word in raised | judged | braked | gated if word != "unknown_pass"}

    assert known - events.FAILURE_CLASSES == set()
