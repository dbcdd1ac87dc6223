"""A client that goes away: the call to the upstream ends at once, what arrived is kept."""

from __future__ import annotations

import asyncio
import math
import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from urllib.parse import urlsplit

import httpx2
import orjson
import pytest

from agent.server.proxy import Proxy
from agent.server.proxy_outlet import COMPANY
from agent.server.stream import end_tasks
from agent.testing.stub_reply import RecordedRequest, Reply
from agent.testing.stub_server import StubModelServer
from hermes_state import SessionDB
from tests.best_of import best_of
from tests.proxy.conftest import MakeCaller
from tests.proxy.serving import MODEL, SMALL, Caller, serving
from tests.proxy.talk import is_summary
from tests.proxy.test_pressure import history

CLOSED_WITHIN_S = 1.0
"""Generous for a busy machine; alone it is a few milliseconds."""
STOPPED_WITHIN_S = 10.0
"""Far below what a call to a model may take."""
HALF = Reply(
    text="one two three four",
    chunks=["one two", " three four"],
    stall_after_chars=7,
    comments_every_s=0.02,
)
HI = [{"role": "user", "content": "hi"}]


class Visitor:
    """A client that sends one request and leaves when it likes."""

    def __init__(self, base_url: str, *, stream: bool) -> None:
        parts = urlsplit(base_url)
        body = orjson.dumps({"model": MODEL, "messages": HI, "stream": stream})
        self._socket = socket.create_connection((parts.hostname, parts.port))
        self._socket.sendall(
            b"POST /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\n"
            b"authorization: Bearer key-of-one\r\ncontent-length: %d\r\n\r\n%s" % (len(body), body)
        )

    def read_until(self, text: bytes) -> None:
        """Read until a text has arrived."""
        seen = b""
        while text not in seen:
            seen += self._socket.recv(65_536)

    def leave(self) -> None:
        """Close the connection."""
        self._socket.close()


def closed_at(request: RecordedRequest) -> float:
    """Return when the stub saw its client leave."""
    assert request.done.wait(10.0)
    assert request.client_closed_at is not None
    return request.client_closed_at


def rows_of(store: SessionDB) -> list[tuple[object, ...]]:
    [session] = store.sessions()
    view = store.view(session.id).messages
    return [(row["role"], row["content"], row.get("_finish_reason")) for row in view]


def wait_for_answer(store: SessionDB) -> None:
    """Return when what had arrived of the answer is stored, which comes after the close; the test's
    own limit ends a wait that is in vain."""
    tick = threading.Event()
    while len(rows_of(store)) < 2:
        tick.wait(0.005)


@pytest.mark.parametrize("stream", [True, False])
def test_leaving_before_the_first_byte_ends_the_upstreams_call_and_stores_no_answer(
    base_url: str, stub: StubModelServer, store: SessionDB, caller: MakeCaller, stream: bool
) -> None:
    stub.script([], then=Reply(before_first_byte_s=math.inf, comments_every_s=0.02))

    def seconds_to_close() -> float:
        count = len(stub.requests)
        visitor = Visitor(base_url, stream=stream)
        request = stub.wait_for_requests(count + 1)[count]
        left_at = time.monotonic()
        visitor.leave()
        return closed_at(request) - left_at

    assert best_of(seconds_to_close, CLOSED_WITHIN_S) < CLOSED_WITHIN_S
    stub.script([Reply(text="later")])
    assert rows_of(store) == [("user", "hi", None)]
    assert caller().say("hi")["content"] == "later"
    assert rows_of(store) == [("user", "hi", None), ("assistant", "later", "stop")]


def test_leaving_in_an_answer_ends_the_upstreams_call_at_once(
    base_url: str, stub: StubModelServer
) -> None:
    stub.script([], then=HALF)

    def seconds_to_close() -> float:
        count = len(stub.requests)
        visitor = Visitor(base_url, stream=True)
        visitor.read_until(b"one two")
        left_at = time.monotonic()
        visitor.leave()
        return closed_at(stub.requests[count]) - left_at

    assert best_of(seconds_to_close, CLOSED_WITHIN_S) < CLOSED_WITHIN_S


def test_what_had_arrived_is_kept_and_a_retry_is_another_branch(
    base_url: str, stub: StubModelServer, store: SessionDB, caller: MakeCaller
) -> None:
    stub.script([HALF, Reply(text="whole")])
    visitor = Visitor(base_url, stream=True)
    visitor.read_until(b"one two")
    visitor.leave()
    closed_at(stub.requests[0])
    wait_for_answer(store)
    caller().say("hi")
    by_answer = {
        tuple(row["content"] for row in store.view(session.id).messages)
        for session in store.sessions()
    }
    assert by_answer == {("hi", "one two"), ("hi", "whole")}


def test_a_client_that_keeps_what_it_saw_goes_on_in_the_same_conversation(
    base_url: str, stub: StubModelServer, store: SessionDB, caller: MakeCaller
) -> None:
    stub.script([HALF, Reply(text="fine")])
    visitor = Visitor(base_url, stream=True)
    visitor.read_until(b"one two")
    visitor.leave()
    closed_at(stub.requests[0])
    wait_for_answer(store)
    one = caller()
    one.messages = [*HI, {"role": "assistant", "content": "one two"}]
    one.say("and then?")
    assert [row[1] for row in rows_of(store)] == ["hi", "one two", "and then?", "fine"]


def test_an_upstream_that_breaks_in_an_answer_is_told_in_the_stream(
    stub: StubModelServer, store: SessionDB, caller: MakeCaller
) -> None:
    stub.script([Reply(text="one two", chunks=["one two", " three"], reset_after_chars=7)])
    one = caller()
    one.messages = HI
    text = one.post(stream=True).text
    last = orjson.loads(text.strip().rpartition("data: ")[2])
    assert ("one two" in text, last["error"]["type"]) == (True, "provider_error")
    assert rows_of(store)[1] == ("assistant", "one two", "interrupted")


def test_calls_that_were_cut_off_are_no_calls(
    stub: StubModelServer, store: SessionDB, caller: MakeCaller
) -> None:
    call = {"id": "c", "type": "function", "function": {"name": "f", "arguments": '{"path": "x"}'}}
    stub.script([Reply(text="so", tool_calls=[call], reset_after_chars=6)])
    one = caller()
    one.messages = HI
    one.post(stream=True)
    [session] = store.sessions()
    kept = store.view(session.id).messages[1]
    assert (kept["content"], "tool_calls" in kept) == ("so", False)


@pytest.mark.parametrize("stream", [True, False])
def test_a_proxy_that_stops_ends_what_outlasts_its_grace(
    stub: StubModelServer, store: SessionDB, stream: bool
) -> None:
    stub.script([Reply(before_first_byte_s=math.inf, comments_every_s=0.02, headers_first=False)])
    said: list[httpx2.Response] = []
    with ThreadPoolExecutor(1) as pool:
        with serving(store, stub.base_url, grace_s=0.05) as url:
            one = Caller(url)
            one.messages = HI
            asked = pool.submit(lambda: said.append(one.post(stream=stream)))
            stub.wait_for_requests(1)
        asked.result()
    one.http.close()
    [response] = said
    assert (response.status_code, response.json()["error"]["code"]) == (503, "stopped")
    assert rows_of(store) == [("user", "hi", None)]


def test_a_proxy_that_stops_leaves_the_pass_that_a_request_waits_for(
    stub: StubModelServer, store: SessionDB
) -> None:
    never = Reply(before_first_byte_s=math.inf, comments_every_s=0.02)
    stub.script(lambda request: never if is_summary(request) else Reply())
    stopped_at = math.inf
    with serving(store, stub.base_url, company_s=0.02, grace_s=0.05) as url, Caller(url) as one:
        one.messages = [*history(24), *HI]
        one.go_on()
        stub.wait_for_requests(2)
        one.messages = [*one.messages, *history(20), *HI]
        body = {**one.fields, "messages": one.messages, "stream": True}
        with one.http.stream("POST", "chat/completions", json=body) as response:
            assert next(response.iter_raw()).startswith(COMPANY)
            stopped_at = time.monotonic()
    assert time.monotonic() - stopped_at < STOPPED_WITHIN_S


def test_a_request_that_is_cut_off_while_it_sends_ends(
    stub: StubModelServer, store: SessionDB
) -> None:
    stub.script([Reply(chunks=["a "] * 500)])
    body = orjson.dumps({"model": MODEL, "messages": HI, "stream": True})
    path = "/v1/chat/completions"
    head = {"type": "http", "method": "POST", "path": path, "raw_path": path.encode()}

    async def cut_off() -> None:
        come = [{"type": "http.request", "body": body}]
        is_full = asyncio.Event()

        async def receive() -> dict[str, Any]:
            if not come:
                await asyncio.Future()
            return come.pop()

        async def send(_message: object) -> None:
            is_full.set()
            await asyncio.Future()

        scope = {**head, "query_string": b"", "headers": []}
        asked = asyncio.ensure_future(proxy(scope, receive, send))
        await is_full.wait()
        await end_tasks(asked)
        await asyncio.to_thread(proxy.close)

    proxy = Proxy(store, SMALL, stub.base_url)
    asyncio.run(cut_off())
    [request] = stub.requests
    assert request.done.wait(10.0)
