"""D09: an answer without text is no summary, whatever else it holds."""

from __future__ import annotations

import pytest

from agent.base.events import Notice
from agent.sessions.records import PassKind, PassStatus
from agent.testing.stub_reply import Reply
from tests.field_reports.harness import (
    SUMMARISER,
    SUMMARY,
    body_text,
    settings_for,
    words,
)

WINDOW, FULL, OVER = 8_000, 5_500, 7_500
"""A window, a view above its trigger, and one that is larger than the window."""
THOUGHT = "I think about it: " + words(200, "thought")

EMPTY_BODIES = {
    "reasoning only": Reply(text="", reasoning=THOUGHT),
    "null content": Reply(text=None),
    "white space": Reply(text="   \n"),
    "thought tags": Reply(text=f"<think>{THOUGHT}</think>"),
    "no choices": Reply(choices_empty=True),
    # of the same kind
    "reasoning under another name": Reply(text="", reasoning=THOUGHT, reasoning_key="reasoning"),
    "null content with reasoning": Reply(text=None, reasoning=THOUGHT),
    "a thought that never ends": Reply(text=f"<think>{THOUGHT}"),
    "thought tags and white space": Reply(text=f"<thinking>{THOUGHT}</thinking>\n\n  "),
    "an empty text": Reply(text=""),
}
BOTH_WAYS = pytest.mark.parametrize("whole", [False, True], ids=["streamed", "in one piece"])
EVERY_BODY = pytest.mark.parametrize("name", EMPTY_BODIES)


@pytest.fixture
def open_full(stub, open_bench):
    """A bench with a history above the trigger that still fits."""

    def open_one(name, *, whole=False):
        fields = vars(EMPTY_BODIES[name]) | {"ignore_stream": whole}
        stub.script([], model=SUMMARISER, then=Reply(**fields))
        bench = open_bench(settings_for(stub.base_url, window_tokens=WINDOW))
        bench.fill_to(FULL)
        return bench

    return open_one


@BOTH_WAYS
@EVERY_BODY
def test_d09_nothing_is_committed_and_the_failure_is_told(open_full, name, whole):
    bench = open_full(name, whole=whole)
    before = bench.state
    assert bench.agent.chat("the next question") == "ok"
    assert bench.committed == []
    assert bench.view[:-2] == before["view"]
    assert bench.store.head("s").generation == 0
    [attempt] = bench.passes
    assert (attempt.status, attempt.kind) == (PassStatus.FAILED, PassKind.SUMMARY)
    assert attempt.failure_class == "summary_empty_content_failure"
    assert attempt.trigger == "turn_start_threshold"
    assert len(bench.summary_requests) == 2
    assert bench.endings == [("failed", "summary_empty_content_failure")]
    assert any(
        SUMMARISER in event.text and event.level == "warning"
        for event in bench.events
        if isinstance(event, Notice)
    )
    assert bench.cooldown["failure_class"] == "summary_empty_content_failure"
    assert THOUGHT not in body_text(bench.main_requests[-1])
    assert bench.refusals == []


@EVERY_BODY
def test_d09_a_manual_pass_fails_the_same_way(open_full, name):
    bench = open_full(name)
    before = bench.state
    record = bench.agent.compress()
    assert record.status is PassStatus.FAILED
    assert record.failure_class == "summary_empty_content_failure"
    assert bench.state == before
    assert len(bench.summary_requests) == 2


@EVERY_BODY
def test_d09_the_next_turns_do_not_buy_it_again_while_the_brake_runs(open_full, name):
    bench = open_full(name)
    for number in range(3):
        assert bench.agent.chat(f"question {number}") == "ok"
    assert len(bench.summary_requests) == 2
    assert len(bench.passes) == 1


@EVERY_BODY
def test_d09_when_the_request_would_not_fit_a_digest_stands_in_and_says_why(stub, open_full, name):
    bench = open_full(name)
    bench.fill_to(OVER)
    assert bench.agent.chat("the next question") == "ok"
    [attempt] = bench.committed
    assert attempt.kind is PassKind.MECHANICAL
    assert attempt.failure_class == "summary_empty_content_failure"
    assert attempt.receipt["reason"] == "summary_empty_content_failure"
    stored = "\n".join(str(row) for row in bench.view)
    assert THOUGHT not in stored
    assert bench.refusals == []


def test_d09_a_second_answer_with_text_is_taken(stub, open_full):
    bench = open_full("reasoning only")
    stub.script([EMPTY_BODIES["reasoning only"], Reply(text=SUMMARY)], model=SUMMARISER)
    record = bench.agent.compress()
    assert record.status is PassStatus.COMMITTED
    assert len(bench.summary_requests) == 2
    [made] = [row["content"] for row in bench.view if row.get("_kind") == "summary"]
    assert made == SUMMARY


def test_d09_text_after_a_thought_is_taken_without_the_thought(stub, open_full):
    bench = open_full("reasoning only")
    reply = Reply(text=f"<think>{THOUGHT}</think>\n{SUMMARY}", reasoning=THOUGHT)
    stub.script([reply], model=SUMMARISER)
    bench.agent.compress()
    [made] = [row["content"] for row in bench.view if row.get("_kind") == "summary"]
    assert made == SUMMARY
