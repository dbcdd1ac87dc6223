"""D12, D13 and D20 through `hermes serve` and `hermes proxy`, as clients see them."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial

import pytest

from agent.base.messages import Message, text_of
from agent.base.settings import (
    AuxiliaryCompressionSettings,
    AuxiliarySettings,
    CompressionSettings,
    ProxySettings,
    Settings,
)
from agent.testing.builders import assistant, call, result, turn, user
from agent.testing.stub_reply import RecordedRequest, Reply
from agent.testing.stub_server import DEFAULT_MODEL, StubModelServer
from hermes_state import SessionDB
from tests.field_reports.harness import SUMMARISER, SUMMARY, body_text, small_talk, words
from tests.field_reports.test_d12_task import (
    EXPLAIN_C,
    MAKE_A,
    MAKE_B,
    ROUNDS,
    sections_of,
)
from tests.field_reports.test_d20_secret import ALL_OF_THEM, SECRETS, leaks
from tests.proxy.serving import Caller, serving
from tests.proxy.talk import is_summary
from tests.server.served import Served

WAIT_S = 10.0


class ServedWithSummaries(Served):
    """A server whose summaries come from a model of their own."""

    @property
    def settings(self) -> Settings:
        auxiliary = AuxiliarySettings(AuxiliaryCompressionSettings(model=SUMMARISER))
        return replace(super().settings, auxiliary=auxiliary)


@pytest.fixture
def served(tmp_path, stub, monkeypatch):
    folder = tmp_path / "work"
    folder.mkdir()
    monkeypatch.chdir(folder)
    stub.script([], model=SUMMARISER, then=Reply(text=SUMMARY))
    server = ServedWithSummaries(tmp_path, stub)
    server.window_tokens = 16_000
    server.start()
    server.store.create_session("s", "test")
    yield server
    server.stop()


def wait_until(is_so: Callable[[], bool]) -> None:
    """Wait for what another thread does; fail when it does not."""
    tick = threading.Event()
    for _ in range(int(WAIT_S / 0.02)):
        if is_so():
            return
        tick.wait(0.02)
    raise AssertionError("it did not happen")


def has_waiting(served: Served, count: int) -> bool:
    """Return whether so many requests wait for their turn."""
    return f"hermes_turns_waiting {count}.0" in served.get("/metrics").text


def made_by_passes(store: SessionDB, session_id: str) -> str:
    """Return the text of every row that a pass made."""
    rows = store.history(session_id)
    return "\n".join(text_of(row.message.get("content")) for row in rows if row.made_by)


def look(number: int) -> Reply:
    """Return a round whose bulk is the assistant's own text."""
    tasks = {"tasks": [{"text": f"look {number}", "status": "pending"}]}
    return Reply(text=words(1_300, f"look {number}"), tool_calls=[call("todo", tasks)])


def secret_rows() -> list[Message]:
    """Return rows with every secret in a user's text, an answer, arguments and a result."""
    shown = call("shell", {"command": f"echo {ALL_OF_THEM}"}, call_id="c1")
    return [
        user(f"look at this: {ALL_OF_THEM}\n{words(900, 'chatter')}"),
        assistant(f"I use {ALL_OF_THEM}", shown),
        result(shown, f"found {ALL_OF_THEM} in it"),
        assistant("found"),
    ]


# -- hermes serve -------------------------------------------------------------------------------


def test_d12_the_server_restates_the_running_request_and_marks_the_others_done(stub, served):
    served.store.append("s", [*turn(MAKE_A, "A is made."), *turn(MAKE_B, "B is made.")])
    stub.script([*(look(number) for number in range(ROUNDS)), Reply(text="C explained")])
    answer = served.chat(user(EXPLAIN_C), session="s")
    assert answer.json()["choices"][0]["message"]["content"].endswith("C explained")
    assert [row.trigger for row in served.store.passes("s")] != []
    summary, done, following = sections_of(stub.requests_for(DEFAULT_MODEL)[-1])
    assert "The tests of the importer were being repaired" in summary
    assert MAKE_A in done
    assert MAKE_B in done
    assert following.endswith(EXPLAIN_C)
    assert [request.refusal for request in stub.requests if request.refusal] == []


def test_d13_messages_sent_to_the_server_while_it_compacts_are_rows_and_are_answered(stub, served):
    number = 0
    while served.store.view("s").tokens < 9_000:
        number += 1
        served.store.append("s", small_talk(2, tokens=150, topic=f"talk {number}"))
    before = served.store.head("s").watermark
    release = threading.Event()
    held = Reply(text=SUMMARY, before_first_byte_s=math.inf, release=release)
    stub.script([held], model=SUMMARISER, then=Reply(text=SUMMARY))
    said = [f"sent at moment {moment}" for moment in range(4)]
    with ThreadPoolExecutor(5) as pool:
        compaction = pool.submit(served.post, "/api/sessions/s/compact")
        wait_until(lambda: bool(stub.requests_for(SUMMARISER)))
        answers = []
        for text in said[:3]:
            answers.append(pool.submit(served.chat, user(text), session="s"))
            wait_until(partial(has_waiting, served, len(answers)))
        release.set()
        assert compaction.result().json()["status"] == "committed"
        answers.append(pool.submit(served.chat, user(said[3]), session="s"))
        assert [answer.result().status_code for answer in answers] == [200] * 4
    rows = served.store.accepted_rows("s", before + 1, 1_000)
    assert [row["content"] for row in rows if row["role"] == "user"] == said
    read = "\n".join(body_text(request) for request in stub.requests_for(SUMMARISER))
    assert not any(text in read for text in said)
    sent = body_text(stub.requests_for(DEFAULT_MODEL)[-1])
    assert all(text in sent for text in said)


def test_d20_no_secret_reaches_a_summary_of_the_server(stub, served):
    accepted = served.store.append("s", [*secret_rows(), *small_talk(16, tokens=300)])
    record = served.post("/api/sessions/s/compact", {"focus": f"keep {ALL_OF_THEM}"}).json()
    assert record["status"] == "committed"
    read = "\n".join(body_text(request) for request in stub.requests_for(SUMMARISER))
    assert read
    for kind in SECRETS:
        assert leaks(kind, read) == []
        assert leaks(kind, made_by_passes(served.store, "s")) == []
    kept = served.store.accepted_rows("s", 1, 1_000)
    assert [row["content"] for row in kept] == [row["content"] for row in accepted]


# -- hermes proxy -------------------------------------------------------------------------------


@pytest.fixture
def behind(tmp_path):
    """A function that opens a proxy in front of a strict upstream, and a caller of it."""
    store = SessionDB(tmp_path / "proxied.db")
    settings = Settings(
        proxy=ProxySettings(context_length=8_192),
        compression=CompressionSettings(background=False),
    )
    with StubModelServer(window_tokens=8_192) as upstream:
        with serving(store, upstream.base_url, settings) as url, Caller(url) as caller:
            yield upstream, store, caller
    assert store.check().problems == []
    store.close()


def answers_of(upstream: StubModelServer) -> None:
    """Let the upstream write summaries when it is asked to, and else answer briefly."""
    upstream.script(lambda request: Reply(text=SUMMARY if is_summary(request) else "noted"))


def test_d12_the_proxy_restates_the_running_request_and_marks_the_others_done(behind):
    upstream, _store, caller = behind
    answers_of(upstream)
    caller.say(MAKE_A)
    caller.say(MAKE_B)
    caller.messages.append(user(EXPLAIN_C))
    for number in range(ROUNDS):
        looked = call("look", {"part": number})
        text = words(1_000, f"look {number}")
        caller.messages += [assistant(text, looked), result(looked, "seen")]
        caller.post()
    request = [request for request in upstream.requests if not is_summary(request)][-1]
    assert any(is_summary(one) for one in upstream.requests)
    _summary, done, following = sections_of(request)
    assert MAKE_A in done
    assert MAKE_B in done
    assert following.endswith(EXPLAIN_C)
    assert [one.refusal for one in upstream.requests if one.refusal] == []


def test_d20_no_secret_of_a_client_reaches_a_summary_of_the_proxy(behind):
    upstream, store, caller = behind
    answers_of(upstream)
    caller.messages += secret_rows()
    for number in range(24):
        caller.say(words(300, f"matter {number}"))
    asked = [request for request in upstream.requests if is_summary(request)]
    read = "\n".join(body_text(request) for request in asked)
    [session] = store.sessions()
    assert read
    for kind in SECRETS:
        assert leaks(kind, read) == []
        assert leaks(kind, made_by_passes(store, session.id)) == []
    kept = [row["content"] for row in store.accepted_rows(session.id, 1, 4)]
    assert kept == [row["content"] for row in secret_rows()]


def test_d13_messages_sent_through_the_proxy_while_it_compacts_are_answered_and_kept(behind):
    """An impatient client sends its history with one message more before the first is answered."""
    upstream, store, caller = behind
    release, is_held = threading.Event(), threading.Event()

    def answer(request: RecordedRequest) -> Reply:
        if not is_summary(request):
            return Reply(text="noted")
        is_held.set()
        return Reply(text=SUMMARY, before_first_byte_s=math.inf, release=release)

    upstream.script(answer)
    caller.messages += small_talk(18, tokens=200)
    said = [f"sent at moment {moment}" for moment in range(3)]
    histories = [[*caller.messages, *map(user, said[: count + 1])] for count in range(3)]
    with ThreadPoolExecutor(3) as pool:
        posts = [pool.submit(caller.post, messages=histories[0])]
        assert is_held.wait(WAIT_S)
        posts += [pool.submit(caller.post, messages=history) for history in histories[1:]]
        release.set()
        assert [post.result().status_code for post in posts] == [200] * 3
    sent = [request for request in upstream.requests if not is_summary(request)]
    ends = [body_text(request) for request in sent]
    for count, text in enumerate(said):
        assert any(end.endswith(text) and all(one in end for one in said[:count]) for end in ends)
    read = "\n".join(body_text(request) for request in upstream.requests if is_summary(request))
    assert not any(text in read for text in said)
    kept = [
        row["content"]
        for session in store.sessions()
        for row in store.accepted_rows(session.id, 1, 1_000)
    ]
    assert set(said) <= set(kept)
