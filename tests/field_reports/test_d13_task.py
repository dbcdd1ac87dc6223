"""D13: a message that is sent while a pass runs is a row of its own and is answered."""

from __future__ import annotations

import io
import math
import threading
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from agent.base.events import CompactionFinished
from agent.base.messages import text_of
from agent.sessions.records import PassStatus
from agent.testing.stub_reply import RecordedRequest, Reply
from agent.testing.stub_server import DEFAULT_MODEL
from agent.tui.chat import Chat
from agent.tui.lines import LineScreen
from tests.field_reports.harness import (
    SUMMARISER,
    SUMMARY,
    body_text,
    settings_for,
    texts,
    words,
)

WINDOW, FULL = 8_000, 5_500
SENT_AT_S = (0.1, 1.0, 2.9)


def slow_summary(release: threading.Event) -> Reply:
    """Return a summary that begins once the event is set."""
    return Reply(text=SUMMARY, before_first_byte_s=math.inf, release=release)


@pytest.fixture
def bench(stub, open_bench):
    opened = open_bench(settings_for(stub.base_url, window_tokens=WINDOW))
    opened.fill_to(FULL)
    return opened


def said_in(request: RecordedRequest, given: Iterable[str]) -> list[str]:
    """Return the given messages in the order in which a request carries them."""
    text = body_text(request)
    return sorted((said for said in given if said in text), key=text.index)


def test_d13_four_messages_around_a_pass_are_four_rows_in_order_and_in_the_next_request(
    stub, bench
):
    release = threading.Event()
    stub.script([slow_summary(release)], model=SUMMARISER)
    messages = [f"message sent at moment {number}" for number in range(5)]
    before = len(bench.rows)

    def listen(event):
        if isinstance(event, CompactionFinished):
            bench.agent.submit(messages[4])

    bench.listener = listen
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(bench.agent.run_conversation, messages[0])
        stub.wait_for_requests(1)
        pause, now_s = threading.Event(), 0.0
        for at_s, text in zip(SENT_AT_S, messages[1:4], strict=True):
            pause.wait(at_s - now_s)
            now_s = at_s
            assert bench.agent.busy == "pass"
            bench.agent.submit(text)
        release.set()
        result = running.result(15)

    assert result.stop_reason == "stop"
    assert [row.status for row in bench.passes] == [PassStatus.COMMITTED]
    assert texts(bench.rows[before:]) == [*messages, "ok"]
    [asked] = bench.summary_requests
    assert said_in(asked, messages[1:]) == []
    assert said_in(bench.main_requests[0], messages) == messages
    assert bench.agent.pending_messages() == 0
    assert bench.refusals == []


def test_d13_messages_sent_during_a_manual_pass_are_answered_by_the_next_turn(stub, bench):
    release = threading.Event()
    stub.script([slow_summary(release)], model=SUMMARISER)
    messages = [f"message {number}" for number in range(4)]
    before = len(bench.rows)
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(bench.agent.compress)
        stub.wait_for_requests(1)
        for text in messages[:3]:
            bench.agent.submit(text)
        release.set()
        assert running.result(15).status is PassStatus.COMMITTED
    bench.agent.submit(messages[3])
    assert bench.agent.pending_messages() == 4
    result = bench.agent.run_pending()
    assert result.final_text == "ok"
    assert texts(bench.rows[before:]) == [*messages, "ok"]
    assert said_in(bench.main_requests[0], messages) == messages
    assert said_in(bench.summary_requests[0], messages) == []
    assert bench.agent.run_pending() is None


def test_d13_messages_survive_a_pass_that_fails_or_is_stopped(stub, bench):
    for number, fault in enumerate((Reply(status=401), None)):
        release = threading.Event()
        stub.script([fault or slow_summary(release)], model=SUMMARISER)
        seen = len(stub.requests)
        with ThreadPoolExecutor(1) as pool:
            running = pool.submit(bench.agent.compress)
            stub.wait_for_requests(seen + 1)
            bench.agent.submit(f"message {number}")
            bench.agent.interrupt()
            assert running.result(15).status in (PassStatus.FAILED, PassStatus.ABORTED)
        assert bench.agent.run_pending().final_text == "ok"
        assert said_in(bench.main_requests[-1], [f"message {number}"]) == [f"message {number}"]


def test_d13_a_message_sent_during_the_answer_is_answered_after_it(stub, bench):
    release = threading.Event()
    stub.script([Reply(text="first answer", before_first_byte_s=math.inf, release=release)])
    stub.script([Reply(text=SUMMARY)], model=SUMMARISER)
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(bench.agent.run_conversation, "first message")
        stub.wait_for_requests(2)
        bench.agent.submit("second message")
        release.set()
        assert running.result(15).final_text == "first answer"
    assert bench.agent.pending_messages() == 1
    assert bench.agent.run_pending().final_text == "ok"
    last = [text_of(message["content"]) for message in bench.main_requests[-1].messages[-3:]]
    assert last[0].endswith("first message")
    assert last[1:] == ["first answer", "second message"]


@given(moments=st.lists(st.sampled_from(["before", "during", "after"]), min_size=1, max_size=6))
@settings(
    max_examples=settings().max_examples // 3,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
def test_d13_whenever_messages_come_each_is_one_row_and_each_is_carried_once(
    stub, open_bench, moments
):
    release = threading.Event()
    stub.script([slow_summary(release)], model=SUMMARISER)
    bench = open_bench(
        settings_for(stub.base_url, window_tokens=WINDOW), session_id=f"s{len(stub.requests)}"
    )
    bench.fill_to(2_000)
    ordered = sorted(moments, key=["before", "during", "after"].index)
    sent = [f"{moment} {number}." for number, moment in enumerate(ordered)]
    seen = len(stub.requests)
    for text in sent:
        if text.startswith("before"):
            bench.agent.submit(text)
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(bench.agent.compress)
        stub.wait_for_requests(seen + 1)
        for text in sent:
            if text.startswith("during"):
                bench.agent.submit(text)
        release.set()
        assert running.result(15).status is PassStatus.COMMITTED
    for text in sent:
        if text.startswith("after"):
            bench.agent.submit(text)
    result = bench.agent.run_pending()
    assert result.stop_reason == "stop"
    assert [text for text in texts(bench.rows) if text in sent] == sent
    request = bench.main_requests[-1]
    assert said_in(request, sent) == sent
    assert [body_text(request).count(text) for text in sent] == [1] * len(sent)


# -- the terminal -------------------------------------------------------------------------------
def test_d13_what_is_typed_while_a_pass_runs_is_stored_at_once_and_answered_in_order(
    stub, store, bench
):
    """The queue of the terminal: typing never waits for the pass."""
    release = threading.Event()
    stub.script([slow_summary(release)], model=SUMMARISER)
    stub.script(lambda _request: Reply(text=f"answer {len(bench.main_requests)}"))
    screen = LineScreen(io.StringIO(), io.StringIO(), lambda _pass_id: None)
    chat = Chat(lambda _session_id, _screen: bench.agent, screen, store)
    chat.switch("s")
    before = len(bench.rows)
    messages = [f"typed {number}" for number in range(4)]
    try:
        chat.start(bench.agent.compress)
        stub.wait_for_requests(1)
        for text in messages[:3]:
            chat.say(text)
        assert texts(bench.rows[before:]) == messages[:3]
        release.set()
        screen.wait()
        chat.say(messages[3])
        for _ in messages:
            screen.wait()
    finally:
        chat.close()
    accepted = texts(bench.rows[before:])
    assert [text for text in accepted if text in messages] == messages
    assert said_in(bench.summary_requests[0], messages) == []
    assert said_in(bench.main_requests[-1], messages) == messages
    assert len(bench.committed) == 1
    assert bench.refusals == []


def test_d13_lines_that_wait_in_line_mode_are_rows_of_their_own_each_answered(
    stub, hermes, monkeypatch
):
    monkeypatch.setenv("HERMES_MODEL__BASE_URL", stub.base_url)
    monkeypatch.setenv("HERMES_MODEL__NAME", DEFAULT_MODEL)
    monkeypatch.setenv("HERMES_MODEL__CONTEXT_LENGTH", str(WINDOW))
    monkeypatch.setenv("HERMES_AUXILIARY__COMPRESSION__MODEL", SUMMARISER)
    monkeypatch.setenv("HERMES_COMPRESSION__BACKGROUND", "false")
    stub.script([], model=SUMMARISER, then=Reply(text=SUMMARY, before_first_byte_s=0.3))
    answers = iter(range(1, 100))
    stub.script(lambda _request: Reply(text=f"answer {next(answers)}: {words(700, 'answer')}"))
    lines = [f"line {number}: {words(600, f'line {number}')}" for number in range(1, 9)]
    ran = hermes("chat", "--no-tools", lines="".join(f"{line}\n" for line in lines))
    assert ran.code == 0
    assert [line.split(":")[0] for line in ran.out.splitlines()] == [
        f"answer {number}" for number in range(1, 9)
    ]
    assert stub.requests_for(SUMMARISER)
    for number, line in enumerate(lines, start=1):
        request = stub.requests_for(DEFAULT_MODEL)[number - 1]
        assert text_of(request.messages[-1]["content"]).endswith(line)
    assert [request.refusal for request in stub.requests if request.refusal] == []
