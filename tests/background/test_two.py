"""Two agents on one conversation, one of which prepares a pass."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

from agent.sessions.records import PassStatus
from tests.background.harness import (
    WAIT_S,
    fill_near,
    held_summary,
    rows_of,
    settings,
    settle,
    wait_for_summary_request,
)
from tests.background.test_full import Watch
from tests.field_reports.harness import small_talk


@pytest.fixture
def two(stub, open_bench):
    """Two benches on one session; the first prepares a pass until the event is set."""
    release = held_summary(stub)
    first, second = open_bench(settings(stub)), open_bench(settings(stub))
    fill_near(first)
    first.agent.chat("from the first")
    wait_for_summary_request(first)
    return first, second, release


def test_the_other_agent_goes_on_and_commits_what_the_first_prepared(two):
    first, second, release = two
    assert second.agent.chat("from the second") == "ok"
    settle(second)
    assert len(first.summary_requests) == 1
    [skipped] = rows_of(first, PassStatus.SKIPPED)
    assert skipped.failure_class == "lock_contended"
    release.set()
    settle(first)
    assert len(second.agent.run_conversation("again").passes) == 1
    assert first.agent.chat("and the first") == "ok"
    assert len(first.committed) == 1
    assert len(first.summary_requests) == 1
    assert first.refusals == []
    assert first.store.check().problems == []


def test_an_agent_whose_window_is_full_waits_for_the_other_one(two):
    first, second, release = two
    second.fill(small_talk(14, tokens=100, topic="more"))
    watch = Watch(second)
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(second.agent.run_conversation, "from the second")
        assert watch.waits.wait(WAIT_S)
        release.set()
        result = running.result(WAIT_S)
    assert result.final_text == "ok"
    assert len(result.passes) == 1
    assert result.waited_ms > 0
    assert len(first.summary_requests) == 1
    [told] = [text for text in second.notices if "the turn waits" in text]
    assert told.endswith("the compaction that another agent runs on this conversation")


def test_a_stop_ends_the_wait_for_another_agent(two):
    _first, second, _release = two
    second.fill(small_talk(14, tokens=100, topic="more"))
    watch = Watch(second)
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(second.agent.run_conversation, "from the second")
        assert watch.waits.wait(WAIT_S)
        second.agent.interrupt()
        assert running.result(WAIT_S).stop_reason == "interrupted"
