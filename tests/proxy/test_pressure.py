"""When the window is full: the client waits with company, a failing pass costs nothing, an upstream
that refuses is asked again with less."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import orjson
import pytest

from agent.base.messages import Message
from agent.base.settings import CompressionSettings, ProxySettings, Settings
from agent.server.proxy_exchange import Exchange
from agent.server.proxy_outlet import COMPANY
from agent.sessions.records import PassKind, PassStatus
from agent.sessions.routes import RouteBook, RouteKey
from agent.testing.clock import FakeClock
from agent.testing.stub_reply import RecordedRequest, Reply
from agent.testing.stub_server import StubModelServer
from agent.testing.summaries import GOOD_SUMMARY
from hermes_state import SessionDB
from tests.proxy.conftest import MakeCaller
from tests.proxy.serving import MODEL, Caller, serving
from tests.proxy.talk import bodies_of_client, is_summary, text_in

WAITS = Settings(
    proxy=ProxySettings(context_length=8_192), compression=CompressionSettings(background=False)
)
OFF = Settings(
    proxy=ProxySettings(context_length=8_192), compression=CompressionSettings(enabled=False)
)
LINE = "alpha beta gamma delta epsilon zeta eta theta iota kappa lambda mu nu xi omicron "


def answering(
    summary: Callable[[], Reply], answer: str = "noted"
) -> Callable[[RecordedRequest], Reply]:
    """Return a script that answers summaries in one way and the client in another."""
    return lambda request: summary() if is_summary(request) else Reply(text=answer)


def history(turns: int, words: int = 12) -> list[Message]:
    """Return a client's history of `turns` finished turns."""
    return [
        message
        for turn in range(turns)
        for message in (
            {"role": "user", "content": f"note {turn}: " + LINE * words},
            {"role": "assistant", "content": f"noted {turn}"},
        )
    ]


def full(caller: Caller) -> None:
    """Give a caller a history that is larger than the window of 8k, and a question."""
    caller.messages = [*history(45), {"role": "user", "content": "and now?"}]


def passes(store: SessionDB) -> list[tuple[PassKind, PassStatus, str]]:
    [session] = store.sessions()
    return [(p.kind, p.status, p.failure_class) for p in store.passes(session.id)]


def refusals(stub: StubModelServer) -> list[str]:
    return [request.refusal for request in stub.requests if request.refusal]


@pytest.mark.parametrize("stream", [False, True])
def test_what_would_not_fit_is_compacted_first(
    caller: MakeCaller, stub: StubModelServer, store: SessionDB, stream: bool
) -> None:
    stub.script(answering(lambda: Reply(text=GOOD_SUMMARY)))
    one = caller()
    full(one)
    response = one.post(stream=stream)
    assert (response.status_code, "noted" in response.text) == (200, True)
    assert refusals(stub) == []
    kind, status, _why = passes(store)[0]
    assert (kind, status) == (PassKind.SUMMARY, PassStatus.COMMITTED)
    [body] = bodies_of_client(stub.requests)
    assert "recall(" not in text_in(body)
    assert body["messages"][-1]["content"].endswith("and now?")


def test_a_client_that_streams_is_kept_company_while_it_waits(
    store: SessionDB, stub: StubModelServer
) -> None:
    release = threading.Event()
    stub.script(
        answering(lambda: Reply(text=GOOD_SUMMARY, before_first_byte_s=math.inf, release=release))
    )
    with serving(store, stub.base_url, WAITS, company_s=0.02) as url, Caller(url) as one:
        full(one)
        body = {**one.fields, "messages": one.messages, "stream": True}
        with one.http.stream("POST", "chat/completions", json=body) as response:
            chunks = response.iter_raw()
            first = next(chunks)
            release.set()
            rest = b"".join(chunks)
    assert (response.status_code, response.headers["content-type"]) == (200, "text/event-stream")
    assert first.startswith(COMPANY)
    events = [e for e in rest.split(b"\n\n") if e and not e.startswith(b":")]
    assert events[-1] == b"data: [DONE]"
    assert b"noted" in rest


def test_an_error_after_company_is_an_event(store: SessionDB, stub: StubModelServer) -> None:
    release = threading.Event()
    stub.script(
        lambda request: (
            Reply(text=GOOD_SUMMARY, before_first_byte_s=math.inf, release=release)
            if is_summary(request)
            else Reply(status=429, error="slow down")
        )
    )
    with serving(store, stub.base_url, WAITS, company_s=0.02) as url, Caller(url) as one:
        full(one)
        body = {**one.fields, "messages": one.messages, "stream": True}
        with one.http.stream("POST", "chat/completions", json=body) as response:
            chunks = response.iter_raw()
            next(chunks)
            release.set()
            rest = b"".join(chunks)
    last = orjson.loads(rest.rpartition(b"data: ")[2])
    assert last["error"]["message"] == "slow down"


@pytest.mark.parametrize(
    "failing",
    [Reply(status=500, error="down"), Reply(status=401, error="no"), Reply(text="")],
    ids=["down", "refused", "empty"],
)
def test_a_pass_that_fails_gives_way_to_a_digest(
    store: SessionDB, stub: StubModelServer, failing: Reply
) -> None:
    stub.script(answering(lambda: failing))
    with serving(store, stub.base_url, WAITS) as url, Caller(url) as one:
        full(one)
        one.go_on()
        one.say("and then?")
    assert refusals(stub) == []
    assert passes(store)[0][:2] == (PassKind.MECHANICAL, PassStatus.COMMITTED)


def test_a_pass_is_not_judged_by_what_was_sent_before_it(
    store: SessionDB, stub: StubModelServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    stub.script(answering(lambda: Reply(text=GOOD_SUMMARY)))
    follow = Exchange._follow
    late: list[tuple[Any, ...]] = []

    def follow_late(*given: Any) -> None:
        late.append(given)
        if len(late) == 2:
            for each in late:
                follow(*each)
            judged.append(store.health(store.sessions()[0].id))

    judged: list[object] = []
    monkeypatch.setattr(Exchange, "_follow", follow_late)
    with serving(store, stub.base_url, WAITS) as url, Caller(url) as one:
        one.messages = history(30)
        one.say("and now?")
        one.say(LINE * 40)
    assert (passes(store), judged) == ([(PassKind.SUMMARY, PassStatus.COMMITTED, "")], [{}])


@pytest.mark.parametrize("stream", [False, True])
def test_an_upstream_that_refuses_is_asked_again_with_less(
    store: SessionDB, stub: StubModelServer, stream: bool
) -> None:
    stub.script(answering(lambda: Reply(text=GOOD_SUMMARY)))
    with serving(store, stub.base_url, Settings()) as url, Caller(url) as one:
        full(one)
        response = one.post(stream=stream)
    assert (response.status_code, "noted" in response.text) == (200, True)
    assert len(refusals(stub)) == 1
    [first, second] = bodies_of_client(stub.requests)
    assert len(first["messages"]) == len(one.messages) > len(second["messages"])
    book = RouteBook(store.database, FakeClock())
    learned = book.read(RouteKey("chat_completions", stub.base_url, MODEL))
    assert (learned.window_tokens, learned.learned_from) == (8_192, "overflow")


def test_a_window_that_nobody_knows_is_asked_for_after_the_first_reply(
    store: SessionDB, stub: StubModelServer
) -> None:
    stub.script(answering(lambda: Reply(text=GOOD_SUMMARY)))
    with serving(store, stub.base_url, Settings()) as url, Caller(url) as one:
        one.say("hi")
        one.say("and again")
    with serving(store, stub.base_url, Settings()) as url, Caller(url) as two:
        full(two)
        two.go_on()
    assert refusals(stub) == []
    assert [request.path for request in stub.requests].count("/v1/models") == 1
    assert stub.requests[0].path == "/v1/chat/completions"


def test_a_refusal_inside_a_stream_is_caught_too(store: SessionDB, stub: StubModelServer) -> None:
    error = {"message": "maximum context length is 8192 tokens, requested 9000", "code": 400}
    refusal = b": hm\n\ndata: " + orjson.dumps({"error": error}) + b"\n\n"
    replies = iter(
        [Reply(raw_body=refusal, headers={"content-type": "text/event-stream"}), Reply(text="yes")]
    )
    stub.script(lambda request: Reply(text=GOOD_SUMMARY) if is_summary(request) else next(replies))
    with serving(store, stub.base_url, WAITS) as url, Caller(url) as one:
        one.messages = [*history(14), {"role": "user", "content": "and now?"}]
        response = one.post(stream=True)
    assert (response.status_code, "yes" in response.text) == (200, True)
    assert "maximum context" not in response.text


def test_a_refusal_goes_through_when_compaction_is_off(
    store: SessionDB, stub: StubModelServer
) -> None:
    with serving(store, stub.base_url, OFF) as url, Caller(url) as one:
        full(one)
        response = one.post()
    assert (response.status_code, response.json()["error"]["code"]) == (
        400,
        "context_length_exceeded",
    )
    assert stub.requests[0].messages == one.messages


def test_what_cannot_fit_ends_before_it_is_sent(caller: MakeCaller, stub: StubModelServer) -> None:
    one = caller()
    one.messages = [{"role": "system", "content": LINE * 500}, {"role": "user", "content": "hi"}]
    response = one.post()
    assert (response.status_code, response.json()["error"]["code"]) == (
        400,
        "context_length_exceeded",
    )
    assert bodies_of_client(stub.requests) == []


def test_a_message_larger_than_its_share_is_shown_in_part_and_kept_whole(
    caller: MakeCaller, stub: StubModelServer, store: SessionDB
) -> None:
    stub.script(answering(lambda: Reply(text=GOOD_SUMMARY)))
    text = "begin " + LINE * 600 + " end"
    one = caller()
    one.say(text)
    [body] = bodies_of_client(stub.requests)
    shown = body["messages"][-1]["content"]
    assert (shown.startswith("begin "), shown.endswith(" end")) == (True, True)
    assert ("left out here; row 1]" in shown, "recall(" in shown) == (True, False)
    [session] = store.sessions()
    assert store.view(session.id).messages[0]["content"] == text


def test_requests_of_one_conversation_side_by_side_are_safe(
    caller: MakeCaller, stub: StubModelServer, store: SessionDB
) -> None:
    stub.script(answering(lambda: Reply(text=GOOD_SUMMARY)))
    callers = [caller() for _ in range(6)]
    for place, one in enumerate(callers):
        full(one)
        one.messages[-1] = {"role": "user", "content": f"question {place % 3}"}
    with ThreadPoolExecutor(6) as pool:
        answers = list(pool.map(lambda one: one.go_on()["content"], callers))
        again = list(pool.map(lambda one: one.say("more")["content"], callers))
    assert (answers, again) == (["noted"] * 6, ["noted"] * 6)
    assert refusals(stub) == []
    assert store.check().problems == []


def test_an_undone_pass_is_forwarded_whole_again_while_it_fits(
    store: SessionDB, stub: StubModelServer
) -> None:
    stub.script(answering(lambda: Reply(text=GOOD_SUMMARY)))
    with serving(store, stub.base_url, WAITS) as url, Caller(url) as one:
        full(one)
        one.go_on()
        [session] = store.sessions()
        store.undo_pass(session.id)
        with serving(store, stub.base_url, Settings()) as wide, Caller(wide) as other:
            other.messages = list(one.messages)
            stub.strict = False
            other.say("and then?")
    assert bodies_of_client(stub.requests)[-1]["messages"] == other.messages[:-1]
    assert [status for _kind, status, _why in passes(store)][:1] == [PassStatus.UNDONE]


def test_system_messages_in_the_middle_stay_or_come_first(
    caller: MakeCaller, stub: StubModelServer
) -> None:
    stub.script(answering(lambda: Reply(text=GOOD_SUMMARY)))
    stub.strict = False
    one = caller()
    full(one)
    early, late = ({"role": "system", "content": text} for text in ("early rule", "late rule"))
    one.messages.insert(2, early)
    one.messages.insert(-1, late)
    one.post()
    [body] = bodies_of_client(stub.requests)
    systems = [i for i, m in enumerate(body["messages"]) if m["role"] == "system"]
    assert [body["messages"][i] for i in systems] == [early, late]
    assert systems == [0, len(body["messages"]) - 2]
