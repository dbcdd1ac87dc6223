"""D02: overflow, compact, retry, overflow: the circle ends after a few rounds, with the figures."""

from __future__ import annotations

import pytest

from agent.base.errors import ContextCannotFit
from agent.base.events import ErrorRaised, TurnFinished
from agent.base.settings import CompressionSettings
from agent.sessions.records import PassStatus
from agent.testing.builders import turn
from agent.testing.stub_reply import Reply
from tests.field_reports.harness import (
    SUMMARISER,
    SUMMARY,
    Bench,
    settings_for,
    small_talk,
    texts,
    words,
)

MOST_CYCLES, MOST_CALLS = 3, 8
WINDOW = 32_000

REFUSALS = {
    "bare": Reply(status=400, error="context length exceeded"),
    "coded": Reply(status=400, error={"message": "too big", "code": "context_length_exceeded"}),
    "with figures": Reply(
        status=400,
        error="This model's maximum context length is 9000 tokens. However, your messages "
        "resulted in 9500 tokens.",
    ),
    "with a tiny window": Reply(
        status=400, error="maximum context length is 300 tokens, requested 5000 tokens"
    ),
    "body too large": Reply(status=413, error="request entity too large"),
    "no context": Reply(status=500, error={"message": "exceeds the available context size"}),
}
HISTORIES = {
    "one message": [],
    "talk": small_talk(20, tokens=150),
    "tools": [
        message
        for number in range(12)
        for message in turn(
            f"request {number}: " + words(60), rounds=[{"read_file": words(400, f"file {number}")}]
        )
    ],
}


@pytest.mark.parametrize("refusal", REFUSALS.values(), ids=REFUSALS)
@pytest.mark.parametrize("history", HISTORIES.values(), ids=HISTORIES)
def test_d02_an_endless_overflow_ends_with_the_size_and_the_limit(
    stub, open_bench, history, refusal
):
    stub.script([], then=refusal)
    stub.script([], model=SUMMARISER, then=Reply(text=SUMMARY))
    bench = open_bench(settings_for(stub.base_url, window_tokens=WINDOW))
    accepted = texts(bench.fill(history))
    tokens_before = store_tokens(bench)

    with pytest.raises(ContextCannotFit) as caught:
        bench.agent.chat("the newest request")

    assert caught.value.exit_code == 4
    assert caught.value.needed_tokens > 0
    assert str(caught.value.needed_tokens) in str(caught.value)
    assert str(caught.value.limit_tokens) in str(caught.value)
    assert len(stub.requests) <= MOST_CALLS
    assert len(bench.passes) <= MOST_CYCLES
    assert len(bench.main_requests) <= MOST_CYCLES + 1
    assert {row.status for row in bench.passes} <= {PassStatus.COMMITTED, PassStatus.ABORTED}
    assert texts(bench.rows) == [*accepted, "the newest request"]
    assert store_tokens(bench) <= tokens_before + 20
    assert bench.view[-1]["content"] == "the newest request"
    assert bench.store.check().problems == []
    assert [event.failure_class for event in bench.events if isinstance(event, ErrorRaised)] == [
        "context_cannot_fit"
    ]
    assert [event.stop_reason for event in bench.events if isinstance(event, TurnFinished)] == [
        "error"
    ]
    if history:
        assert bench.committed


def test_d02_a_second_turn_is_bounded_as_well(stub, open_bench):
    stub.script([], then=REFUSALS["bare"])
    stub.script([], model=SUMMARISER, then=Reply(text=SUMMARY))
    bench = open_bench(settings_for(stub.base_url, window_tokens=WINDOW))
    bench.fill(HISTORIES["talk"])
    for number in range(1, 4):
        before = len(stub.requests)
        with pytest.raises(ContextCannotFit):
            bench.agent.chat(f"try {number}")
        assert len(stub.requests) - before <= MOST_CALLS


def test_d02_when_one_pass_helps_the_turn_goes_on(stub, open_bench):
    """The provider's window is far smaller than the settings say."""
    stub.script([], then=Reply(text="at last"), window_tokens=3_000)
    stub.script([], model=SUMMARISER, then=Reply(text=SUMMARY), window_tokens=WINDOW)
    bench = open_bench(settings_for(stub.base_url, window_tokens=WINDOW))
    bench.fill(HISTORIES["talk"])
    assert bench.agent.chat("the newest request") == "at last"
    assert len(bench.committed) == 1
    assert len(bench.main_requests) == 2
    assert len(bench.summary_requests) == 1
    assert bench.agent.chat("and another") == "at last"
    assert len(bench.main_requests) == 3


def test_d02_an_overflow_with_compaction_off_ends_at_once(stub, open_bench):
    stub.script([], then=REFUSALS["bare"])
    settings = settings_for(
        stub.base_url, window_tokens=WINDOW, compression=CompressionSettings(enabled=False)
    )
    bench = open_bench(settings)
    bench.fill(HISTORIES["talk"])
    before = bench.state
    with pytest.raises(ContextCannotFit, match="compression.enabled"):
        bench.agent.chat("the newest request")
    assert len(stub.requests) == 1
    assert bench.passes == []
    assert bench.state["view"][:-1] == before["view"]


def store_tokens(bench: Bench) -> int:
    return bench.store.view("s").tokens
