"""D10: a summary that was cut off is not one."""

from __future__ import annotations

import pytest

from agent.sessions.records import PassStatus
from agent.testing.stub_reply import Reply
from agent.testing.stub_strict import count_text
from tests.field_reports.harness import SUMMARISER, SUMMARY, settings_for, words

WINDOW, FULL, OVER = 16_000, 11_500, 15_000
"""A window, a view above its trigger, and one that is larger than the window."""
GOOD_TEXT = "## State\n" + words(400, "work done")[:1592]

CUT_OFF = {
    "length": Reply(text=GOOD_TEXT, finish="length"),
    "max_tokens": Reply(text=GOOD_TEXT, finish="max_tokens"),
    "length, in one piece": Reply(text=GOOD_TEXT, finish="length", ignore_stream=True),
    "socket closed without a finish": Reply(text=GOOD_TEXT, close_without_finish=True),
    "a stream that ends without a finish": Reply(text=GOOD_TEXT, finish=None),
    "no finish, in one piece": Reply(text=GOOD_TEXT, finish=None, ignore_stream=True),
    "length inside a thought": Reply(text="<think>" + GOOD_TEXT, finish="length"),
}
EVERY_WAY = pytest.mark.parametrize("reply", CUT_OFF.values(), ids=CUT_OFF)


@pytest.fixture
def bench(stub, open_bench):
    opened = open_bench(settings_for(stub.base_url, window_tokens=WINDOW))
    opened.fill_to(FULL)
    return opened


@EVERY_WAY
def test_d10_it_is_asked_for_once_more_with_more_room_and_then_fails_as_truncated(
    stub, bench, reply
):
    assert count_text(GOOD_TEXT) == pytest.approx(400, rel=0.02)
    stub.script([], model=SUMMARISER, then=reply)
    before = bench.state
    assert bench.agent.chat("the next question") == "ok"
    first, second = bench.summary_requests
    larger_cap = second.body["max_tokens"] > first.body["max_tokens"]
    assert larger_cap or len(second.raw) < len(first.raw)
    [attempt] = bench.passes
    assert (attempt.status, attempt.failure_class) == (
        PassStatus.FAILED,
        "summary_truncated_failure",
    )
    assert bench.endings == [("failed", "summary_truncated_failure")]
    assert bench.view[:-2] == before["view"]
    assert bench.committed == []
    assert bench.cooldown["failure_class"] == "summary_truncated_failure"
    assert any("summary_truncated_failure" in text for text in bench.notices)
    assert bench.refusals == []


@EVERY_WAY
def test_d10_a_whole_second_answer_is_taken(stub, bench, reply):
    stub.script([reply, Reply(text=SUMMARY)], model=SUMMARISER)
    record = bench.agent.compress()
    assert record.status is PassStatus.COMMITTED
    assert len(bench.summary_requests) == 2
    [made] = [row["content"] for row in bench.view if row.get("_kind") == "summary"]
    assert made == SUMMARY


@EVERY_WAY
def test_d10_when_the_request_would_not_fit_the_part_is_still_not_used(stub, bench, reply):
    stub.script([], model=SUMMARISER, then=reply)
    bench.fill_to(OVER)
    assert bench.agent.chat("the next question") == "ok"
    [attempt] = bench.committed
    assert attempt.kind == "mechanical"
    assert attempt.failure_class == "summary_truncated_failure"
    assert not any(GOOD_TEXT[:80] in str(row["content"]) for row in bench.view)


def test_d10_cut_off_again_and_again_the_brake_gets_longer(stub, open_bench, bench):
    stub.script([], model=SUMMARISER, then=CUT_OFF["length"])
    waits = []
    for _ in range(3):
        bench.store.clear_compression_failure_cooldown("s")
        bench.agent.compress()
        waits.append(round(bench.cooldown["remaining_seconds"] / 60))
    assert waits == [1, 5, 15]
