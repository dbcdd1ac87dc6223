"""Ledger rows for the tests of the trace, without a store."""

from __future__ import annotations

import dataclasses
from typing import Any

from agent.sessions.records import PassKind, PassRecord, PassStatus

_COMMITTED = PassRecord(
    id="0123456789abcdef0123456789abcdef",
    conversation_id=7,
    session_id="s1",
    generation=3,
    status=PassStatus.COMMITTED,
    kind=PassKind.SUMMARY,
    trigger="post_tool",
    strategy="mask,summary",
    failure_class="",
    detail="",
    count=1,
    watermark=40,
    plan={},
    lease_token=2,
    tokens_before=9_000,
    tokens_after=3_500,
    messages_before=41,
    messages_after=12,
    model="small-model",
    route="small-model at https://models.example/v1",
    cost=0.0125,
    durations={"summary": 1_200, "total": 1_300},
    receipt={"masked": "3,5-7", "summary_calls": 1, "coverage": 0.7},
    target_pass=None,
    child_session_id=None,
    created_at=1_790_000_000.25,
    finished_at=1_790_000_001.75,
)


def ledger_row(**changes: Any) -> PassRecord:
    """Return a committed summary pass with `changes`."""
    return dataclasses.replace(_COMMITTED, **changes)
