"""Events and records as lines, compared whole."""

from __future__ import annotations

import dataclasses
import time
from typing import Any

import pytest

from agent.base.events import (
    CompactionFinished,
    CompactionProgress,
    CompactionStarted,
    ErrorRaised,
    Event,
    Notice,
    TextDelta,
    ToolFinished,
    ToolStarted,
    TurnStarted,
)
from agent.sessions.records import (
    HistoryRow,
    PassKind,
    PassRecord,
    PassStatus,
    RowState,
    SessionRecord,
)
from agent.tui.receipt import pass_lines, plan_lines
from agent.tui.render import (
    EventLines,
    Line,
    history_lines,
    meter_lines,
    pass_line,
    passes_table,
    progress_text,
    sessions_table,
)

AT = time.mktime((2026, 11, 30, 14, 40, 0, 0, 0, -1))
PASS = PassRecord(
    id="0123456789abcdef",
    conversation_id=1,
    session_id="20261130_144000_abc123",
    generation=1,
    status=PassStatus.COMMITTED,
    kind=PassKind.MECHANICAL,
    trigger="turn_start_threshold",
    strategy="mask,mechanical",
    failure_class="summary_repeats",
    detail="",
    count=1,
    watermark=31,
    plan={},
    lease_token=1,
    tokens_before=2_702,
    tokens_after=1_430,
    messages_before=31,
    messages_after=12,
    model="SmolLM2",
    route="SmolLM2 at embedded",
    cost=0.0,
    durations={"summary": 17_000, "total": 18_230},
    receipt={"covered": "1-3,7", "masked": "", "coverage": 0.97, "summary_calls": 2, "reason": "x"},
    target_pass=None,
    child_session_id=None,
    created_at=AT,
    finished_at=AT + 18,
)


def changed(**fields: Any) -> PassRecord:
    return dataclasses.replace(PASS, **fields)


def finished(**fields: Any) -> CompactionFinished:
    values: dict[str, Any] = {
        "pass_id": PASS.id,
        "status": "committed",
        "failure_class": "",
        "tokens_before": 2_702,
        "tokens_after": 1_430,
        "messages_before": 31,
        "messages_after": 12,
        "duration_ms": 18_230,
        "coverage": None,
    }
    return CompactionFinished(**{**values, **fields})


@pytest.mark.parametrize(
    ("event", "lines"),
    [
        (TurnStarted(), []),
        (TextDelta(text="a"), []),
        (ErrorRaised(failure_class="auth", text="no key"), []),
        (
            ToolStarted(name="shell", arguments={"command": "ls\n-la"}, call_id="c1"),
            [Line("→ shell: ls -la", "dim")],
        ),
        (
            ToolStarted(name="patch", arguments={"path": "a.py", "count": 2}, call_id="c1"),
            [Line("→ patch: path=a.py, count=2", "dim")],
        ),
        (ToolStarted(name="todo", call_id="c1"), [Line("→ todo", "dim")]),
        (
            ToolFinished(call_id="c9", ok=True, bytes=1_234, duration_ms=300),
            [Line("← c9 1.2 KB, 0.3 s", "dim")],
        ),
        (Notice(level="warning", text="a\nb"), [Line("a b", "warn")]),
        (Notice(level="error", text="a"), [Line("a", "bad")]),
        (Notice(level="info", text="a"), [Line("a", "dim")]),
        (
            CompactionStarted(pass_id="p", trigger="overflow", strategy=""),
            [Line("compacting the conversation (trigger: overflow)", "dim")],
        ),
        (
            finished(),
            [
                Line(
                    "compacted (mechanical digest), 2,702 → 1,430 tokens, 31 → 12 messages, 18.2 s",
                    "good",
                )
            ],
        ),
        (
            finished(failure_class="summary_repeats", coverage=0.97),
            [
                Line(
                    "compacted (mechanical digest), 2,702 → 1,430 tokens, 31 → 12 messages, "
                    "coverage 97 %, no summary: summary_repeats, 18.2 s",
                    "good",
                )
            ],
        ),
        (
            finished(status="aborted", tokens_after=None, messages_after=None),
            [Line("compaction ended, nothing changed, 18.2 s", "warn")],
        ),
        (
            finished(status="failed", failure_class="auth", duration_ms=900),
            [Line("compaction failed, nothing changed (auth), 0.9 s", "warn")],
        ),
    ],
    ids=lambda value: type(value).__name__,
)
def test_each_event_is_shown_as_its_lines(event: Event, lines: list[Line]) -> None:
    assert EventLines(lambda _pass_id: PASS).of(event) == lines


def test_a_finished_call_carries_the_name_it_started_with() -> None:
    shown = EventLines(lambda _pass_id: None)
    shown.of(ToolStarted(name="shell", arguments={}, call_id="c1"))
    end = ToolFinished(call_id="c1", ok=False, bytes=10, duration_ms=5)
    assert shown.of(end) == [Line("← shell failed, 10 B, 0.0 s", "warn")]


def test_the_receipt_of_a_manual_pass_is_left_to_its_command() -> None:
    shown = EventLines(lambda _pass_id: PASS)
    shown.of(CompactionStarted(pass_id=PASS.id, trigger="manual", strategy=""))
    assert shown.of(finished()) == []
    assert len(shown.of(finished())) == 1


def test_progress_shows_time_and_tokens() -> None:
    event = CompactionProgress(pass_id="p", tokens_out=214, elapsed_s=12.34)
    assert progress_text(event) == "compacting: 12.3 s, 214 summary tokens"


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        (
            {},
            (
                "compacted (mechanical digest), 2,702 → 1,430 tokens, 31 → 12 messages, "
                "coverage 97 %, no summary: summary_repeats, 18.2 s"
            ),
        ),
        (
            {"status": PassStatus.PREPARED, "kind": PassKind.SUMMARY, "failure_class": ""},
            (
                "compaction prepared, not committed, summary, 2,702 → 1,430 tokens, "
                "31 → 12 messages, 18.2 s"
            ),
        ),
        (
            {"status": PassStatus.BLOCKED, "failure_class": "cooldown", "durations": {}},
            "compaction held back (cooldown)",
        ),
        (
            {"status": PassStatus.SKIPPED, "failure_class": "empty_view", "durations": {}},
            "compaction skipped, nothing to gain (empty_view)",
        ),
    ],
)
def test_a_ledger_row_has_a_receipt_line(fields: dict[str, Any], text: str) -> None:
    assert pass_line(changed(**fields)).text == text


@dataclasses.dataclass(frozen=True)
class FixedMeter:
    system: int = 300
    tools: int = 700
    summary: int = 0
    user: int = 100
    assistant: int = 400
    tool_results: int = 500
    total: int = 2_000
    usable: int = 4_000
    trigger: int = 3_000
    window: int = 4_096
    reserve: int = 96


def test_the_meter_is_shown_by_part() -> None:
    assert [line.text for line in meter_lines(FixedMeter(), 60)] == [
        "part                     tokens  of usable",
        "system prompt               300        8 %",
        "tool schemas                700       18 %",
        "summary of earlier rows       0        0 %",
        "user messages               100        2 %",
        "assistant messages          400       10 %",
        "tool results                500       12 %",
        "total                     2,000       50 %",
        "2,000 / 4,000 tokens, 50 % ██████████░░░░░░░░░░",
        "a pass starts at 3,000; window 4,096, of which 96 are kept …",
    ]


def test_the_ledger_is_a_table() -> None:
    rows = [PASS, changed(id="fedcba9876543210", status=PassStatus.BLOCKED, count=3)]
    assert [line.text for line in passes_table(rows, 72)] == [
        "pass      status      kind               tokens  messages  reason      …",
        "01234567  committed   mechanical  2,702 → 1,430   31 → 12  summary_repe…",
        "fedcba98  blocked x3  mechanical  2,702 → 1,430   31 → 12  summary_repe…",
    ]
    assert passes_table([PASS], 0)[1].text.endswith(
        "  summary_repeats  turn_start_threshold  2026-11-30 14:40"
    )
    assert passes_table([], 0) == [Line("no compactions yet", "dim")]


def test_sessions_are_a_table_as_wide_as_the_terminal() -> None:
    record = SessionRecord(
        id="20261130_144000_abc123",
        conversation_id=1,
        source="cli",
        model=None,
        system_prompt=None,
        parent_session_id=None,
        title="Garden\nplan",
        started_at=AT,
        ended_at=None,
        end_reason=None,
        cwd=None,
        last_active_at=AT,
        message_count=42,
        pass_count=2,
    )
    assert [line.text for line in sessions_table([record], 70)] == [
        "session                 last active       messages  passes  title",
        "20261130_144000_abc123  2026-11-30 14:40        42       2  Garden pl…",
    ]
    assert sessions_table([], 0) == [Line("no sessions yet", "dim")]


def test_history_names_where_each_row_stands() -> None:
    call = {"id": "c1", "type": "function", "function": {"name": "shell", "arguments": "{}"}}
    rows = [
        HistoryRow(
            {"role": "user", "content": "a\nb", "_seq": 1, "_at": AT}, RowState.LIVE, None, None
        ),
        HistoryRow(
            {"role": "assistant", "content": None, "tool_calls": [call], "_seq": 2, "_at": AT},
            RowState.COMPACTED,
            PASS.id,
            None,
        ),
        HistoryRow(
            {"role": "user", "content": "S", "_seq": 2, "_at": AT}, RowState.LIVE, None, PASS.id
        ),
    ]
    assert [line.text for line in history_lines(rows)] == [
        "#1 user, 2026-11-30 14:40",
        "a\nb",
        "",
        "#2 assistant, 2026-11-30 14:40, compacted by pass 01234567",
        "→ shell {}",
        "",
        "#2 user, 2026-11-30 14:40, made by pass 01234567",
        "S",
    ]


def test_a_pass_is_shown_with_every_field_that_says_something() -> None:
    assert [line.text for line in pass_lines(PASS)] == [
        "pass            0123456789abcdef",
        "session         20261130_144000_abc123",
        "status          committed",
        "kind            mechanical digest",
        "steps           mask,mechanical",
        "trigger         turn_start_threshold",
        "reason          summary_repeats",
        "tokens          2,702 → 1,430",
        "messages        31 → 12",
        "summary model   SmolLM2 at embedded",
        "cost            $0.0000",
        "started         2026-11-30 14:40",
        "took            18.2 s (summary 17.0 s)",
        "covered         1-3,7",
        "coverage        97 %",
        "summary calls   2",
    ]


def test_a_preview_takes_its_figures_from_the_plan_and_ends_with_its_text() -> None:
    plan = {
        "kind": "summary",
        "strategy": "summarise",
        "failure_class": "",
        "tokens_after": 900,
        "messages_after": 9,
        "receipt": {"covered": "1-22"},
        "new_row": {"role": "user", "content": "What happened\n- it rained"},
    }
    record = changed(
        status=PassStatus.PREPARED,
        failure_class="",
        tokens_after=None,
        messages_after=None,
        receipt={},
        durations={},
        plan=plan,
    )
    assert [line.text for line in plan_lines(record)] == [
        "compaction prepared, not committed, summary, 2,702 → 900 tokens, 31 → 9 messages",
        "covered         1-22",
        "text that would stand in for them:",
        "  What happened",
        "  - it rained",
    ]


def test_a_preview_that_prepared_nothing_says_why() -> None:
    record = changed(status=PassStatus.FAILED, failure_class="auth", receipt={}, durations={})
    assert plan_lines(record) == [Line("compaction failed, nothing changed (auth)", "warn")]
