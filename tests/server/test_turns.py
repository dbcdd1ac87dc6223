"""Turns of many clients: order, bounds, clients that leave, stops, restarts, shutdown."""

from __future__ import annotations

import json
import math
import socket
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor, as_completed
from typing import Any, TypeVar

import httpx2

from agent.testing.builders import call, user
from agent.testing.stub_reply import RecordedRequest, Reply
from tests.server.served import (
    CHAT,
    TOKEN,
    Served,
    chat_body,
    error_of,
    events_in,
    read_events,
    session_header,
)

T = TypeVar("T")
LOOK = {"type": "function", "function": {"name": "look"}}


def hold(served: Served) -> threading.Event:
    """Let every answer of the model wait for the event that is returned."""
    release = threading.Event()
    reply = Reply(text="late", before_first_byte_s=math.inf, release=release)
    served.stub.script([], then=reply)
    return release


def later(work: Callable[[], T]) -> Future[T]:
    """Do work in a thread of its own, which ends with it."""
    pool = ThreadPoolExecutor(1)
    try:
        return pool.submit(work)
    finally:
        pool.shutdown(wait=False)


def chat_later(served: Served, text: str, session: str = "") -> Future[httpx2.Response]:
    """Send a chat request without waiting for its answer."""
    return later(lambda: served.chat(user(text), session=session))


def ask_and_stay(served: Served, text: str, session: str = "") -> socket.socket:
    """Send a chat request and return its connection: closing it is how a client leaves."""
    body = json.dumps(chat_body(user(text))).encode()
    headers = {"Host": "localhost", "Authorization": f"Bearer {TOKEN}", **session_header(session)}
    lines = [f"POST {CHAT} HTTP/1.1", *(f"{name}: {value}" for name, value in headers.items())]
    head = "\r\n".join([*lines, f"Content-Length: {len(body)}", "", ""])
    address = served.client.base_url
    connection = socket.create_connection((address.host, address.port))
    connection.sendall(head.encode() + body)
    return connection


def wait_for_gauge(served: Served, line: str) -> None:
    """Return when the metrics hold a line; the test's own limit ends a wait that is in vain."""
    while line not in served.get("/metrics").text.splitlines():
        pass


def read_until(events: Any, text: str) -> None:
    """Read pieces of a chat stream until one says `text`."""
    while next(events)["choices"][0]["delta"].get("content") != text:
        pass


def test_two_requests_on_one_session_take_turns_in_order(served: Served) -> None:
    session = served.chat(user("zero")).headers["x-hermes-session"]
    release = hold(served)
    first = chat_later(served, "one", session)
    served.stub.wait_for_requests(2)
    second = chat_later(served, "two", session)
    wait_for_gauge(served, "hermes_turns_waiting 1.0")
    release.set()
    assert [first.result().status_code, second.result().status_code] == [200, 200]
    said = [content for _role, content in served.rows(session)]
    assert said == ["zero", "ok", "one", "late", "two", "late"]


def test_other_sessions_go_on_while_one_waits(served: Served) -> None:
    session = served.chat(user("zero")).headers["x-hermes-session"]
    release = threading.Event()

    def answer(request: RecordedRequest) -> Reply:
        if request.messages[-1]["content"] == "slow":
            return Reply(before_first_byte_s=math.inf, release=release)
        return Reply(text="quick")

    served.stub.script(answer)
    slow = chat_later(served, "slow", session)
    served.stub.wait_for_requests(2)
    assert served.chat(user("hi")).json()["choices"][0]["message"]["content"] == "quick"
    assert served.get(f"/api/sessions/{session}").json()["busy"] == "turn"
    release.set()
    assert slow.result().status_code == 200


def test_beyond_turns_and_queue_a_client_is_told_to_come_back(hermes: Served) -> None:
    served = hermes.start(max_turns=1, max_waiting=1)
    try:
        release = hold(served)
        running = chat_later(served, "one")
        served.stub.wait_for_requests(1)
        waiting = chat_later(served, "two")
        wait_for_gauge(served, "hermes_turns_waiting 1.0")
        refused = served.chat(user("three"))
        assert error_of(refused) == (429, "rate_limit_error", "too_many_turns")
        assert int(refused.headers["retry-after"]) >= 1
        release.set()
        assert [running.result().status_code, waiting.result().status_code] == [200, 200]
        assert len(served.get("/api/sessions").json()["sessions"]) == 2
        assert served.chat(user("three")).status_code == 200
    finally:
        served.stop()


def test_a_burst_stores_nothing_of_those_that_are_sent_away(hermes: Served) -> None:
    served = hermes.start(max_turns=2, max_waiting=2)
    try:
        release = hold(served)
        burst = [chat_later(served, f"number {number}") for number in range(12)]
        served.stub.wait_for_requests(2)
        answered = as_completed(burst, timeout=15)
        assert [next(answered).result().status_code for _ in range(8)] == [429] * 8
        release.set()
        statuses = sorted(future.result().status_code for future in burst)
        assert statuses == [200] * 4 + [429] * 8
        assert len(served.get("/api/sessions").json()["sessions"]) == 4
    finally:
        served.stop()


def test_a_client_that_leaves_stops_its_turn_and_what_it_sent_stays(served: Served) -> None:
    session = served.chat(user("zero")).headers["x-hermes-session"]
    served.stub.script([Reply(text="never", before_first_byte_s=math.inf)])
    with ask_and_stay(served, "one", session):
        [_zero, request] = served.stub.wait_for_requests(2)
    assert request.done.wait(10)
    assert request.client_closed_at is not None
    wait_for_gauge(served, "hermes_turns_running 0.0")
    assert served.rows(session)[2:] == [("user", "one")]


def test_a_reader_that_leaves_a_stream_stops_its_turn_and_keeps_what_came(served: Served) -> None:
    served.stub.script([Reply(chunks=("first ", "second"), stall_after_chars=6)])
    body = chat_body(user("one"), stream=True)
    with served.client.stream("POST", CHAT, json=body) as answer:
        session = answer.headers["x-hermes-session"]
        read_until(read_events(answer), "first ")
    [request] = served.stub.requests
    assert request.done.wait(10)
    wait_for_gauge(served, "hermes_turns_running 0.0")
    assert served.rows(session) == [("user", "one"), ("assistant", "first ")]


def test_a_client_that_leaves_the_queue_gives_its_place_up(hermes: Served) -> None:
    served = hermes.start(max_turns=1, max_waiting=1)
    try:
        release = hold(served)
        running = chat_later(served, "one")
        served.stub.wait_for_requests(1)
        with ask_and_stay(served, "two"):
            wait_for_gauge(served, "hermes_turns_waiting 1.0")
        wait_for_gauge(served, "hermes_turns_waiting 0.0")
        release.set()
        assert running.result().status_code == 200
        assert len(served.stub.requests) == 1
    finally:
        served.stop()


def test_a_stop_ends_the_turn_and_its_client_gets_what_came(served: Served) -> None:
    served.stub.script([Reply(chunks=("first ", "second"), stall_after_chars=6)])
    body = chat_body(user("one"), stream=True)
    with served.client.stream("POST", CHAT, json=body) as answer:
        events = read_events(answer)
        read_until(events, "first ")
        path = f"/api/sessions/{answer.headers['x-hermes-session']}"
        assert served.post(f"{path}/stop").json() == {"stopped": "turn"}
        rest = list(events)
    assert [event["choices"][0]["finish_reason"] for event in rest[:-1]] == ["stop"]
    assert rest[-1] == "[DONE]"
    assert served.post(f"{path}/stop").json() == {"stopped": ""}


def test_a_session_that_is_deleted_during_its_turn_is_gone(served: Served) -> None:
    path = served.post("/api/sessions").headers["location"]
    served.stub.script([Reply(before_first_byte_s=math.inf)])
    turn = later(lambda: served.post(f"{path}/messages", {"content": "one"}))
    served.stub.wait_for_requests(1)
    assert served.client.delete(path).status_code == 204
    assert turn.result().json()["stop_reason"] == "interrupted"
    assert served.get(path).status_code == 404


def test_sessions_that_left_memory_are_read_from_the_store(hermes: Served) -> None:
    served = hermes.start(warm_sessions=1)
    try:
        one = served.chat(user("one")).headers["x-hermes-session"]
        two = served.chat(user("two")).headers["x-hermes-session"]
        served.chat(user("more"), session=one)
        served.chat(user("more"), session=two)
        sent = [[m["content"] for m in request.messages[1:]] for request in served.stub.requests]
        assert sent[2:] == [["one", "ok", "more"], ["two", "ok", "more"]]
    finally:
        served.stop()


def test_a_restart_changes_nothing(hermes: Served) -> None:
    served = hermes.start()
    session = served.chat(user("one")).headers["x-hermes-session"]
    served.stop()
    served = hermes.start()
    try:
        served.chat(user("two"), session=session)
        before, after = (request.messages for request in served.stub.requests)
        assert after == [*before, {"role": "assistant", "content": "ok"}, user("two")]
    finally:
        served.stop()


def test_a_shutdown_lets_turns_end(hermes: Served) -> None:
    served = hermes.start()
    release = hold(served)
    running = chat_later(served, "one")
    served.stub.wait_for_requests(1)
    served.ask_to_stop()
    timer = threading.Timer(0.5, release.set)
    timer.start()
    assert running.result().json()["choices"][0]["message"]["content"] == "late"
    served.stop()
    timer.join()


def test_a_shutdown_hands_back_what_does_not_end_and_it_is_answered_later(hermes: Served) -> None:
    served = hermes.start(max_turns=1, shutdown_seconds=0.3)
    session = served.chat(user("zero")).headers["x-hermes-session"]
    wanted = call("look", {})
    served.stub.script([Reply(text=None, tool_calls=[wanted]), Reply(before_first_byte_s=math.inf)])
    assert served.chat(user("one"), session=session, tools=[LOOK]).status_code == 200
    found = {"role": "tool", "tool_call_id": wanted["id"], "content": "found"}
    running = later(lambda: served.chat(found, session=session, tools=[LOOK]))
    served.stub.wait_for_requests(3)
    queued = chat_later(served, "queued")
    wait_for_gauge(served, "hermes_turns_waiting 1.0")
    with served.client.stream("GET", f"/api/sessions/{session}/events") as listening:
        lines = listening.iter_lines()
        assert next(lines).startswith(":")
        served.ask_to_stop()
        heard = list(events_in(lines))
    assert [(event["type"], event["stop_reason"]) for event in heard] == [
        ("turn_finished", "interrupted")
    ]
    for future in (running, queued):
        assert error_of(future.result()) == (503, "server_error", "server_stopping")
    assert running.result().headers["x-hermes-session"] == session
    served.stop()
    served = hermes.start()
    try:
        served.stub.script([])
        assert served.chat(found, session=session, tools=[LOOK]).status_code == 200
        roles = [message["role"] for message in served.stub.requests[-1].messages[1:]]
        assert roles == ["user", "assistant", "user", "assistant", "tool"]
        assert served.rows(session)[-2:] == [("tool", "found"), ("assistant", "ok")]
    finally:
        served.stop()
