"""What goes through: bodies as they came, answers byte for byte, errors unchanged."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import orjson
import pytest

from agent.base.settings import ProxySettings, Settings
from agent.testing.network import closed_port
from agent.testing.stub_reply import Reply
from agent.testing.stub_server import StubModelServer
from hermes_state import SessionDB
from tests.proxy.conftest import MakeCaller
from tests.proxy.serving import MODEL, Caller, ask, serving

SSE = (
    b": hello\n\n"
    b'data: {"id":"x","choices":[{"index":0,"delta":{"role":"assistant","content":"wo"}}]}\n\n'
    b": keep-alive \xc3\xa4\n\n"
    b'data:{"choices":[{"index":0,"delta":{"content":"rd"},"finish_reason":null}]}\r\n\r\n'
    b'event: note\ndata: {"choices":[{"index":0,"delta":{},"finish_reason":"stop"}],"odd":1}\n\n'
    b"data: [DONE]\n\n"
)


@contextmanager
def upstream_of(*pieces: bytes) -> Iterator[tuple[str, list[bytes]]]:
    """Serve one answer, in exactly these pieces, each when the one before it was sent."""
    listener = socket.create_server(("127.0.0.1", 0))
    heard: list[bytes] = []

    def serve() -> None:
        connection, _address = listener.accept()
        with connection:
            data = b""
            while b"\r\n\r\n" not in data:
                data += connection.recv(65_536)
            head, _, body = data.partition(b"\r\n\r\n")
            length = int(head.lower().partition(b"content-length: ")[2].split(b"\r\n")[0])
            while len(body) < length:
                body += connection.recv(65_536)
            heard.extend((head, body))
            for piece in pieces:
                connection.sendall(piece)

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}/v1", heard
    finally:
        thread.join()
        listener.close()


def test_a_stream_goes_through_byte_for_byte_and_is_stored(store: SessionDB) -> None:
    head = (
        b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream; charset=utf-8\r\n"
        b"x-request-id: req-7\r\nset-cookie: a=1\r\nset-cookie: b=2\r\nconnection: close\r\n\r\n"
    )
    with (
        upstream_of(head, SSE[:30], SSE[30:200], SSE[200:]) as (upstream, _heard),
        serving(store, upstream) as url,
        Caller(url) as caller,
    ):
        caller.messages = [{"role": "user", "content": "go"}]
        with caller.http.stream(
            "POST",
            "chat/completions",
            json={"model": MODEL, "messages": caller.messages, "stream": True},
        ) as response:
            received = b"".join(response.iter_raw())
    kept = [(k, v) for k, v in response.headers.multi_items() if k != "date"]
    assert received == SSE
    assert kept == [
        ("content-type", "text/event-stream; charset=utf-8"),
        ("x-request-id", "req-7"),
        ("set-cookie", "a=1"),
        ("set-cookie", "b=2"),
        ("transfer-encoding", "chunked"),
    ]
    [session] = store.sessions()
    rows = [(r["role"], r["content"]) for r in store.view(session.id).messages]
    assert rows == [("user", "go"), ("assistant", "word")]


def test_body_and_headers_go_up_as_they_came(store: SessionDB) -> None:
    body = (
        b'{ "messages": [ {"content":"\\u00e4 1.0 \\/", "odd": 12345678901234567890123,'
        b' "role":"user"} ],\n "model":"m", "seed": 1.0, "unknown": {"b":1,"a":[]} }'
    )
    answer = orjson.dumps({"choices": [{"message": {"role": "assistant", "content": "ok"}}]})
    head = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n"
    with (
        upstream_of(head % len(answer) + answer) as (upstream, heard),
        serving(store, upstream) as url,
    ):
        response = ask(
            "POST",
            f"{url}/chat/completions?api-version=1",
            content=body,
            headers={
                "authorization": "Bearer secret-key-1",
                "openai-organization": "org-1",
                "content-type": "application/json",
                "user-agent": "theirs/1",
                "cookie": "a=b",
            },
        )
    lines = heard[0].decode().lower().split("\r\n")
    sent = dict(line.split(": ", 1) for line in lines[1:])
    assert (response.content, heard[1]) == (answer, body)
    assert lines[0] == "post /v1/chat/completions?api-version=1 http/1.1"
    assert sent.pop("host").startswith("127.0.0.1:")
    assert sent == {
        "authorization": "bearer secret-key-1",
        "openai-organization": "org-1",
        "content-type": "application/json",
        "user-agent": "theirs/1",
        "accept": "*/*",
        "accept-encoding": "identity",
        "content-length": str(len(body)),
    }


def test_a_key_is_in_no_file(caller: MakeCaller, store: SessionDB, tmp_path: Path) -> None:
    caller(key="sk-very-secret-key-0123456789").say("hello")
    data = b"".join(p.read_bytes() for p in tmp_path.rglob("*") if p.is_file())
    assert b"very-secret-key" not in data
    assert b"hello" in data


@pytest.mark.parametrize("status", [400, 401, 429, 500, 503])
@pytest.mark.parametrize("stream", [False, True])
def test_errors_of_the_upstream_go_through_unchanged(
    caller: MakeCaller, stub: StubModelServer, status: int, stream: bool
) -> None:
    reply = Reply(status=status, error="not now", headers={"Retry-After": "7", "X-Odd": "1"})
    stub.script([reply])
    one = caller()
    one.messages = [{"role": "user", "content": "hi"}]
    response = one.post(stream=stream)
    assert (response.status_code, response.json()["error"]["message"]) == (status, "not now")
    assert (response.headers["retry-after"], response.headers["x-odd"]) == ("7", "1")
    assert len(stub.requests) == 1


def test_an_error_leaves_nothing_to_fork(
    caller: MakeCaller, stub: StubModelServer, store: SessionDB
) -> None:
    stub.script([Reply(status=503, error="busy"), Reply(text="at last")])
    one = caller()
    one.messages = [{"role": "user", "content": "hi"}]
    assert one.post().status_code == 503
    assert one.go_on()["content"] == "at last"
    assert [session.message_count for session in store.sessions()] == [2]


def test_what_the_client_said_is_stored_before_it_is_forwarded(
    caller: MakeCaller, stub: StubModelServer, store: SessionDB
) -> None:
    seen: list[list[object]] = []

    def look(_request: object) -> Reply:
        seen.append([r["content"] for r in store.view(store.sessions()[0].id).messages])
        return Reply(text="fine")

    stub.script(look)
    caller().say("keep this")
    assert seen == [["keep this"]]


def test_what_a_client_adds_is_stored_before_it_hears_of_an_answer(
    caller: MakeCaller, stub: StubModelServer, store: SessionDB
) -> None:
    half = Reply(text="one two", chunks=["one", " two"], stall_after_chars=3, comments_every_s=0.02)
    stub.script([Reply(text="fine"), half])
    one = caller()
    one.say("first")
    one.messages.append({"role": "user", "content": "second"})
    body = {**one.fields, "messages": one.messages, "stream": True}
    with one.http.stream("POST", "chat/completions", json=body) as response:
        next(response.iter_raw())
        view = store.view(store.sessions()[0].id).messages
    assert [row["content"] for row in view] == ["first", "fine", "second"]


def test_an_answer_to_what_cannot_be_stored_is_not_given(
    caller: MakeCaller, store: SessionDB, tmp_path: Path
) -> None:
    one = caller()
    one.say("first")
    store.path.rename(tmp_path / "away")
    one.messages.append({"role": "user", "content": "second"})
    response = one.post()
    (tmp_path / "away").rename(store.path)
    assert response.status_code == 503
    assert "was moved, removed or replaced" in response.json()["error"]["message"]
    assert one.post().status_code == 200
    view = store.view(store.sessions()[0].id).messages
    assert [row["content"] for row in view[:1] + view[2:3]] == ["first", "second"]


def test_what_an_unreachable_upstream_did_not_hear_is_stored(
    store: SessionDB, stub: StubModelServer
) -> None:
    with serving(store, stub.base_url) as url, Caller(url) as one:
        one.say("first")
    with (
        closed_port() as port,
        serving(store, f"http://127.0.0.1:{port}/v1") as url,
        Caller(url) as two,
    ):
        two.messages = [*one.messages, {"role": "user", "content": "second"}]
        assert two.post().status_code == 502
    [session] = store.sessions()
    assert session.message_count == 3


def test_tools_and_images_of_a_client_reach_the_upstream_and_the_store(
    caller: MakeCaller, stub: StubModelServer, store: SessionDB
) -> None:
    call = {"id": "call_9", "type": "function", "function": {"name": "f", "arguments": '{"a":1}'}}
    stub.script([Reply(text=None, tool_calls=[call]), Reply(text="done")])
    tools = [{"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}]
    image = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}
    one = caller(tools=tools)
    one.messages = [{"role": "user", "content": [{"type": "text", "text": "see"}, image]}]
    assert one.go_on()["tool_calls"] == [call]
    one.messages.append({"role": "tool", "tool_call_id": "call_9", "content": "x", "odd": [1]})
    one.go_on()
    assert stub.requests[1].messages == one.messages[:3]
    assert stub.requests[1].body["tools"] == tools
    [session] = store.sessions()
    view = store.view(session.id).messages
    assert view[0]["content"] == one.messages[0]["content"]
    assert (view[1]["tool_calls"], view[2]["odd"]) == ([call], [1])


def test_models_are_listed_as_the_upstream_lists_them(base_url: str, stub: StubModelServer) -> None:
    own = ask("GET", f"{base_url}/models")
    direct = ask("GET", f"{stub.base_url}/models")
    assert (own.status_code, own.json()) == (200, direct.json())


@pytest.mark.parametrize(
    ("method", "path", "status", "code"),
    [
        ("GET", "/chat/completions", 405, "method_not_allowed"),
        ("POST", "/models", 405, "method_not_allowed"),
        ("POST", "/responses", 404, "not_found"),
        ("GET", "/modelsx/..", 404, "not_found"),
    ],
)
def test_other_requests_are_refused_as_errors_of_the_api(
    base_url: str, method: str, path: str, status: int, code: str
) -> None:
    response = ask(method, base_url + path)
    assert (response.status_code, response.json()["error"]["code"]) == (status, code)


@pytest.mark.parametrize("body", [b"{", b'{"messages": 1}', b'{"messages": [{}]}', b"null"])
def test_what_cannot_be_read_is_refused_before_anything_is_sent(
    base_url: str, stub: StubModelServer, body: bytes
) -> None:
    response = ask("POST", f"{base_url}/chat/completions", content=body)
    assert (response.status_code, response.json()["error"]["type"]) == (
        400,
        "invalid_request_error",
    )
    assert stub.requests == []


def test_a_request_without_rows_is_the_upstreams_to_judge(
    base_url: str, stub: StubModelServer
) -> None:
    body = {"model": MODEL, "messages": []}
    response = ask("POST", f"{base_url}/chat/completions", json=body)
    assert (response.status_code, stub.requests[0].body) == (400, body)


def test_an_upstream_that_is_not_there_is_a_bad_gateway(store: SessionDB) -> None:
    with (
        closed_port() as port,
        serving(store, f"http://127.0.0.1:{port}/v1") as url,
        Caller(url) as caller,
    ):
        caller.messages = [{"role": "user", "content": "hi"}]
        response = caller.post()
    assert (response.status_code, response.json()["error"]["type"]) == (502, "provider_error")


@pytest.mark.parametrize("header", ["host", "origin"])
def test_a_page_of_another_site_is_kept_out(base_url: str, header: str) -> None:
    response = ask("GET", f"{base_url}/models", headers={header: "http://evil.example"})
    assert response.status_code == 403


@pytest.mark.parametrize(
    ("header", "value"),
    [("authorization", "Bearer k"), ("authorization", "bearer  k"), ("api-key", "k")],
)
def test_a_key_is_the_same_wherever_it_stands(
    base_url: str, store: SessionDB, header: str, value: str
) -> None:
    for messages in (
        [],
        [{"role": "assistant", "content": "ok"}, {"role": "user", "content": "b"}],
    ):
        body = {"model": MODEL, "messages": [{"role": "user", "content": "a"}, *messages]}
        headers = {header: value} if messages else {"authorization": "Bearer k"}
        ask("POST", f"{base_url}/chat/completions", json=body, headers=headers)
    assert [session.message_count for session in store.sessions()] == [4]


def test_credentials_of_any_kind_tell_callers_apart(base_url: str, store: SessionDB) -> None:
    values = ("Basic YTpi", "Basic YTpj", "Bearer two words", "Bearer two wörds", "")
    for value in values:
        body = {"model": MODEL, "messages": [{"role": "user", "content": "a " * 15_000}]}
        headers = [(b"authorization", value.encode())] if value else []
        response = ask("POST", f"{base_url}/chat/completions", json=body, headers=headers)
        assert response.status_code == 200
    assert len(store.sessions()) == len(values)


def test_more_requests_than_are_served_at_once_get_429(
    store: SessionDB, stub: StubModelServer, held: Callable[[], threading.Event]
) -> None:
    release = held()
    settings = Settings(proxy=ProxySettings(context_length=8_192, max_requests=1))
    with serving(store, stub.base_url, settings) as url, Caller(url) as one, Caller(url) as two:
        thread = threading.Thread(target=one.say, args=("first",))
        thread.start()
        stub.wait_for_requests(1)
        two.messages = [{"role": "user", "content": "second"}]
        response = two.post()
        release.set()
        thread.join()
    assert response.status_code == 429
    assert response.headers["retry-after"] == "1"
    assert "proxy.max_requests" in response.json()["error"]["message"]
