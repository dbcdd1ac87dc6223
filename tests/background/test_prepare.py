"""From 80 % of the trigger on a pass is prepared while the conversation goes on."""

from __future__ import annotations

import time

import pytest

from agent.base.events import Notice
from agent.base.settings import LocalSettings, Settings
from agent.compaction.cooldown import Health
from agent.sessions.records import Guards, PassClosing, PassKind, PassOpening, PassStatus
from agent.testing.scripted import ScriptedProvider
from agent.testing.stub_reply import Reply
from run_agent import AIAgent
from tests.background.harness import (
    NEAR,
    OVER_TRIGGER,
    background_threads,
    fill_near,
    held_summary,
    pass_events,
    rows_of,
    settings,
    settle,
    wait_for_summary_request,
)
from tests.best_of import best_of
from tests.field_reports.harness import SUMMARISER, SUMMARY, Bench, small_talk, texts


def test_a_pass_is_prepared_during_turns_and_committed_as_the_next_one_starts(stub, open_bench):
    release = held_summary(stub)
    bench = open_bench(settings(stub))
    fill_near(bench)
    assert bench.agent.chat("first") == "ok"
    wait_for_summary_request(bench)
    assert bench.agent.chat("second, while the summary is written") == "ok"
    assert bench.agent.busy == ""
    assert bench.store.get_compression_lock_holder("s") is not None
    release.set()
    settle(bench)
    [prepared] = bench.passes
    assert (prepared.status, prepared.trigger) == (PassStatus.PREPARED, "between_turns")
    assert bench.store.get_compression_lock_holder("s") is None
    before = bench.rows
    result = bench.agent.run_conversation("third")
    assert result.passes == [prepared.id]
    [committed] = bench.passes
    assert (committed.id, committed.status, committed.kind, committed.trigger) == (
        prepared.id,
        PassStatus.COMMITTED,
        PassKind.SUMMARY,
        "between_turns",
    )
    assert len(bench.summary_requests) == 1
    assert bench.rows[: len(before)] == before
    assert SUMMARY in "\n".join(texts(bench.main_requests[-1].messages))
    assert SUMMARY not in "\n".join(texts(bench.main_requests[-2].messages))
    assert bench.refusals == []
    assert bench.store.check().problems == []


def test_rows_of_later_turns_follow_the_summary_untouched(stub, open_bench):
    release = held_summary(stub)
    bench = open_bench(settings(stub))
    fill_near(bench)
    bench.agent.chat("first")
    wait_for_summary_request(bench)
    bench.agent.chat("second")
    later = bench.view[-2:]
    release.set()
    settle(bench)
    bench.agent.chat("third")
    assert bench.view[-4:-2] == later


def test_below_the_share_nothing_is_prepared(stub, open_bench):
    bench = open_bench(settings(stub))
    fill_near(bench, NEAR - 1_000)
    bench.agent.chat("first")
    assert bench.agent.background._job is None
    assert bench.passes == []


def test_the_off_switch_leaves_everything_to_the_trigger(stub, open_bench):
    stub.script([], model=SUMMARISER, then=Reply(text=SUMMARY))
    bench = open_bench(settings(stub, background=False))
    fill_near(bench)
    bench.agent.chat("first")
    assert bench.summary_requests == []
    fill_near(bench, OVER_TRIGGER)
    bench.agent.chat("second")
    [committed] = bench.committed
    assert committed.trigger == "turn_start_threshold"


def test_compaction_that_is_off_is_off_in_the_background_too(stub, open_bench):
    bench = open_bench(settings(stub, enabled=False))
    fill_near(bench)
    bench.agent.chat("first")
    assert bench.agent.background._job is None


class OneSlot(ScriptedProvider):
    """A model whose calls take turns, as those of the embedded one do."""

    one_slot = True


@pytest.mark.parametrize("allowed", [False, True])
def test_a_model_with_one_slot_prepares_only_when_it_is_told_to(store, allowed):
    given = Settings(local=LocalSettings(background=allowed))
    agent = AIAgent(session_db=store, settings=given, provider=OneSlot())
    assert agent.prepares_in_background is allowed
    agent.close()


def test_when_masking_alone_would_do_nothing_is_prepared(stub, open_bench):
    bench = open_bench(settings(stub))
    listing = "src/module.py: 200 lines of a listing\n" * 105
    for number in range(4):
        bench.fill(
            [
                {"role": "user", "content": f"list part {number}"},
                {
                    "role": "assistant",
                    "content": None,
                    "tool_calls": [
                        {
                            "id": f"c{number}",
                            "type": "function",
                            "function": {"name": "shell", "arguments": "{}"},
                        }
                    ],
                },
                {"role": "tool", "tool_call_id": f"c{number}", "content": f"{number} {listing}"},
                {"role": "assistant", "content": "listed"},
            ]
        )
    fill_near(bench)
    bench.agent.chat("go on")
    settle(bench)
    assert bench.passes == []
    assert bench.summary_requests == []


def test_a_prepared_pass_is_not_prepared_twice_and_commits_in_milliseconds(stub, open_bench):
    stub.script([], model=SUMMARISER, then=Reply(text=SUMMARY))
    benches: list[Bench] = []

    def commit_one() -> float:
        """Return the greater of the commit's and the turn's time, as parts of their bounds."""
        bench = open_bench(settings(stub), session_id=f"s{len(benches)}")
        benches.append(bench)
        fill_near(bench)
        bench.agent.chat("first")
        settle(bench)
        started = time.monotonic()
        bench.agent.chat("second")
        turn_s = time.monotonic() - started
        [committed] = bench.committed
        assert len(bench.summary_requests) == len(benches)
        total_s = float(committed.durations["total"]) / 1000
        return max(turn_s / (4 * 0.1 + 1.0), total_s / (4 * 0.1))

    assert best_of(commit_one, 1) < 1


def test_a_focus_asks_for_a_text_of_its_own(stub, open_bench):
    stub.script([], model=SUMMARISER, then=Reply(text=SUMMARY))
    bench = open_bench(settings(stub))
    fill_near(bench)
    bench.agent.chat("first")
    settle(bench)
    record = bench.agent.compress(focus="the parser")
    assert record.status is PassStatus.COMMITTED
    assert [row.status for row in bench.passes] == [PassStatus.SUPERSEDED, PassStatus.COMMITTED]
    assert len(bench.summary_requests) == 2


def test_a_manual_pass_uses_what_was_prepared(stub, open_bench):
    stub.script([], model=SUMMARISER, then=Reply(text=SUMMARY))
    bench = open_bench(settings(stub))
    fill_near(bench)
    bench.agent.chat("first")
    settle(bench)
    [prepared] = bench.passes
    assert bench.agent.compress().id == prepared.id
    assert len(bench.summary_requests) == 1


def test_a_failure_arms_the_brake_and_is_told_from_the_thread_of_the_turn(stub, open_bench):
    stub.script([], model=SUMMARISER, then=Reply(status=401, error="no such key"))
    bench = open_bench(settings(stub))
    fill_near(bench)
    bench.agent.chat("first")
    settle(bench)
    [failed] = bench.passes
    assert (failed.status, failed.failure_class) == (PassStatus.FAILED, "summary_auth_failure")
    assert bench.cooldown["failure_class"] == "summary_auth_failure"
    told_before = [text for text in bench.notices if "compaction failed" in text]
    bench.agent.chat("second")
    told = [text for text in bench.notices if "compaction failed" in text]
    assert len(told) == 1
    assert told_before in ([], told)
    assert "summary_auth_failure" in told[0]
    assert pass_events(bench.events) == []
    assert len(bench.summary_requests) == 1


def test_a_broken_engine_breaks_no_turn_and_is_told(stub, open_bench):
    bench = open_bench(settings(stub))

    def break_down(_rows, **_options):
        raise ZeroDivisionError("engine bug")

    fill_near(bench)
    bench.compressor.compress = break_down
    assert bench.agent.chat("first") == "ok"
    settle(bench)
    assert bench.agent.chat("second") == "ok"
    assert [text for text in bench.notices if "ZeroDivisionError: engine bug" in text] == [
        "a compaction in the background broke down: ZeroDivisionError: engine bug"
    ]
    [failed] = bench.passes
    assert failed.failure_class == "exception:ZeroDivisionError"


def test_over_the_spend_limit_nothing_is_prepared(stub, open_bench):
    bench = open_bench(settings(stub, spend_limit_per_hour=0.5))
    fill_near(bench)
    lease = bench.store.acquire_lease("s")
    assert lease is not None
    bench.store.open_pass(PassOpening("p1", "s", PassKind.SUMMARY, "manual", 1, lease.token))
    bench.store.close_pass(PassClosing("p1", PassStatus.FAILED, "empty", cost=0.6))
    bench.store.release_lease(lease)
    bench.agent.chat("first")
    settle(bench)
    assert [row.id for row in bench.store.passes("s")] == ["p1"]
    assert bench.summary_requests == []


def test_events_of_a_prepared_pass_come_once_in_order_from_the_turn(stub, open_bench):
    stub.script([], model=SUMMARISER, then=Reply(text=SUMMARY))
    bench = open_bench(settings(stub))
    fill_near(bench)
    bench.agent.chat("first")
    settle(bench)
    seen = len(bench.events)
    bench.agent.chat("second")
    pass_id = bench.passes[0].id
    assert pass_events(bench.events) == [
        ("compaction_started", pass_id),
        ("compaction_finished", pass_id),
    ]
    kinds = [event.type for event in bench.events[seen:]]
    assert kinds.index("turn_started") < kinds.index("compaction_started")
    assert kinds.index("compaction_finished") < kinds.index("text_delta")
    assert bench.endings == [("committed", "")]


def test_a_view_that_stays_near_the_trigger_is_prepared_again_once_it_has_grown(stub, open_bench):
    stub.script([], model=SUMMARISER, then=Reply(text=SUMMARY))
    bench = open_bench(settings(stub))
    fill_near(bench)
    floor = Health(floor_tokens=bench.agent.context().total - 300)
    bench.store.settle("s", Guards(health=floor.to_dict()))
    bench.agent.chat("first")
    assert bench.agent.background._job is None
    fill_near(bench, NEAR + 500)
    bench.agent.chat("second")
    settle(bench)
    assert len(rows_of(bench, PassStatus.PREPARED)) == 1


def test_no_thread_is_left_when_nothing_runs(stub, open_bench):
    stub.script([], model=SUMMARISER, then=Reply(text=SUMMARY))
    bench = open_bench(settings(stub))
    fill_near(bench)
    bench.agent.chat("first")
    settle(bench)
    assert background_threads() == []
    assert not [event for event in bench.events if isinstance(event, Notice)]
    assert bench.fill(small_talk(1))
