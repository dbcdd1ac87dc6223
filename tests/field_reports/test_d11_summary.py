"""D11: when no summary can be had nothing is dropped, and everybody is told the real cause."""

from __future__ import annotations

import socket

import orjson
import pytest

from agent.base.events import CompactionFinished, Notice
from agent.base.messages import wire_message
from agent.sessions.records import PassKind, PassStatus
from agent.testing.builders import call
from agent.testing.stub_reply import Reply
from agent.testing.stub_server import DEFAULT_MODEL, StubModelServer
from agent.tools.protocol import Access, Tool
from tests.field_reports.harness import SUMMARISER, SUMMARY, body_text, settings_for, words

WINDOW, FULL, OVER = 8_000, 5_500, 7_500

RETRIED = 2
ACCESS, BUSY = "summary_auth_failure", "summary_overload_failure"
NETWORK, REFUSED = "summary_network_failure", "summary_generation_failed"

FAULTS = {
    "401": (Reply(status=401, error="invalid api key"), ACCESS, 1, ("401", "invalid api key")),
    "402": (Reply(status=402, error="no credit left"), ACCESS, 1, ("402", "no credit left")),
    "403": (Reply(status=403, error="not your model"), ACCESS, 1, ("403", "not your model")),
    "404": (Reply(status=404, error="no such model"), REFUSED, 1, ("404", "no such model")),
    "400": (Reply(status=400, error="bad field"), REFUSED, 1, ("400", "bad field")),
    "429": (Reply(status=429, error="slow down"), BUSY, RETRIED, ("429", "slow down")),
    "429 for the month": (
        Reply(status=429, error={"message": "quota exceeded", "code": "insufficient_quota"}),
        ACCESS,
        1,
        ("429", "quota exceeded"),
    ),
    "500": (Reply(status=500, error="it broke"), BUSY, RETRIED, ("500", "it broke")),
    "529": (Reply(status=529, error="overloaded"), BUSY, RETRIED, ("529", "overloaded")),
    "reset mid body": (Reply(text=SUMMARY, reset_after_chars=100), NETWORK, 1, ()),
    "reset mid body, in one piece": (
        Reply(text=SUMMARY, reset_after_chars=100, ignore_stream=True),
        NETWORK,
        1,
        (),
    ),
    "no JSON": (Reply(raw_body=b"<html>gateway</html>"), NETWORK, 1, ("gateway",)),
    "content filter": (
        Reply(text="I will not.", finish="content_filter"),
        "summary_generation_aborted",
        1,
        ("declined",),
    ),
}
EVERY_FAULT = pytest.mark.parametrize(
    ("reply", "failure_class", "calls", "cause"), FAULTS.values(), ids=FAULTS
)
NO_RETRY_IN_THE_TURN = ("401", "402", "403", "404")


@pytest.fixture
def bench(stub, open_bench):
    """A bench above the trigger, with a tool so that a turn has several requests."""
    tool = Tool(
        name="look",
        description="Looks.",
        parameters={"type": "object", "properties": {}},
        access=Access.READ,
        run=lambda _arguments, _context: "seen",
        describe=lambda _arguments: "look",
    )
    opened = open_bench(settings_for(stub.base_url, window_tokens=WINDOW), tools=[tool])
    opened.fill_to(FULL)
    return opened


def look_twice(stub: StubModelServer) -> None:
    calls = [Reply(text=None, tool_calls=[call("look")]) for _ in range(2)]
    stub.script([*calls, Reply(text="done")])


@EVERY_FAULT
def test_d11_history_and_request_stay_and_the_cause_is_told(
    stub, bench, reply, failure_class, calls, cause
):
    look_twice(stub)
    stub.script([], model=SUMMARISER, then=reply)
    before = bench.state
    assert bench.agent.chat("the next question") == "done"

    assert len(bench.main_requests) == 3
    assert len(bench.summary_requests) == calls
    [attempt] = bench.passes
    assert (attempt.status, attempt.kind) == (PassStatus.FAILED, PassKind.SUMMARY)
    assert attempt.failure_class == failure_class
    assert attempt.route.startswith(SUMMARISER)
    assert all(word in attempt.detail for word in cause)
    assert bench.view[: len(before["view"])] == before["view"]
    assert bench.store.head("s").generation == 0
    assert [row for row in bench.view if row.get("_kind") not in (None, "message")] == []
    sent = bench.main_requests[0].messages[1:]
    assert sent[:-1] == [wire_message(row) for row in before["view"]]

    failed = [event for event in bench.events if isinstance(event, CompactionFinished)]
    assert [(event.status, event.failure_class) for event in failed] == [("failed", failure_class)]
    notice, *later = [event for event in bench.events if isinstance(event, Notice)]
    assert all("blocked:cooldown" in event.text for event in later)
    assert len(later) <= 1
    assert notice.level == "warning"
    for word in (failure_class, SUMMARISER, bench.stub.base_url, *cause):
        assert word in notice.text
    assert "stub-key" not in notice.text
    assert bench.cooldown["failure_class"] == failure_class
    assert bench.refusals == []


@pytest.mark.parametrize("name", NO_RETRY_IN_THE_TURN)
def test_d11_what_a_retry_cannot_help_is_not_asked_again_in_the_next_turns(stub, bench, name):
    stub.script([], model=SUMMARISER, then=FAULTS[name][0])
    for number in range(3):
        bench.agent.chat(f"question {number}")
    assert len(bench.summary_requests) == 1
    assert len(bench.passes) == 1


def test_d11_five_refusals_as_too_busy_cost_two_calls_a_pass(stub, bench):
    stub.script([FAULTS["429"][0]] * 5, model=SUMMARISER, then=Reply(text=SUMMARY))
    statuses = [bench.agent.compress().status for _ in range(3)]
    assert statuses == [PassStatus.FAILED, PassStatus.FAILED, PassStatus.COMMITTED]
    assert len(bench.summary_requests) == 6


@pytest.mark.parametrize("where", ["unknown name", "closed port"])
def test_d11_a_summariser_that_cannot_be_reached_is_named(stub, open_bench, where):
    if where == "unknown name":
        url = "http://summariser.invalid/v1"
    else:
        with socket.create_server(("127.0.0.1", 0)) as closed:
            url = f"http://127.0.0.1:{closed.getsockname()[1]}/v1"
    settings = settings_for(stub.base_url, window_tokens=WINDOW, base_url=url)
    bench = open_bench(settings)
    bench.fill_to(FULL)
    before = bench.state
    assert bench.agent.chat("the next question") == "ok"
    assert bench.summary_requests == []
    [attempt] = bench.passes
    assert (attempt.status, attempt.failure_class) == (PassStatus.FAILED, NETWORK)
    assert bench.view[:-2] == before["view"]
    assert bench.store.head("s").generation == 0
    assert SUMMARISER in bench.notices[0]
    assert url in bench.notices[0]


@EVERY_FAULT
def test_d11_when_the_next_request_would_not_fit_the_digest_names_the_failure(
    stub, bench, reply, failure_class, calls, cause
):
    """The digest is no placeholder: it is told as what it is, with the cause."""
    stub.script([], model=SUMMARISER, then=reply)
    bench.fill_to(OVER)
    accepted = bench.rows
    assert bench.agent.chat("the next question") == "ok"
    [attempt] = bench.committed
    assert attempt.kind is PassKind.MECHANICAL
    assert attempt.failure_class == attempt.receipt["reason"] == failure_class
    assert len(bench.summary_requests) == calls
    assert bench.endings == [("committed", failure_class)]
    assert bench.rows[: len(accepted)] == accepted
    assert bench.refusals == []


# -- every surface ------------------------------------------------------------------------------
@pytest.fixture
def configured(stub, monkeypatch):
    """The stub as the configured endpoint, with its summary model."""
    monkeypatch.setenv("HERMES_MODEL__BASE_URL", stub.base_url)
    monkeypatch.setenv("HERMES_MODEL__NAME", DEFAULT_MODEL)
    monkeypatch.setenv("HERMES_MODEL__CONTEXT_LENGTH", str(WINDOW))
    monkeypatch.setenv("HERMES_AUXILIARY__COMPRESSION__MODEL", SUMMARISER)
    monkeypatch.setenv("HERMES_COMPRESSION__BACKGROUND", "false")
    return stub


SURFACES = {
    "lines": (["chat", "--no-tools"], "err"),
    "one turn": (["chat", "--no-tools", "--continue", "-q", "the last question"], "err"),
    "json": (["chat", "--no-tools", "--json"], "out"),
}


@pytest.mark.parametrize("name", ["401", "reset mid body"])
@pytest.mark.parametrize("surface", SURFACES)
def test_d11_every_surface_shows_cause_and_model(configured, hermes, surface, name):
    reply, failure_class, _calls, cause = FAULTS[name]
    configured.script([], then=Reply(text="word " * 900))
    configured.script([], model=SUMMARISER, then=reply)
    arguments, stream = SURFACES[surface]
    talk = "".join(f"question {number}: {'word ' * 700}\n" for number in range(4))
    if "--continue" in arguments:
        hermes("chat", "--no-tools", lines=talk[: talk.rindex("question 3")])
        configured.requests.clear()
    ran = hermes(*arguments, lines=talk)
    assert configured.requests_for(SUMMARISER)
    shown = getattr(ran, stream)
    for word in (failure_class, SUMMARISER, *cause):
        assert word in shown
    if surface == "json":
        told = [orjson.loads(line) for line in ran.out.splitlines()]
        assert any(event["type"] == "notice" and failure_class in event["text"] for event in told)
    [session] = orjson.loads(hermes("sessions", "list", "--json").out)
    listed = hermes("compactions", "list", session["id"])
    assert failure_class in listed.out
    assert "word" not in body_text(configured.requests_for(SUMMARISER)[0])[:20]


def test_d11_pins_fill_the_window_too_and_no_request_is_stuck_between_brake_and_window(
    stub, open_bench
):
    """Rows alone would fit, rows and pins do not: that has to count as not fitting."""
    stub.script([], model=SUMMARISER, then=FAULTS["401"][0])
    bench = open_bench(settings_for(stub.base_url, window_tokens=WINDOW))
    rule = bench.agent.pin("Never write to the production database; " + "ask first, always. " * 50)
    bench.fill_to(FULL)
    for number in range(30):
        assert bench.agent.chat(f"question {number}: {words(40, f'talk {number}')}") == "ok"
        assert body_text(bench.main_requests[-1]).count(rule.text) == 1
    assert {row.kind for row in bench.committed} == {PassKind.MECHANICAL}
    assert bench.refusals == []
