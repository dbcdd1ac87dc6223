"""D08: whatever stands beside a summary, roles alternate and there is one summary in a request."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from agent.base.messages import Message, text_of
from agent.sessions.records import PassStatus
from agent.testing.builders import assistant, call, result, user
from agent.testing.stub_reply import Reply
from agent.tools.protocol import Access, Tool
from tests.field_reports.harness import (
    SUMMARISER,
    SUMMARY_OPENING,
    Bench,
    body_text,
    roles,
    settings_for,
    texts,
    words,
)

WINDOW = 12_000
_sessions = itertools.count(1)
_summaries = itertools.count(1)

SEAMS: dict[str, list[Message]] = {
    "user": [user("tail request " + words(60, "tail 1")), assistant("tail answer")],
    "assistant": [assistant("tail answer " + words(60, "tail 2"))],
    "tool": [
        assistant(None, call("look", call_id="k1")),
        result("k1", "tail output " + words(60, "tail 3")),
        assistant("tail answer"),
    ],
    "tool at the very end": [
        assistant(None, call("look", call_id="k1")),
        result("k1", "tail output " + words(60, "tail 3")),
    ],
    "two requests": [user("tail request"), user("tail request again"), assistant("tail answer")],
    "nothing": [],
}


def numbered_summary() -> str:
    """Return a summary that no other pass of the test writes."""
    return f"## State\nNotes number {next(_summaries)}: " + words(150, "what was done")


def look(_arguments, _context):
    return "seen: " + words(700, "view")


LOOK = Tool(
    name="look",
    description="Looks.",
    parameters={"type": "object", "properties": {}},
    access=Access.READ,
    run=look,
    describe=lambda _arguments: "look",
)


@pytest.fixture
def open_seam(stub, open_bench):
    stub.script(lambda _request: Reply(text=numbered_summary()), model=SUMMARISER)

    def open_one(tail=()):
        setup = settings_for(stub.base_url, window_tokens=WINDOW)
        bench = open_bench(setup, tools=[LOOK], session_id=f"s{next(_sessions)}")
        bench.fill([user("old request " + words(300)), assistant("old answer " + words(300))])
        rows = bench.fill(tail)
        bench.compressor.tail_token_budget = sum(row["_tokens"] for row in rows) + 40
        return bench

    return open_one


def check_request(bench: Bench, newest: str) -> None:
    """Check the newest request, and that no stored row glues a user's text to a summary's."""
    request = bench.main_requests[-1]
    assert request.refusal == ""
    text = body_text(request)
    assert text.count(SUMMARY_OPENING) == 1
    summaries = [row for row in bench.view if row.get("_kind") == "summary"]
    assert [text.count(text_of(row["content"])) for row in summaries] == [1]
    users = [message for message in request.messages if message["role"] == "user"]
    assert text_of(users[-1]["content"]).endswith(newest)
    assert text.count(newest) == 1
    requests = [text_of(row["content"]) for row in bench.rows if row["role"] == "user"]
    assert not [row for row in summaries for said in requests if said in text_of(row["content"])]
    assert not [said for said in requests if "Notes number" in said]


@pytest.mark.parametrize("passes", [1, 3])
@pytest.mark.parametrize("tail", SEAMS.values(), ids=SEAMS)
def test_d08_roles_alternate_after_passes_at_the_start_of_a_turn(stub, open_seam, tail, passes):
    stub.script([], then=Reply(usage=None))
    bench = open_seam(tail)
    for number in range(passes):
        bench.compressor.threshold_tokens = 1
        newest = f"newest request {number}: " + words(200, f"turn {number}")
        assert bench.agent.chat(newest) == "ok"
        bench.compressor.threshold_tokens = WINDOW
        assert len(bench.committed) == number + 1
        record = bench.committed[-1]
        assert (record.trigger, record.failure_class) == ("turn_start_threshold", "")
        check_request(bench, newest)
    assert len(bench.summary_requests) == passes
    assert bench.refusals == []


@pytest.mark.parametrize("passes", [1, 3])
@pytest.mark.parametrize("tail", SEAMS.values(), ids=SEAMS)
def test_d08_roles_alternate_after_passes_in_mid_loop(stub, open_seam, tail, passes):
    bench = open_seam(tail)
    compressor = bench.compressor
    compressor.threshold_tokens = WINDOW
    looks = 0

    def answer(request):
        nonlocal looks
        if looks < passes and request.messages[-1]["role"] in ("user", "tool"):
            looks += 1
            compressor.threshold_tokens = 1
            calls = [call("look", call_id=f"m{looks}")]
            return Reply(text=f"look {looks}", tool_calls=calls, usage=None)
        compressor.threshold_tokens = WINDOW
        return Reply(text="done", usage=None)

    stub.script(answer)
    assert bench.agent.chat("newest request") == "done"
    assert [row.failure_class for row in bench.committed] == [""] * passes
    assert [row.trigger for row in bench.committed] == ["post_tool"] * passes
    assert len(bench.summary_requests) == passes
    assert len(bench.main_requests) == passes + 1
    check_request(bench, "newest request")
    assert roles(bench.main_requests[-1].messages)[-1] == "tool"
    assert bench.refusals == []


rows = st.sampled_from(["user", "assistant", "tool", "pass"])


@given(script=st.lists(rows, min_size=2, max_size=14))
@settings(
    max_examples=settings().max_examples // 2,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
def test_d08_any_order_of_rows_and_passes_gives_a_request_that_is_answered(open_seam, script):
    bench = open_seam()
    for number, kind in enumerate(script):
        if kind == "pass":
            bench.agent.compress()
        elif kind == "tool":
            made = call("look", call_id=f"r{number}")
            bench.fill([assistant(None, made), result(made, f"output {number} " + words(40))])
        else:
            bench.fill([{"role": kind, "content": f"{kind} {number} " + words(40)}])
    assert {row.status for row in bench.passes} <= {PassStatus.COMMITTED, PassStatus.ABORTED}
    assert bench.agent.chat("the newest request") == "ok"
    request = bench.main_requests[-1]
    assert request.refusal == ""
    assert body_text(request).count(SUMMARY_OPENING) == min(1, len(bench.committed))
    assert texts(request.messages)[-1].endswith("the newest request")
