"""Bad requests: each gets its status and one line, none a traceback."""

from __future__ import annotations

import json
import shutil

import pytest

from agent.testing.builders import user
from agent.testing.network import closed_port
from agent.testing.stub_reply import Reply
from tests.server.served import CHAT, KEY, Served, chat_body, error_of, read_events

PIRATE = b'{"model": "stub-model", "messages": [{"role": "pirate", "content": "x"}]}'
SENSELESS = [
    (b"{", "invalid_json"),
    (b"", "invalid_value"),
    (b"[]", "invalid_value"),
    (b"null", "invalid_value"),
    (b'"text"', "invalid_value"),
    (b'{"model": NaN}', "invalid_json"),
    (b'{"model": "\xff"}', "invalid_utf8"),
    (b"[" * 50_000 + b"]" * 50_000, "invalid_json"),
    (b'{"a": ' * 150 + b"1" + b"}" * 150, "too_deep"),
    (b'{"model": "\\ud800", "messages": 1, "n": ' + b"9" * 30 + b"}", "invalid_number"),
    (b'{"model": 5, "messages": "x"}', "invalid_value"),
    (PIRATE, "invalid_value"),
]
FAILURES = [
    (Reply(status=401, error="no"), (502, "provider_error", "auth")),
    (Reply(status=400, error="odd"), (400, "invalid_request_error", "refused_by_provider")),
    (
        Reply(status=429, error={"message": "no money", "code": "insufficient_quota"}),
        (429, "insufficient_quota", "insufficient_quota"),
    ),
    (Reply(text="", finish="content_filter"), (400, "invalid_request_error", "content_filter")),
]


def test_a_body_that_makes_no_sense_is_told_in_one_line(served: Served) -> None:
    told = [(body, error_of(served.client.post(CHAT, content=body))) for body, _code in SENSELESS]
    assert told == [(body, (400, "invalid_request_error", code)) for body, code in SENSELESS]


def test_a_body_that_is_too_large_is_refused_announced_or_not(hermes: Served) -> None:
    served = hermes.start(max_body_bytes=1_000)
    try:
        large = b" " * 5_000
        whole = served.client.post(CHAT, content=large)
        assert error_of(whole) == (413, "invalid_request_error", "body_too_large")
        pieces = served.client.post(CHAT, content=iter([large[:600], large[600:]]))
        assert error_of(pieces) == (413, "invalid_request_error", "body_too_large")
    finally:
        served.stop()


def test_halves_of_characters_are_repaired_as_everywhere(served: Served) -> None:
    body = json.dumps(chat_body(user("a \ud83d b"))).encode()
    answer = served.client.post(CHAT, content=body)
    session = answer.headers["x-hermes-session"]
    assert served.rows(session)[0] == ("user", "a \ufffd b")


def test_paths_and_methods_that_are_not_served(served: Served) -> None:
    assert error_of(served.get("/nowhere")) == (404, "invalid_request_error", "not_found")
    assert error_of(served.get("/v1/models/")) == (404, "invalid_request_error", "model_not_found")
    wrong = served.client.put("/api/sessions")
    assert error_of(wrong) == (405, "invalid_request_error", "method_not_allowed")
    assert set(wrong.headers["allow"].split(", ")) == {"GET", "HEAD", "POST"}
    assert served.client.head("/api/sessions").status_code == 200


def test_a_query_that_makes_no_sense_is_refused(served: Served) -> None:
    queries = ("limit=0", "limit=x", "limit=99999999999999999999", "unknown=1")
    told = {error_of(served.get(f"/api/sessions?{query}")) for query in queries}
    assert told == {(400, "invalid_request_error", "invalid_value")}


def test_the_guard_stands_before_every_route(served: Served) -> None:
    served.client.headers.pop("Authorization")
    assert served.get("/healthz").status_code == 200
    assert served.get("/readyz").status_code == 200
    assert served.get("/openapi.json").status_code == 200
    for path in ("/metrics", "/v1/models", "/api/sessions", "/nowhere"):
        assert error_of(served.get(path)) == (401, "authentication_error", "invalid_api_key")
    headers = {**KEY, "Host": "evil.example"}
    assert error_of(served.get("/v1/models", headers=headers))[::2] == (403, "unknown_host")
    headers = {**KEY, "Origin": "https://evil.example"}
    assert error_of(served.get("/v1/models", headers=headers))[::2] == (403, "unknown_origin")


@pytest.mark.parametrize("stream", [False, True])
def test_failures_of_the_provider_have_their_status(served: Served, stream: bool) -> None:
    for reply, told in FAILURES:
        served.stub.script([], then=reply)
        answer = served.chat(user("hi"), stream=stream)
        assert error_of(answer) == told
        assert answer.headers["x-hermes-session"]


def test_an_answer_that_breaks_is_told_by_status_or_as_the_last_event(served: Served) -> None:
    served.stub.script([], then=Reply(text="broken", finish=None))
    assert error_of(served.chat(user("hi"))) == (502, "provider_error", "network")
    *pieces, last = read_events(served.chat(user("hi"), stream=True))
    assert last["error"]["code"] == "network"
    assert "".join(p["choices"][0]["delta"].get("content", "") for p in pieces) == "broken"


def test_readiness_says_what_is_missing(hermes: Served) -> None:
    with closed_port() as port:
        hermes.model_url = f"http://127.0.0.1:{port}/v1"
        served = hermes.start()
        try:
            answer = served.get("/readyz")
            shape = answer.json()
            assert (answer.status_code, shape["status"]) == (503, "not ready")
            assert "127.0.0.1" in shape["checks"].pop("model")
            assert shape["checks"] == {"store": "ok", "server": "ok"}
        finally:
            served.stop()


def test_a_server_whose_disk_is_full_is_not_ready(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    usage = shutil.disk_usage(served.path)._replace(free=1_000)
    monkeypatch.setattr(shutil, "disk_usage", lambda _path: usage)
    answer = served.get("/readyz")
    told = (
        f"the disk of {str(served.path / 'served.db')!r} has 1000 bytes left, where 16777216 are "
        "needed; free some space"
    )
    assert (answer.status_code, answer.json()["checks"]["store"]) == (503, told)


def test_a_server_that_lacks_nothing_is_ready(served: Served) -> None:
    assert served.get("/readyz").json() == {
        "status": "ready",
        "checks": {"store": "ok", "model": "ok", "server": "ok"},
    }


def test_a_context_that_cannot_fit_is_told_before_anything_is_sent(hermes: Served) -> None:
    hermes.window_tokens = 4_096
    served = hermes.start()
    try:
        tool = {"name": "big", "description": "word " * 6_000, "parameters": {}}
        answer = served.chat(user("hi"), tools=[{"type": "function", "function": tool}])
        assert error_of(answer) == (400, "invalid_request_error", "context_length_exceeded")
        assert served.stub.requests == []
    finally:
        served.stop()
