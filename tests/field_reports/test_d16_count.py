"""D16: a history of any size can be summarised by a summariser of any window."""

from __future__ import annotations

import math

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from agent.base.messages import Message
from agent.sessions.records import PassKind, PassStatus
from agent.testing.builders import assistant, call, result, user
from agent.testing.stub_reply import Reply
from agent.testing.stub_server import StubModelServer
from agent.testing.stub_strict import count_message, count_tokens
from tests.field_reports.harness import (
    SUMMARISER,
    SUMMARY,
    Bench,
    body_text,
    settings_for,
    words,
)

MAIN, SMALL = 100_000, 20_000
TIMES = 3
ROW = 900


@pytest.fixture
def stub():
    with StubModelServer(window_tokens=MAIN) as server:
        server.script([], model=SUMMARISER, then=Reply(text=SUMMARY), window_tokens=SMALL)
        yield server


@pytest.fixture
def bench(stub, open_bench):
    return open_bench(settings_for(stub.base_url, window_tokens=MAIN, context_length=SMALL))


def fact(number: int) -> str:
    return f"FACT-{number:04}-{number * 7919 % 10_007}"


def long_talk(tokens: int) -> list[Message]:
    """Return about `tokens` of answers by the strict count, each with a fact in its middle."""
    messages: list[Message] = []
    used = number = 0
    while used < tokens:
        number += 1
        text = words(ROW, f"answer {number}")
        middle = len(text) // 2
        said = f"{text[:middle]} {fact(number)} {text[middle:]}"
        messages += [user(f"and {number}?"), assistant(said)]
        used += count_message(messages[-1]) + count_message(messages[-2])
    return messages


def check_requests(bench: Bench, size: int) -> None:
    """Check that every summary request fits beside its answer, and that they are few."""
    for request in bench.summary_requests:
        assert request.refusal == ""
        assert count_tokens(request.messages) + request.body["max_tokens"] <= SMALL
    assert len(bench.summary_requests) <= math.ceil(size / SMALL) + 2


@pytest.mark.parametrize("times", [TIMES, 4, 4.7])
def test_d16_a_history_of_several_windows_is_summarised_in_parts(bench, times):
    messages = long_talk(int(times * SMALL))
    bench.fill(messages)
    record = bench.agent.compress()
    assert (record.status, record.kind, record.failure_class) == (
        PassStatus.COMMITTED,
        PassKind.SUMMARY,
        "",
    )
    check_requests(bench, sum(map(count_message, messages)))
    assert len(bench.summary_requests) > 2
    shown = "\n".join(body_text(request) for request in bench.summary_requests)
    covered = [number for number in range(1, len(messages) // 2 + 1) if not kept(bench, number)]
    assert len(covered) > 30
    assert [number for number in covered if fact(number) not in shown] == []
    assert bench.agent.chat("go on") == "ok"
    assert bench.refusals == []


def kept(bench: Bench, number: int) -> bool:
    rows = [row for row in bench.view if row.get("_kind") != "summary"]
    return any(fact(number) in str(row["content"]) for row in rows)


SINGLE: dict[str, list[Message]] = {
    "tool result": [
        assistant(None, call("shell", call_id="c1")),
        result("c1", words(3 * SMALL, "log")),
    ],
    "tool result in Chinese": [
        assistant(None, call("shell", call_id="c1")),
        result("c1", "数据库连接超时的原因并修改配置文件。" * (3 * SMALL // 18)),
    ],
    "request": [user(words(3 * SMALL, "pasted"))],
    "answer": [assistant(words(3 * SMALL, "essay"))],
    "arguments": [
        assistant(None, call("write", {"text": words(3 * SMALL, "file")}, call_id="c1")),
        result("c1", "written"),
    ],
    "one round of results": [
        assistant(None, *(call("read", call_id=f"c{n}") for n in range(6))),
        *(result(f"c{n}", words(SMALL // 2, f"file {n}")) for n in range(6)),
    ],
}


@pytest.mark.parametrize("single", SINGLE.values(), ids=SINGLE)
def test_d16_one_row_of_three_windows_is_no_obstacle(bench, single):
    bench.fill([user("begin"), *single, assistant("done"), user("and then?")])
    bench.fill([assistant("then " + words(300, "then"))])
    bench.compressor.tail_token_budget = 500
    record = bench.agent.compress()
    assert record.status is PassStatus.COMMITTED
    check_requests(bench, 3 * SMALL)
    assert bench.agent.chat("go on") == "ok"
    assert len(bench.main_requests[-1].raw) < 4 * SMALL
    assert bench.refusals == []


@pytest.mark.parametrize("fill", [0.999, 1.3])
def test_d16_a_history_that_fills_the_main_window_is_compacted_before_it_is_sent(bench, fill):
    messages = long_talk(int(fill * MAIN) - ROW)
    bench.fill(messages)
    rest = int(fill * MAIN) - sum(map(count_message, messages)) - 8
    if rest > 0:
        bench.fill([user(words(rest, "rest"))])
    assert sum(map(count_message, bench.view)) == pytest.approx(fill * MAIN, rel=0.01)
    assert bench.agent.chat("go on") == "ok"
    [record] = bench.passes
    assert (record.status, record.kind) == (PassStatus.COMMITTED, PassKind.SUMMARY)
    assert record.trigger == "turn_start_threshold"
    check_requests(bench, int(fill * MAIN))
    assert len(bench.main_requests) == 1
    assert bench.refusals == []


WINDOWS = [4_096, 6_000, 8_192, 20_000, 100_000]


@pytest.mark.parametrize("window", WINDOWS)
@given(sizes=st.lists(st.sampled_from([5, 200, 2_000, 15_000]), min_size=2, max_size=8))
@settings(
    max_examples=math.ceil(settings().max_examples / (3 * len(WINDOWS))),
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
def test_d16_no_window_is_too_small_and_no_mix_of_rows_too_large(stub, open_bench, window, sizes):
    stub.script([], model=SUMMARISER, then=Reply(text=SUMMARY), window_tokens=window)
    bench = open_bench(
        settings_for(stub.base_url, window_tokens=MAIN, context_length=window),
        session_id=f"s{len(stub.requests)}",
    )
    seen = len(bench.summary_requests)
    for number, size in enumerate(sizes):
        bench.fill([user(f"request {number}"), assistant(words(size, f"answer {number}"))])
    bench.compressor.tail_token_budget = 1
    record = bench.agent.compress()
    assert record.status in (PassStatus.COMMITTED, PassStatus.ABORTED)
    requests = bench.summary_requests[seen:]
    assert [request.refusal for request in requests if request.refusal] == []
    for request in requests:
        assert count_tokens(request.messages) + request.body["max_tokens"] <= window
    assert bench.agent.chat("go on") == "ok"


def test_d16_a_summarisers_window_is_learned_from_its_first_refusal(stub, open_bench):
    """The settings name no window, so one request is refused; later passes know better."""
    bench = open_bench(settings_for(stub.base_url, window_tokens=MAIN))
    for _ in range(3):
        bench.fill(long_talk(2 * SMALL))
        bench.compressor.tail_token_budget = 500
        assert bench.agent.compress().status is PassStatus.COMMITTED
        refused = [request for request in bench.summary_requests if request.refusal]
        assert len(refused) == 1
    assert len(bench.summary_requests) > 4
