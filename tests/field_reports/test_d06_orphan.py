"""D06: wherever a cut falls, each call in a request has its result and each result its call."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from agent.base.messages import Message, call_ids
from agent.sessions.records import PassKind, PassStatus
from agent.testing.builders import assistant, call, result, user
from agent.testing.stub_reply import RecordedRequest, Reply
from agent.tools.runner import INTERRUPTED
from tests.field_reports.harness import (
    SUMMARISER,
    SUMMARY,
    Bench,
    roles,
    settings_for,
    texts,
    words,
)

WINDOW = 40_000
_sessions = itertools.count(1)


def history(*, aborted: str = "") -> list[Message]:
    """Return the rows of the report, each of about 150 tokens; `aborted` names a stopped call."""

    def output(call_id: str) -> Message:
        text = INTERRUPTED if call_id == aborted else f"output of {call_id}: " + words(150, call_id)
        return result(call_id, text)

    return [
        user("request 1: " + words(150, "one")),
        assistant("looking " + words(150, "two"), call("read", {"n": 1}, call_id="t1")),
        output("t1"),
        user("request 2: " + words(150, "three")),
        assistant(
            "looking twice " + words(150, "four"),
            call("read", {"n": 2}, call_id="t2"),
            call("read", {"n": 3}, call_id="t3"),
        ),
        output("t2"),
        output("t3"),
        assistant("answer: " + words(150, "five")),
        user("request 3: " + words(150, "six")),
    ]


CUTS = range(1, len(history()) + 1)
CALLS = {1: 1, 4: 2}
"""Rows of the history that make calls, and how many results follow."""
ABORTED = ["", "t2"]


def pairs_of(request: RecordedRequest) -> tuple[list[str], list[str]]:
    """Return the ids of calls and of results in a request, sorted."""
    calls = [call_id for message in request.messages for call_id in call_ids(message)]
    results = [str(m["tool_call_id"]) for m in request.messages if m["role"] == "tool"]
    return sorted(calls), sorted(results)


def cut_before(bench: Bench, index: int) -> None:
    """Give the tail just the room that the rows from `index` on take."""
    tokens = [row["_tokens"] for row in bench.view]
    bench.compressor.tail_token_budget = sum(tokens[index:])


def use_blind_engine(bench: Bench, index: int) -> None:
    """Make the engine cut before `index` without a look at what it cuts through."""

    def compress(rows: list[Message], **_options: Any) -> Sequence[Message]:
        return [user("notes on the rows before"), *rows[index:]]

    bench.compressor.compress = compress


@pytest.fixture
def open_cut(stub, open_bench):
    stub.script([], model=SUMMARISER, then=Reply(text=SUMMARY))

    def open_one(messages):
        setup = settings_for(stub.base_url, window_tokens=WINDOW)
        bench = open_bench(setup, session_id=f"s{next(_sessions)}")
        bench.fill(messages)
        return bench

    return open_one


@pytest.mark.parametrize("aborted", ABORTED, ids=lambda name: name or "none aborted")
@pytest.mark.parametrize("index", CUTS)
def test_d06_a_cut_before_any_row_gives_a_request_that_a_strict_provider_answers(
    open_cut, index, aborted
):
    bench = open_cut(history(aborted=aborted))
    given_rows = bench.rows
    cut_before(bench, index)
    record = bench.agent.compress()
    assert (record.status, record.kind) == (PassStatus.COMMITTED, PassKind.SUMMARY)
    assert len(bench.summary_requests) == 1
    split = next((at for at in (1, 4) if at < index <= at + CALLS[at]), None)
    start = index if split is None else split + CALLS[split] + 1
    if index > 1:  # a first request alone is nothing to summarise, so that cut moves on
        tail = texts(given_rows[start:])
        assert texts(bench.view)[len(bench.view) - len(tail) :] == tail
    assert record.receipt["covered"]
    assert bench.agent.chat("go on") == "ok"
    calls, results = pairs_of(bench.main_requests[-1])
    assert calls == results
    assert bench.refusals == []
    assert texts(bench.rows[: len(given_rows)]) == texts(given_rows)


@pytest.mark.parametrize("index", CUTS)
def test_d06_a_blind_engine_is_refused_or_harmless_at_every_cut(open_cut, index):
    """The engine cuts through pairs; what would break one is refused, the rest is committed."""
    bench = open_cut(history())
    use_blind_engine(bench, index)
    record = bench.agent.compress()
    broken = roles(history())[index:][:1] == ["tool"]
    lost_request = index == len(history())
    if broken or lost_request:
        reason = "request_lost" if lost_request else "pairing_broken"
        assert (record.status, record.failure_class) == (PassStatus.ABORTED, reason)
    else:
        assert record.status is PassStatus.COMMITTED
    assert bench.agent.chat("go on") == "ok"
    calls, results = pairs_of(bench.main_requests[-1])
    assert calls == results
    assert bench.refusals == []


# -- any history --------------------------------------------------------------------------------
def rounds() -> st.SearchStrategy[list[Message]]:
    """One round of parallel calls: results in any order, some of them missing or aborted."""
    answers = st.sampled_from(["whole", "aborted", "missing"])
    return st.lists(answers, min_size=1, max_size=3).flatmap(
        lambda kinds: st.permutations(range(len(kinds))).map(lambda order: _round(kinds, order))
    )


def _round(kinds: Sequence[str], order: Sequence[int]) -> list[Message]:
    """Ids repeat from round to round, as those of some servers do."""
    calls = [call("read", {"n": n}, call_id=f"call_{n}") for n in range(len(kinds))]
    given = [
        result(calls[n], words(90, f"out {n}") if kinds[n] == "whole" else INTERRUPTED)
        for n in order
        if kinds[n] != "missing"
    ]
    return [assistant(words(40, "plan"), *calls), *given]


turns = st.lists(
    st.tuples(st.integers(1, 200), st.lists(rounds(), max_size=3), st.booleans()),
    min_size=2,
    max_size=5,
)


@given(turns=turns, cuts=st.lists(st.floats(0, 1), min_size=1, max_size=3), blind=st.booleans())
@settings(
    max_examples=settings().max_examples // 2,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
def test_d06_any_history_stays_valid_through_passes_at_any_cut(open_cut, turns, cuts, blind):
    messages: list[Message] = []
    for number, (size, made, answered) in enumerate(turns):
        messages.append(user(f"request {number}: " + words(size, f"topic {number}")))
        for each in made:
            messages.extend(each)
        if answered:
            messages.append(assistant("answer " + words(60, f"answer {number}")))
    bench = open_cut(messages)
    before = len(bench.stub.requests)
    for cut in cuts:
        index = int(cut * len(bench.view))
        if blind:
            use_blind_engine(bench, index)
        else:
            cut_before(bench, index)
        bench.agent.compress()
        assert bench.agent.chat("go on") == "ok"
        calls, results = pairs_of(bench.main_requests[-1])
        assert calls == results
    assert len(bench.main_requests) >= len(cuts)
    assert len(bench.passes) == len(cuts)
    assert [request.refusal for request in bench.stub.requests[before:] if request.refusal] == []
    assert bench.store.check().problems == []
