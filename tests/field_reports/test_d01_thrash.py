"""D01: a pass that removes almost nothing is not tried again and again."""

from __future__ import annotations

import pytest

from agent.base.settings import CompressionSettings
from agent.sessions.records import PassKind, PassStatus
from agent.testing.stub_reply import Reply
from agent.testing.stub_server import StubModelServer
from agent.testing.stub_strict import count_tokens
from agent.tools.protocol import Access, Tool
from tests.field_reports.harness import SUMMARISER, SUMMARY, settings_for, words

WINDOW, TRIGGER, OVERHEAD = 10_000, 5_000, 6_000
RESERVE = 1_250


@pytest.fixture
def stub():
    with StubModelServer(window_tokens=WINDOW) as server:
        yield server


def heavy_tools() -> list[Tool]:
    """Return tools whose schemas alone take about `OVERHEAD` tokens."""
    return [
        Tool(
            name=f"tool_{number}",
            description=words(OVERHEAD // 10 - 40, f"tool {number}"),
            parameters={"type": "object", "properties": {}},
            access=Access.READ,
            run=lambda _arguments, _context: "done",
            describe=lambda _arguments: "nothing",
        )
        for number in range(10)
    ]


@pytest.fixture
def open_heavy(stub, open_bench):
    settings = settings_for(
        stub.base_url,
        window_tokens=WINDOW,
        output_tokens=RESERVE,
        compression=CompressionSettings(threshold=TRIGGER / (WINDOW - RESERVE)),
    )
    return lambda: open_bench(settings, tools=heavy_tools())


def test_d01_a_useless_pass_runs_twice_then_stops_with_one_notice(stub, store, open_heavy):
    stub.script([], model=SUMMARISER, then=Reply(text="ok"))
    bench = open_heavy()
    said = []
    for number in range(6):
        request = f"short question {number}"
        assert bench.agent.chat(request) == "ok"
        said += [{"role": "user", "content": request}, {"role": "assistant", "content": "ok"}]

    first = bench.main_requests[0]
    assert count_tokens(first.messages, first.body["tools"]) == pytest.approx(OVERHEAD, rel=0.05)
    assert bench.agent.trigger_tokens == pytest.approx(TRIGGER, abs=1)
    assert len(bench.main_requests) == 6
    assert 1 <= len(bench.passes) <= 2
    assert len(bench.summary_requests) <= 2
    assert bench.committed == []
    assert bench.rows == said
    assert [row["_seq"] for row in bench.view] == list(range(1, 13))
    assert bench.store.head("s").generation == 0
    assert [record.id for record in store.sessions()] == ["s"]
    assert bench.cooldown["failure_class"] == "ineffective"
    assert [text for text in bench.notices if "ineffective" in text] == bench.notices
    assert len(bench.notices) == 1
    assert bench.refusals == []


def test_d01_the_brake_holds_in_a_new_process(stub, store, open_heavy):
    stub.script([], model=SUMMARISER, then=Reply(text="ok"))
    before = open_heavy()
    for number in range(3):
        before.agent.chat(f"short question {number}")
    assert len(before.passes) == 2
    after = open_heavy()
    for number in range(3):
        after.agent.chat(f"later question {number}")
    assert len(after.passes) == 2
    assert after.endings == []
    blocked = store.passes("s")[-1]
    assert (blocked.status, blocked.failure_class) == (PassStatus.BLOCKED, "blocked:ineffective")


@pytest.mark.parametrize("tokens", [20, 300, 800], ids=["tiny", "short", "long"])
def test_d01_good_summaries_that_cannot_bring_the_request_under_the_trigger_stop_too(
    stub, open_heavy, tokens
):
    """The messages are not the trouble: even an empty history would be above the trigger."""
    stub.script([], model=SUMMARISER, then=Reply(text=SUMMARY))
    bench = open_heavy()
    for number in range(6):
        assert bench.agent.chat(words(tokens, f"question {number}")) == "ok"
    assert len(bench.main_requests) == 6
    assert 1 <= len([row for row in bench.passes if row.kind is not PassKind.MECHANICAL]) <= 2
    assert len(bench.passes) <= 6
    assert len(bench.summary_requests) <= 2
    assert bench.cooldown["failure_class"] == "ineffective"
    assert 1 <= len(bench.notices) <= 2
    assert all("ineffective" in text for text in bench.notices)
    assert bench.refusals == []


def test_d01_while_the_brake_runs_a_request_that_would_not_fit_gets_a_digest_without_a_model(
    stub, open_heavy
):
    stub.script([], model=SUMMARISER, then=Reply(text="ok"))
    bench = open_heavy()
    for number in range(12):
        assert bench.agent.chat(words(300, f"question {number}")) == "ok"
    assert len(bench.main_requests) == 12
    assert len(bench.summary_requests) <= 2
    assert [row.kind for row in bench.committed] == [PassKind.MECHANICAL] * len(bench.committed)
    assert 1 <= len(bench.committed) <= 3
    assert len(bench.rows) == 24
    assert bench.refusals == []


def test_d01_a_mask_that_frees_next_to_nothing_is_not_repeated(stub, store, open_heavy):
    """Each turn brings a tool result that can be masked: a pass that 'did something' each time."""
    bench = open_heavy()
    call = {"id": "c1", "type": "function", "function": {"name": "tool_1", "arguments": "{}"}}

    def answer(request):
        if request.messages[-1]["role"] == "user":
            return Reply(text=None, tool_calls=[call])
        return Reply(text="looked")

    stub.script(answer)
    stub.script([], model=SUMMARISER, then=Reply(text="ok"))
    for number in range(6):
        assert bench.agent.chat(f"look at {number}: " + words(100)) == "looked"
    assert len(bench.passes) <= 2
    assert bench.cooldown["failure_class"] == "ineffective"
    assert bench.refusals == []
