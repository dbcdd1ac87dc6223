from __future__ import annotations

from typing import Any

import pytest

from agent.compaction_events import event_name
from agent.pass_events import PassContext, is_published, payload_of_pass, provider_name
from agent.sessions.records import PassKind, PassStatus
from tests.trace.ledger import ledger_row
from tests.trace.vocabulary import KEYS


@pytest.mark.parametrize(
    ("status", "failure_class", "outcome"),
    [
        ("committed", "", "committed"),
        ("undone", "", "committed"),
        ("aborted", "explicit_interrupt", "failed"),
        ("aborted", "stall_interrupted", "failed"),
        ("aborted", "session_ownership_lost", "failed"),
        ("aborted", "crashed", "failed"),
        ("aborted", "no_progress", "aborted"),
        ("aborted", "would_grow", "aborted"),
        ("aborted", "commit_fence_cancelled", "aborted"),
        ("aborted", "lock_contended", "skipped"),
        ("aborted", "insufficient_messages", "skipped"),
        ("superseded", "attempt_superseded", "aborted"),
        ("failed", "summary_network_failure", "failed"),
        ("skipped", "lock_contended", "skipped"),
        ("blocked", "blocked:cooldown", "blocked"),
    ],
)
def test_status_and_class_make_the_outcome(status: str, failure_class: str, outcome: str) -> None:
    ledger = ledger_row(status=PassStatus(status), failure_class=failure_class)

    payload = payload_of_pass(ledger, PassContext())

    assert payload["outcome"] == outcome
    assert payload["cache_break"] is (outcome == "committed")
    assert event_name(payload) == ("compaction" if outcome == "committed" else "compaction.attempt")


def test_a_ledger_row_and_its_payload_have_the_same_numbers() -> None:
    context = PassContext(
        context_limit_tokens=16_000,
        threshold_tokens=9_000,
        tail_tokens=2_000,
        compression_count=4,
        has_focus_topic=False,
    )

    payload = payload_of_pass(ledger_row(), context)

    known = {
        "harness": "hermes",
        "kind": "summarize",
        "scope": "history",
        "official": True,
        "method": "llm_summary",
        "trigger": "post_tool",
        "trigger_class": "auto",
        "outcome": "committed",
        "failure_class": "none",
        "attempt_id": "0123456789abcdef0123456789abcdef",
        "session_id": "s1",
        "tokens_before": 9_000,
        "tokens_after": 3_500,
        "tokens_reclaimed": 5_500,
        "token_count_method": "estimate_rough",
        "messages_before": 41,
        "messages_after": 12,
        "items_dropped": 29,
        "context_limit": 16_000,
        "threshold_tokens": 9_000,
        "protected_tail_tokens": 2_000,
        "duration_ms": 1_300,
        "summary_generation_ms": 1_200,
        "summarizer_provider": "models.example",
        "summarizer_model": "small-model",
        "tool_results_pruned": 4,
        "compression_count": 4,
        "in_place": True,
        "session_rotated": False,
        "split_status": "in_place_committed",
        "cache_break": True,
        "has_focus_topic": False,
    }
    assert payload == {**dict.fromkeys(KEYS), **known}


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        (PassKind.SUMMARY, ("summarize", "llm_summary", True, "post_tool", "in_place_committed")),
        (
            PassKind.MECHANICAL,
            ("summarize", "deterministic_fallback", True, "post_tool", "in_place_committed"),
        ),
        (
            PassKind.MASK,
            ("prune_tool_results", "deterministic_prune", False, "post_tool", "in_place_committed"),
        ),
        (
            PassKind.MICRO,
            ("micro_summarize", "llm_summary", False, "between_turns", "in_place_committed"),
        ),
        (PassKind.UNDO, ("other", "none", False, "manual", "not_applicable")),
        (PassKind.REWIND, ("other", "none", False, "manual", "not_applicable")),
        (
            PassKind.PROVIDER_NATIVE,
            ("provider_native", "provider", False, "provider", "not_applicable"),
        ),
    ],
)
def test_each_kind_of_pass_is_called_by_its_name_outside(
    kind: PassKind, expected: tuple[Any, ...]
) -> None:
    payload = payload_of_pass(ledger_row(kind=kind), PassContext())

    parts = ("kind", "method", "official", "trigger", "split_status")
    assert tuple(payload[part] for part in parts) == expected
    assert event_name(payload) == "compaction"


def test_a_pass_that_made_a_child_session_is_called_rotated() -> None:
    payload = payload_of_pass(ledger_row(child_session_id="20261130_144020_3fa9c1"), PassContext())

    parts = ("split_status", "in_place", "session_rotated", "session_id")
    assert [payload[part] for part in parts] == ["rotated_committed", False, True, "s1"]


def test_a_pass_that_called_no_model_names_none() -> None:
    masked = ledger_row(kind=PassKind.MASK, receipt={"masked": "2", "summary_calls": 0})

    payload = payload_of_pass(masked, PassContext())

    parts = ("summarizer_provider", "summarizer_model", "tool_results_pruned")
    assert [payload[part] for part in parts] == [None, None, 1]


@pytest.mark.parametrize(
    ("route", "name"),
    [
        ("m at https://models.example/v1", "models.example"),
        ("who at noon at http://127.0.0.1:8080", "127.0.0.1:8080"),
        ("smollm2 at embedded", "embedded"),
        ("", ""),
    ],
)
def test_a_provider_is_called_by_its_host(route: str, name: str) -> None:
    assert provider_name(route) == name


def test_an_attempt_that_did_not_commit_claims_no_method_and_no_numbers_after() -> None:
    failed = ledger_row(
        status=PassStatus.FAILED,
        failure_class="summary_truncated_failure",
        tokens_after=None,
        messages_after=None,
        receipt={},
    )

    payload = payload_of_pass(failed, PassContext())

    parts = ("method", "tokens_reclaimed", "items_dropped", "split_status", "in_place")
    assert [payload[part] for part in parts] == ["none", None, None, "aborted", None]
    assert (payload["tokens_before"], payload["summarizer_model"]) == (9_000, "small-model")


@pytest.mark.parametrize(
    ("changes", "published"),
    [
        ({}, True),
        ({"status": PassStatus.UNDONE}, True),
        ({"status": PassStatus.PLANNED}, False),
        ({"status": PassStatus.PREPARED}, False),
        ({"kind": PassKind.IMPORT}, False),
        ({"status": PassStatus.BLOCKED}, True),
        ({"status": PassStatus.BLOCKED, "count": 2}, False),
    ],
)
def test_what_has_not_ended_is_folded_or_was_imported_is_not_published(
    changes: dict[str, Any], *, published: bool
) -> None:
    assert is_published(ledger_row(**changes)) is published
