"""The stub model server over real HTTP, read by the stdlib's client."""

from __future__ import annotations

import http.client
import json
import threading
import time
from typing import Any
from urllib.parse import urlsplit

import pytest

from agent.testing.builders import call
from agent.testing.stub_reply import RecordedRequest, Reply
from agent.testing.stub_server import StubModelServer
from tests.best_of import best_of

HELLO = [{"role": "user", "content": "hello"}]


def _open(stub: StubModelServer) -> http.client.HTTPConnection:
    return http.client.HTTPConnection(urlsplit(stub.base_url).netloc, timeout=10)


def _post(stub: StubModelServer, **fields: Any) -> tuple[int, bytes]:
    body = {"model": "stub-model", "messages": HELLO, **fields}
    connection = _open(stub)
    try:
        connection.request("POST", "/v1/chat/completions", json.dumps(body))
        response = connection.getresponse()
        return response.status, response.read()
    finally:
        connection.close()


def _events(raw: bytes) -> list[Any]:
    lines = [line for line in raw.decode().split("\n\n") if line]
    assert lines[-1] == "data: [DONE]"
    return [json.loads(line.removeprefix("data: ")) for line in lines[:-1]]


def test_a_whole_answer_has_text_finish_and_usage(stub: StubModelServer) -> None:
    stub.script([Reply(text="good morning")])
    status, raw = _post(stub)
    answer = json.loads(raw)
    assert status == 200
    assert answer["choices"] == [
        {
            "index": 0,
            "message": {"role": "assistant", "content": "good morning"},
            "finish_reason": "stop",
        }
    ]
    assert answer["usage"] == {
        "prompt_tokens": 6,
        "completion_tokens": 3,
        "total_tokens": 9,
        "prompt_tokens_details": {"cached_tokens": 0},
        "completion_tokens_details": {"reasoning_tokens": 0},
    }


def test_a_stream_comes_in_pieces_that_join_to_the_text(stub: StubModelServer) -> None:
    text = "a text of some length, sent in pieces, with 日本語 inside"
    stub.script([Reply(text=text, reasoning="thinking about it first")])
    _, raw = _post(stub, stream=True, stream_options={"include_usage": True})
    events = _events(raw)
    deltas = [event["choices"][0]["delta"] for event in events if event["choices"]]
    assert "".join(delta.get("content") or "" for delta in deltas) == text
    assert "".join(delta.get("reasoning_content", "") for delta in deltas) == (
        "thinking about it first"
    )
    assert len(deltas) > 5
    assert events[-2]["choices"][0]["finish_reason"] == "stop"
    assert events[-1]["choices"] == []
    assert events[-1]["usage"]["completion_tokens"] == 16 + 6


def test_the_server_hears_at_once_when_the_client_leaves_a_silence(stub: StubModelServer) -> None:
    stub.script([], then=Reply(before_first_byte_s=60))
    body = json.dumps({"model": "m", "messages": HELLO, "stream": True})

    def heard_after_s() -> float:
        connection, asked = _open(stub), len(stub.requests)
        connection.request("POST", "/v1/chat/completions", body)
        response = connection.getresponse()
        request = stub.wait_for_requests(asked + 1)[-1]
        left_at = time.monotonic()
        response.close()
        connection.close()
        assert request.done.wait(10)
        assert request.client_closed_at is not None
        return request.client_closed_at - left_at

    assert best_of(heard_after_s, 1.0) < 1.0


@pytest.mark.parametrize("streamed", [True, False])
def test_a_silence_does_not_delay_the_end_of_the_server(streamed: bool) -> None:
    body = json.dumps({"model": "m", "messages": HELLO, "stream": streamed})

    def left_after_s() -> float:
        with StubModelServer([Reply(before_first_byte_s=60)]) as stub:
            connection = _open(stub)
            connection.request("POST", "/v1/chat/completions", body)
            [request] = stub.wait_for_requests(1)
            leaving_at = time.monotonic()
        took_s = time.monotonic() - leaving_at
        assert request.client_closed_at is None
        connection.close()
        return took_s

    assert best_of(left_after_s, 1.0) < 1.0


def test_a_silence_ends_when_the_test_releases_it(stub: StubModelServer) -> None:
    release = threading.Event()
    stub.script([Reply(text="late", before_first_byte_s=60, release=release)])
    answers: list[tuple[int, bytes]] = []
    caller = threading.Thread(target=lambda: answers.append(_post(stub)))
    caller.start()
    stub.wait_for_requests(1)
    assert answers == []
    release.set()
    caller.join(10)
    assert json.loads(answers[0][1])["choices"][0]["message"]["content"] == "late"


def test_comment_lines_go_out_during_a_silence(stub: StubModelServer) -> None:
    release = threading.Event()
    stub.script([Reply(before_first_byte_s=60, comments_every_s=0.01, release=release)])
    connection = _open(stub)
    body = json.dumps({"model": "m", "messages": HELLO, "stream": True})
    connection.request("POST", "/v1/chat/completions", body)
    response = connection.getresponse()
    assert [response.readline() for _ in range(4)] == [b": keep-alive\n", b"\n"] * 2
    release.set()
    assert response.read().endswith(b"data: [DONE]\n\n")
    connection.close()


def test_a_reset_breaks_the_answer_in_the_middle(stub: StubModelServer) -> None:
    stub.script([Reply(text="x" * 500, reset_after_chars=60)] * 2)
    with pytest.raises((ConnectionResetError, http.client.IncompleteRead)):
        _post(stub, stream=True)
    with pytest.raises((ConnectionResetError, http.client.IncompleteRead)):
        _post(stub)


def test_a_stream_can_end_by_a_close_with_nothing_that_tells_so(stub: StubModelServer) -> None:
    stub.script([Reply(text="half of a", close_without_finish=True)])
    status, raw = _post(stub, stream=True)
    assert status == 200
    assert b"DONE" not in raw
    assert b'"finish_reason":"' not in raw


def test_replies_go_by_model_name_and_then_to_the_last_one(stub: StubModelServer) -> None:
    stub.script([Reply(text="one"), Reply(text="two")], then=Reply(text="more"))
    stub.script(
        lambda request: Reply(text=f"summary of {len(request.messages)}"), model="stub-summary"
    )

    def ask(model: str) -> str:
        return str(json.loads(_post(stub, model=model)[1])["choices"][0]["message"]["content"])

    assert [ask(m) for m in ("a", "stub-summary", "a", "a", "stub-summary")] == [
        "one",
        "summary of 1",
        "two",
        "more",
        "summary of 1",
    ]
    assert len(stub.requests_for("stub-summary")) == 2


def test_an_error_is_shaped_as_providers_shape_it(stub: StubModelServer) -> None:
    stub.script([Reply(status=429, error="slow down", headers={"Retry-After": "7"})])
    status, raw = _post(stub)
    assert (status, json.loads(raw)) == (
        429,
        {
            "error": {
                "message": "slow down",
                "type": "rate_limit_error",
                "param": None,
                "code": None,
            }
        },
    )


def test_one_connection_serves_many_requests(stub: StubModelServer) -> None:
    connection = _open(stub)
    body = json.dumps({"model": "m", "messages": HELLO, "stream": True})
    for _ in range(3):
        connection.request("POST", "/v1/chat/completions", body)
        assert connection.getresponse().read().endswith(b"[DONE]\n\n")
    connection.request("GET", "/v1/models")
    models = json.loads(connection.getresponse().read())
    assert [model["id"] for model in models["data"]] == ["stub-model"]
    connection.request("GET", "/v1/nothing")
    assert connection.getresponse().status == 404
    connection.close()


def test_what_a_script_function_raises_is_raised_when_the_server_ends() -> None:
    def fail(_request: RecordedRequest) -> Reply:
        raise KeyError("no reply for this")

    with pytest.raises(KeyError), StubModelServer(fail) as stub:
        assert _post(stub)[0] == 500


def test_a_refused_request_takes_nothing_from_the_script(stub: StubModelServer) -> None:
    stub.script([Reply(text="first")])
    status, raw = _post(stub, messages=[])
    assert status == 400
    assert (
        json.loads(raw)["error"]["message"] == "messages is empty; at least one message is needed"
    )
    assert b"first" in _post(stub)[1]


def test_tool_calls_come_in_pieces(stub: StubModelServer) -> None:
    made = call("write_file", {"path": "a.txt", "text": "some longer text"}, call_id="t1")
    other = call("list_files", {}, call_id="t2")
    stub.script([Reply(text=None, tool_calls=[made, other])] * 2)
    events = _events(_post(stub, stream=True)[1])
    joined: dict[int, dict[str, str]] = {}
    for event in events:
        for piece in event["choices"][0]["delta"].get("tool_calls", ()):
            into = joined.setdefault(piece["index"], {"id": "", "name": "", "arguments": ""})
            into["id"] += piece.get("id", "")
            into["name"] += piece["function"].get("name", "")
            into["arguments"] += piece["function"]["arguments"]
    assert list(joined.values()) == [
        {"id": each["id"], **each["function"]} for each in (made, other)
    ]
    assert len(events) > 6
    assert events[-1]["choices"][0]["finish_reason"] == "tool_calls"
    message = json.loads(_post(stub)[1])["choices"][0]["message"]
    assert message == {"role": "assistant", "content": None, "tool_calls": [made, other]}


@pytest.mark.parametrize("streamed", [True, False])
def test_an_answer_can_have_no_choices(stub: StubModelServer, streamed: bool) -> None:
    stub.script([Reply(choices_empty=True)])
    _, raw = _post(stub, stream=streamed)
    answers = _events(raw) if streamed else [json.loads(raw)]
    assert [answer["choices"] for answer in answers] == [[]]


def test_a_stream_can_be_ignored_and_a_finish_left_out(stub: StubModelServer) -> None:
    stub.script([Reply(text="whole", ignore_stream=True, usage=None), Reply(finish=None)])
    answer = json.loads(_post(stub, stream=True)[1])
    assert answer["choices"][0]["message"]["content"] == "whole"
    assert "usage" not in answer
    events = _events(_post(stub, stream=True)[1])
    assert {event["choices"][0]["finish_reason"] for event in events} == {None}


def test_a_raw_body_goes_out_as_it_is(stub: StubModelServer) -> None:
    body = b"<html>Bad gateway</html>"
    stub.script([Reply(raw_body=body, status=502, headers={"Content-Type": "text/html"})])
    assert _post(stub) == (502, body)


def test_given_pieces_and_usage_go_out_as_they_are(stub: StubModelServer) -> None:
    usage = {"prompt_tokens": 1, "completion_tokens": 2, "total_tokens": 3}
    stub.script([Reply(chunks=["a", "", "bc"], usage=usage)] * 2)
    events = _events(_post(stub, stream=True, stream_options={"include_usage": True})[1])
    pieces = [event["choices"][0]["delta"].get("content") for event in events[1:4]]
    assert (pieces, events[-1]["usage"]) == (["a", "", "bc"], usage)
    assert json.loads(_post(stub)[1])["choices"][0]["message"]["content"] == "abc"


def test_silence_can_precede_the_headers_or_fall_in_mid_stream(stub: StubModelServer) -> None:
    stub.script(
        [
            Reply(before_first_byte_s=60, headers_first=False),
            Reply(text="x" * 100, stall_after_chars=24),
        ]
    )
    for has_status in (False, True):
        connection = _open(stub)
        body = json.dumps({"model": "m", "messages": HELLO, "stream": True})
        connection.request("POST", "/v1/chat/completions", body)
        request = stub.wait_for_requests(1 + has_status)[-1]
        if has_status:
            response = connection.getresponse()
            arrived = b"".join(response.readline() for _ in range(6))
            assert arrived.count(b'"content":"xxxxxxxxxxxx"') == 2
            response.close()
        connection.close()
        assert request.done.wait(10)
        assert (request.status, request.client_closed_at is not None) == (
            200 if has_status else None,
            True,
        )


def test_a_delay_stands_before_each_further_frame(stub: StubModelServer) -> None:
    stub.script([Reply(chunks=["a", "b", "c"], chunk_delay_s=0.02)])
    began_at = time.monotonic()
    _post(stub, stream=True)
    assert time.monotonic() - began_at >= 5 * 0.02


def test_each_model_has_its_own_window(stub: StubModelServer) -> None:
    stub.script([], model="stub-summary", window_tokens=10)
    long = [{"role": "user", "content": "x" * 400}]
    assert _post(stub, messages=long)[0] == 200
    status, raw = _post(stub, messages=long, model="stub-summary")
    assert (status, json.loads(raw)["error"]) == (
        400,
        {
            "message": "This model's maximum context length is 10 tokens. "
            "However, your messages resulted in 104 tokens.",
            "type": "invalid_request_error",
            "param": None,
            "code": "context_length_exceeded",
        },
    )
    assert stub.requests[-1].refusal.endswith("104 tokens.")


def test_a_lax_server_answers_what_a_strict_one_refuses() -> None:
    with StubModelServer(strict=False) as stub:
        assert _post(stub, messages=[])[0] == 200
        assert stub.requests[0].refusal == ""


@pytest.mark.parametrize(
    ("raw", "why"),
    [
        (b"{", "the body is no JSON: "),
        (b"[]", "the body must be a JSON object, not list"),
        (b"\xff", "the body is no JSON: "),
        (
            b'{"messages": [{"role": "user", "content": "\\ud800"}]}',
            "the body holds a lone surrogate",
        ),
        (
            b'{"messages": [{"role": "user", "content": "\xed\xa0\x80"}]}',
            "the body holds a lone surrogate",
        ),
    ],
)
def test_a_broken_body_gets_400(stub: StubModelServer, raw: bytes, why: str) -> None:
    connection = _open(stub)
    connection.request("POST", "/v1/chat/completions", raw)
    response = connection.getresponse()
    assert response.status == 400
    assert json.loads(response.read())["error"]["message"].startswith(why)
    connection.close()


def test_a_request_is_recorded_whole(stub: StubModelServer) -> None:
    before = time.monotonic()
    _post(stub, temperature=0)
    [request] = stub.requests
    assert request.done.wait(10)
    assert (request.method, request.path) == ("POST", "/v1/chat/completions")
    assert request.body == json.loads(request.raw)
    assert request.messages == HELLO
    assert request.headers["content-length"] == str(len(request.raw))
    assert (request.status, request.client_closed_at) == (200, None)
    assert request.finished_at is not None
    assert before <= request.arrived_at <= request.finished_at


def test_waiting_for_requests_that_do_not_come_names_the_counts(stub: StubModelServer) -> None:
    with pytest.raises(TimeoutError, match=r"^0 of 2 requests arrived within 0\.01 s$"):
        stub.wait_for_requests(2, timeout_s=0.01)


def test_a_client_that_leaves_while_it_sends_is_recorded(stub: StubModelServer) -> None:
    connection = _open(stub)
    connection.putrequest("POST", "/v1/chat/completions")
    connection.putheader("Content-Length", "1000")
    connection.endheaders(b"{")
    connection.close()
    [request] = stub.wait_for_requests(1)
    assert request.done.wait(10)
    assert (request.raw, request.status) == (b"{", None)
    assert request.client_closed_at is not None
