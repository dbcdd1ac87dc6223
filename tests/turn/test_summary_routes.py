"""The summary model and those that stand in for it."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from agent.base.settings import Settings
from agent.sessions.records import PassRecord
from agent.testing.stub_reply import Reply
from agent.testing.summaries import GOOD_SUMMARY
from run_agent import AIAgent
from tests.turn.route_bench import FIRST, SECOND, THIRD, Bench, refusing, route, talk


def summary_settings(bench: Bench, **auxiliary: Any) -> Settings:
    settings = bench.open().settings
    compression = replace(
        settings.auxiliary.compression, model=SECOND, context_length=16_000, **auxiliary
    )
    return replace(settings, auxiliary=replace(settings.auxiliary, compression=compression))


@pytest.fixture
def summarised(bench: Bench) -> Callable[..., AIAgent]:
    def opened(tokens: int = 6_000, **auxiliary: Any) -> AIAgent:
        agent = bench.open_with(summary_settings(bench, **auxiliary))
        agent.pending_messages()
        talk(agent, tokens)
        return agent

    return opened


def test_a_summary_is_written_by_the_next_route_in_the_same_pass(
    bench: Bench, summarised: Callable[..., AIAgent]
) -> None:
    bench.stub.script([], model=SECOND, then=refusing(401))
    bench.stub.script([], model=THIRD, then=Reply(text=GOOD_SUMMARY))
    agent = summarised(fallback_chain=(route(THIRD),))
    record = agent.compress()
    at = f"at {bench.stub.base_url}"
    assert (record.status.value, record.model, record.route) == (
        "committed",
        THIRD,
        f"{THIRD} {at}",
    )
    assert bench.asked == [SECOND, THIRD]
    assert bench.store.get_compression_failure_cooldown("s") is None
    [told] = bench.notices
    assert told.startswith(f"{SECOND} {at} refused the key (401)")
    assert told.endswith(f"the summary is written by {THIRD} {at} instead")
    talk(agent, 6_000)
    agent.compress()
    assert bench.asked == [SECOND, THIRD]


def test_a_stand_in_with_a_smaller_window_gets_smaller_requests(
    bench: Bench, summarised: Callable[..., AIAgent]
) -> None:
    bench.stub.script([], model=SECOND, then=refusing(401))
    bench.stub.script([], model=THIRD, then=Reply(text=GOOD_SUMMARY), window_tokens=4_200)
    agent = summarised(fallback_chain=(route(THIRD, context_length=4_200),))
    assert agent.compress().status.value == "committed"
    assert [request.refusal for request in bench.stub.requests_for(THIRD)] == [""] * len(
        bench.stub.requests_for(THIRD)
    )


def test_when_no_summary_route_answers_each_is_named_and_nothing_changes(
    bench: Bench, summarised: Callable[..., AIAgent]
) -> None:
    bench.stub.script([], model=SECOND, then=refusing(401))
    bench.stub.script([], model=THIRD, then=refusing(503))
    agent = summarised(fallback_chain=(route(THIRD),))
    before = bench.store.view("s").messages
    record = agent.compress()
    assert record.status.value == "failed"
    assert f"{SECOND} at {bench.stub.base_url} (auth)" in record.detail
    assert f"{THIRD} at {bench.stub.base_url} (overload)" in record.detail
    assert bench.store.view("s").messages == before


def test_without_a_summary_model_the_main_chain_writes_summaries(bench: Bench) -> None:
    bench.stub.script([], then=refusing(401))
    bench.stub.script([], model=SECOND, then=Reply(text=GOOD_SUMMARY))
    agent = bench.open(route(SECOND))
    agent.pending_messages()
    talk(agent, 6_000)
    assert agent.compress().model == SECOND
    assert agent.chat("hello") == GOOD_SUMMARY
    assert bench.asked == [FIRST, SECOND]


def test_a_window_that_a_summary_overflow_names_is_kept_for_later_processes(
    bench: Bench, summarised: Callable[..., AIAgent]
) -> None:
    bench.stub.script([], model=SECOND, then=Reply(text=GOOD_SUMMARY), window_tokens=4_500)
    agent = summarised(11_000)
    assert agent.summary_client().window_tokens == 16_000
    assert agent.compress().status.value == "committed"
    assert agent.summary_client().window_tokens == 4_500
    later = bench.open_with(summary_settings(bench))
    assert later.summary_client().window_tokens == 4_500
    talk(later, 11_000)
    asked = len(bench.stub.requests)
    assert later.compress().status.value == "committed"
    assert {request.refusal for request in bench.stub.requests[asked:]} == {""}
    assert later.window_tokens == 16_000


def test_a_summary_that_is_declined_is_asked_of_the_next_route_without_a_rest(
    bench: Bench, summarised: Callable[..., AIAgent]
) -> None:
    bench.stub.script([], model=SECOND, then=Reply(text="no", finish="content_filter"))
    bench.stub.script([], model=THIRD, then=Reply(text=GOOD_SUMMARY))
    agent = summarised(fallback_chain=(route(THIRD),))
    assert agent.compress().model == THIRD
    assert agent.summary_client().model == SECOND
    assert "declined to write the summary" in bench.notices[0]


def test_a_stop_during_a_summary_asks_no_other_route(
    bench: Bench, summarised: Callable[..., AIAgent]
) -> None:
    held = threading.Event()
    bench.stub.script([], model=SECOND, then=Reply(before_first_byte_s=math.inf, release=held))
    agent = summarised(fallback_chain=(route(THIRD),))
    done: list[PassRecord] = []
    thread = threading.Thread(target=lambda: done.append(agent.compress()))
    thread.start()
    bench.stub.wait_for_requests(1)
    agent.interrupt()
    thread.join(10)
    assert [record.failure_class for record in done] == ["explicit_interrupt"]
    assert (bench.asked, bench.notices) == ([SECOND], [])
