"""D07: a call whose process died before its result came is told of once and never run again."""

from __future__ import annotations

import pytest

from agent.base.messages import Message, call_ids
from agent.testing.builders import assistant, call, result, user
from agent.testing.stub_reply import RecordedRequest, Reply
from agent.tools.protocol import Access, Tool
from agent.turn.request import LOST_RESULT
from tests.field_reports.harness import SUMMARISER, SUMMARY, settings_for, small_talk, words

WINDOW = 40_000

TAILS: dict[str, list[Message]] = {
    "one call": [user("do it"), assistant(None, call("act", call_id="t9"))],
    "one call with text": [user("do it"), assistant("I begin.", call("act", call_id="t9"))],
    "two calls, one result": [
        user("do it"),
        assistant(None, call("act", call_id="t8"), call("act", call_id="t9")),
        result("t8", "done " + words(50)),
    ],
    "the second of two results only": [
        user("do it"),
        assistant(None, call("act", call_id="t9"), call("act", call_id="t8")),
        result("t8", "done"),
    ],
    "a message came after it": [
        user("do it"),
        assistant(None, call("act", call_id="t9")),
        user("are you there?"),
    ],
    "an answer came after it": [
        user("do it"),
        assistant(None, call("act", call_id="t9")),
        user("are you there?"),
        assistant("yes"),
    ],
}


@pytest.fixture
def open_after_crash(stub, open_bench):
    """A bench on a session that another process left, and the list of the calls that were run."""

    def open_one(messages):
        stub.script([], model=SUMMARISER, then=Reply(text=SUMMARY))
        runs = []

        def act(_arguments, _context):
            runs.append("act")
            return "done"

        tool = Tool(
            name="act",
            description="Does something that must not be done twice.",
            parameters={"type": "object", "properties": {}},
            access=Access.EXECUTE,
            run=act,
            describe=lambda _arguments: "act",
        )
        bench = open_bench(settings_for(stub.base_url, window_tokens=WINDOW), tools=[tool])
        bench.fill(messages)
        return bench, runs

    return open_one


def results_of(request: RecordedRequest, call_id: str) -> list[str]:
    return [m["content"] for m in request.messages if m.get("tool_call_id") == call_id]


@pytest.mark.parametrize("compacted", [True, False], ids=["compacted", "as it was"])
@pytest.mark.parametrize("tail", TAILS.values(), ids=TAILS)
def test_d07_a_call_without_result_gets_one_synthetic_result_and_is_not_run_again(
    open_after_crash, tail, compacted
):
    bench, runs = open_after_crash([*small_talk(4, tokens=200), *tail])
    stored = bench.rows
    if compacted:
        bench.agent.compress()
        assert len(bench.committed) == 1
        assert len(bench.summary_requests) == 1
    for text in ("what happened?", "and now?"):
        assert bench.agent.chat(text) == "ok"
        request = bench.main_requests[-1]
        ids = [call_id for message in request.messages for call_id in call_ids(message)]
        answered = [m["tool_call_id"] for m in request.messages if m["role"] == "tool"]
        assert sorted(ids) == sorted(answered)
        if "t9" in ids:
            assert results_of(request, "t9") == [LOST_RESULT]
    assert runs == []
    assert bench.refusals == []
    assert bench.rows[: len(stored)] == stored
    assert [row for row in bench.rows if row["role"] == "tool" and row not in stored] == []


def test_d07_the_tail_keeps_the_open_call_in_view_after_a_pass(open_after_crash):
    bench, _runs = open_after_crash([*small_talk(4, tokens=200), *TAILS["one call"]])
    bench.compressor.tail_token_budget = 1
    bench.agent.compress()
    assert len(bench.committed) == 1
    bench.agent.chat("what happened?")
    assert results_of(bench.main_requests[-1], "t9") == [LOST_RESULT]
    assert bench.refusals == []


def test_d07_several_passes_later_the_call_is_still_told_of_or_summarised(open_after_crash):
    bench, runs = open_after_crash([*small_talk(4, tokens=200), *TAILS["one call"]])
    for number in range(3):
        bench.agent.chat(f"go on {number}: " + words(200, f"more {number}"))
        bench.agent.compress()
    bench.agent.chat("last")
    assert len(bench.committed) == 3
    assert any("t9" in str(r.messages) or "act" in str(r.messages) for r in bench.summary_requests)
    assert runs == []
    assert bench.refusals == []
