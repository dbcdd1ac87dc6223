"""D12: after a pass the agent works on the newest request, not on those it finished long ago."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from agent.base.messages import text_of
from agent.testing.builders import assistant, call, turn, user
from agent.testing.stub_reply import RecordedRequest, Reply
from agent.tools.protocol import Access, Tool
from agent.turn.framing import ANSWER_NEXT, DEALT_WITH, RESTATED
from tests.field_reports.harness import (
    SUMMARISER,
    SUMMARY,
    SUMMARY_OPENING,
    roles,
    settings_for,
    words,
)

WINDOW = 16_000
ROUNDS = 10
MAKE_A = "make A: write the file alpha.txt"
MAKE_B = "make B: write the file beta.txt"
EXPLAIN_C = "explain C:\n  what does gamma.txt say?\n\n(briefly, please)  "
_sessions = itertools.count(1)


def view_file(_arguments, _context):
    return "seen"


VIEW = Tool(
    name="view",
    description="Views.",
    parameters={"type": "object", "properties": {}},
    access=Access.READ,
    run=view_file,
    describe=lambda _arguments: "view",
)


@pytest.fixture
def open_task(stub, open_bench):
    stub.script([], model=SUMMARISER, then=Reply(text=SUMMARY))

    def open_one(messages):
        setup = settings_for(stub.base_url, window_tokens=WINDOW)
        bench = open_bench(setup, tools=[VIEW], session_id=f"s{next(_sessions)}")
        bench.fill(messages)
        return bench

    return open_one


def sections_of(request: RecordedRequest) -> tuple[str, str, str]:
    """Return (summary text, what is listed as dealt with, what follows the frame)."""
    [carrier] = [
        text_of(message["content"])
        for message in request.messages
        if SUMMARY_OPENING in text_of(message["content"])
    ]
    assert "It is reference, not instruction" in carrier
    mark = RESTATED if RESTATED in carrier else ANSWER_NEXT
    framed, following = carrier.split(mark)
    summary, _, done = framed.partition(DEALT_WITH)
    return summary, done, following


def look(number: int) -> Reply:
    """Return a round whose bulk is the assistant's own text, which no mask takes away."""
    return Reply(text=words(1_300, f"look {number}"), tool_calls=[call("view")])


def looks(count: int) -> list[Reply]:
    return [look(number) for number in range(count)]


def test_d12_the_running_request_is_restated_and_the_finished_ones_are_marked_done(stub, open_task):
    bench = open_task([*turn(MAKE_A, "A is made."), *turn(MAKE_B, "B is made.")])
    stub.script([*looks(ROUNDS), Reply(text="C explained")])
    assert bench.agent.chat(EXPLAIN_C) == "C explained"

    assert len(bench.main_requests) == ROUNDS + 1
    assert bench.committed
    assert {row.trigger for row in bench.committed} == {"post_tool"}
    assert bench.summary_requests
    request = bench.main_requests[-1]
    newest_summary = max(i for i, row in enumerate(bench.view) if row.get("_kind") == "summary")
    assert set(roles(bench.view[newest_summary + 1 :])) == {"assistant", "tool"}
    summary, done, following = sections_of(request)
    assert SUMMARY in summary
    assert MAKE_A in done
    assert MAKE_B in done
    assert following.endswith(EXPLAIN_C)
    whole = "\n".join(text_of(message["content"]) for message in request.messages)
    assert [whole.count(text) for text in (MAKE_A, MAKE_B, EXPLAIN_C)] == [1, 1, 1]
    assert bench.refusals == []


def test_d12_once_answered_the_request_is_dealt_with_too(stub, open_task):
    bench = open_task([*turn(MAKE_A, "A is made."), *turn(MAKE_B, "B is made.")])
    stub.script([*looks(ROUNDS), Reply(text="C explained")])
    bench.agent.chat(EXPLAIN_C)
    assert bench.agent.chat("now D") == "ok"
    _summary, done, following = sections_of(bench.main_requests[-1])
    assert all(text in done for text in (MAKE_A, MAKE_B, EXPLAIN_C.strip()))
    assert not any(text in following for text in (MAKE_A, MAKE_B, "explain C"))
    assert text_of(bench.main_requests[-1].messages[-1]["content"]) == "now D"


def test_d12_a_message_sent_meanwhile_is_a_request_in_progress_as_well(stub, open_task):
    bench = open_task([*turn(MAKE_A, "A is made."), *turn(MAKE_B, "B is made.")])

    def answer(request):
        rounds = len(bench.main_requests)
        if rounds == 2:
            bench.agent.submit("and mind the margins")
        if rounds <= ROUNDS:
            return look(rounds)
        return Reply(text="C explained")

    stub.script(answer)
    assert bench.agent.chat(EXPLAIN_C) == "C explained"
    assert bench.committed
    _summary, done, following = sections_of(bench.main_requests[-1])
    assert MAKE_A in done
    assert following.strip().startswith(EXPLAIN_C.strip())
    assert following.endswith("and mind the margins")


def test_d12_a_digest_without_a_model_is_framed_the_same_way(stub, open_task):
    stub.script([], model=SUMMARISER, then=Reply(text="too short"))
    bench = open_task([*turn(MAKE_A, "A is made."), *turn(MAKE_B, "B is made.")])
    stub.script([*looks(ROUNDS), Reply(text="C explained")])
    bench.agent.chat(EXPLAIN_C)
    assert "mechanical" in {str(row.kind) for row in bench.committed}
    _summary, done, following = sections_of(bench.main_requests[-1])
    assert MAKE_A in done
    assert MAKE_B in done
    assert following.endswith(EXPLAIN_C)


@given(
    done=st.integers(0, 5),
    rounds=st.integers(0, 4),
    tail=st.integers(0, 4_000),
    passes=st.integers(1, 2),
)
@settings(
    max_examples=settings().max_examples // 2,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
def test_d12_wherever_the_tail_begins_the_newest_request_is_the_last_user_text(
    stub, open_task, done, rounds, tail, passes
):
    finished = [f"finished request {number}" for number in range(done)]
    history = [message for text in finished for message in turn(text, "done: " + words(300, text))]
    history.append(user("the request in work"))
    for number in range(rounds):
        made = call("view", call_id=f"c{number}")
        history.append(assistant(f"look {number}", made))
        history.append({"role": "tool", "tool_call_id": made["id"], "content": words(300)})
    bench = open_task(history)
    bench.compressor.tail_token_budget = tail
    for _ in range(passes):
        bench.agent.compress()
    before = len(bench.main_requests)
    bench.agent.chat("go on with it")
    request = bench.main_requests[before]
    assert request.refusal == ""
    last = [message for message in request.messages if message["role"] == "user"][-1]
    assert text_of(last["content"]).endswith("go on with it")
    if bench.committed:
        _summary, listed, following = sections_of(request)
        assert not any(text in following for text in finished if text in listed)
