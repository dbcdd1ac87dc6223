"""Requests and answers that nobody should send: each is answered, none gets further than it may."""

from __future__ import annotations

import httpx2
import pytest

from agent.testing.stub_reply import Reply
from agent.testing.stub_server import StubModelServer
from hermes_state import SessionDB
from tests.proxy.conftest import MakeCaller
from tests.proxy.serving import MODEL, ask

DEEP = b"[" * 5_000 + b"]" * 5_000
JSON = {"content-type": "application/json"}
EVENTS = {"content-type": "text/event-stream"}


def deep_request(depth: int) -> bytes:
    nested = b"[" * depth + b"]" * depth
    message = b'{"role":"user","content":"hello","x":%s}' % nested
    return b'{"model":"%s","messages":[%s]}' % (MODEL.encode(), message)


def test_a_body_that_is_nested_too_deep_is_refused(base_url: str, stub: StubModelServer) -> None:
    url = f"{base_url}/chat/completions"
    answer = ask("POST", url, content=deep_request(5_000))
    assert answer.status_code == 400
    assert answer.json()["error"]["message"] == "the body is no JSON: it is nested too deep"
    assert stub.requests == []


@pytest.mark.parametrize(("depth", "status"), [(90, 200), (300, 400), (900, 400), (1_000, 400)])
def test_so_is_one_that_can_be_read_and_not_be_stored(
    base_url: str, depth: int, status: int
) -> None:
    url = f"{base_url}/chat/completions"
    answer = ask("POST", url, content=deep_request(depth))
    assert answer.status_code == status, answer.text


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    ("status", "headers", "body"),
    [
        (200, JSON, b'{"choices":[{"message":{"role":"assistant","x":%s}}]}' % DEEP),
        (400, JSON, b'{"error":%s}' % DEEP),
        (200, EVENTS, b'data: {"choices":%s}\n\ndata: [DONE]\n\n' % DEEP),
    ],
)
def test_an_answer_that_is_nested_too_deep_goes_through(
    caller: MakeCaller,
    stub: StubModelServer,
    store: SessionDB,
    status: int,
    headers: dict[str, str],
    body: bytes,
    stream: bool,
) -> None:
    stub.script([Reply(status=status, raw_body=body, headers=headers)])
    one = caller()
    one.messages.append({"role": "user", "content": "hello"})
    answer = one.post(stream=stream)
    assert (answer.status_code, answer.content) == (status, body)
    [session] = store.sessions()
    assert [row["content"] for row in store.accepted_rows(session.id, 1, 9)] == ["hello"]


@pytest.mark.parametrize(
    "path", ["/models/%2e%2e/%2e%2e/admin", "/models/..%2Fadmin", "/models/%2E/x", "/modelsx"]
)
def test_no_path_leads_to_other_places_of_the_upstream(
    base_url: str, stub: StubModelServer, path: str
) -> None:
    answer = ask("GET", httpx2.URL(f"{base_url}{path}"))
    assert answer.status_code == 404
    assert stub.requests == []


def test_a_model_is_asked_for_as_the_client_wrote_it(base_url: str, stub: StubModelServer) -> None:
    ask("GET", f"{base_url}/models/org%2Fmodel%3Fx%20y?limit=%202")
    [request] = stub.requests
    assert request.path == "/v1/models/org%2Fmodel%3Fx%20y?limit=%202"


def test_a_path_that_is_not_served_is_told_what_is(base_url: str) -> None:
    answer = ask("POST", f"{base_url}/embeddings", json={})
    assert answer.status_code == 404
    assert answer.json()["error"]["message"] == (
        "no such path '/v1/embeddings': the proxy serves /v1/chat/completions and /v1/models; "
        "ask the endpoint itself for others"
    )
