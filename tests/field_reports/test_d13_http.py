"""D13 over HTTP: what clients send while a pass runs is stored in order, each as its own row, and
answered."""

from __future__ import annotations

import math
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from agent.sessions.records import PassStatus
from agent.testing.builders import user
from agent.testing.stub_reply import Reply
from agent.testing.stub_server import DEFAULT_MODEL, StubModelServer
from tests.field_reports.harness import SUMMARISER, SUMMARY, body_text, small_talk, texts
from tests.field_reports.surfaces import ToServer, session_of, talking
from tests.field_reports.test_d13_task import said_in
from tests.server.test_turns import wait_for_gauge

WINDOW = 8_192
MESSAGES = [f"message sent at moment {number}" for number in range(5)]


def held_summary(stub: StubModelServer) -> threading.Event:
    """Let the summary begin only when the event that this returns is set."""
    release = threading.Event()
    slow = Reply(text=SUMMARY, before_first_byte_s=math.inf, release=release)
    stub.script([slow], model=SUMMARISER)
    return release


def test_d13_messages_that_reach_the_server_during_a_pass_wait_and_are_answered_in_order(
    stub: StubModelServer, tmp_path: Path
) -> None:
    release = held_summary(stub)
    with talking("serve", tmp_path, stub, window_tokens=WINDOW) as talk:
        assert isinstance(talk, ToServer)
        talk.send(user("begin"))
        talk.store.append(talk.session, small_talk(7, tokens=550))
        with ThreadPoolExecutor(4) as pool:
            sent = [pool.submit(talk.send, user(MESSAGES[0]))]
            stub.wait_for_requests(2)
            for number, text in enumerate(MESSAGES[1:4], 1):
                sent.append(pool.submit(talk.send, user(text)))
                wait_for_gauge(talk, f"hermes_turns_waiting {number}.0")
            release.set()
            answers = [one.result()["content"] for one in sent]
        answers.append(talk.send(user(MESSAGES[4]))["content"])
        rows = talk.store.accepted_rows(talk.session, 1, 200)
        passes = talk.store.passes(talk.session)
    assert answers == ["ok"] * 5
    assert [row.status for row in passes] == [PassStatus.COMMITTED]
    assert texts(rows)[-10:] == [said for text in MESSAGES for said in (text, "ok")]
    [asked] = stub.requests_for(SUMMARISER)
    assert said_in(asked, MESSAGES) == []
    for text, request in zip(MESSAGES, stub.requests_for(DEFAULT_MODEL)[1:], strict=True):
        assert body_text(request).count(text) == 1


def test_d13_messages_that_pass_the_proxy_while_one_is_prepared_are_not_held_up(
    stub: StubModelServer, tmp_path: Path
) -> None:
    release = held_summary(stub)
    with talking("proxy", tmp_path, stub, window_tokens=WINDOW, background=True) as talk:
        history = small_talk(5, tokens=550)
        talk.send(*history, user(MESSAGES[0]))
        [asked] = [one for one in stub.wait_for_requests(2) if one.model == SUMMARISER]
        answers = [talk.send(user(text))["content"] for text in MESSAGES[1:4]]
        assert not asked.done.is_set()
        release.set()
        assert asked.done.wait(10)
        answers.append(talk.send(user(MESSAGES[4]))["content"])
        rows = talk.store.accepted_rows(session_of(talk), 1, 200)
    assert answers == ["ok"] * 4
    assert texts(rows)[len(history) :] == [said for text in MESSAGES for said in (text, "ok")]
    assert said_in(asked, MESSAGES[1:]) == []
    for text, request in zip(MESSAGES, stub.requests_for(DEFAULT_MODEL), strict=True):
        assert body_text(request).count(text) == 1
