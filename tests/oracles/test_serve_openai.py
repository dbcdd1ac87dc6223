"""The official `openai` client, unchanged, and `schemathesis` as judges of `hermes serve`."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from agent.testing.builders import call, image, user
from agent.testing.stub_reply import Reply
from agent.testing.stub_server import StubModelServer
from tests.server.served import TOKEN, Served

# A client alone takes seconds to start, more on a busy machine.
pytestmark = [pytest.mark.oracles, pytest.mark.timeout(240)]

BIN = Path(__file__).parents[2] / ".venv-oracles" / "bin"
SAME_EACH_TIME = "--generation-deterministic"
"""What is made up is then the same in each run, as for our own properties in CI."""
NODE = Path(__file__).parent / "node"

CLIENT = """
import json, sys
import openai

given = json.load(sys.stdin)
client = openai.OpenAI(base_url=given["base_url"], api_key=given["key"], max_retries=0, timeout=60)


def tell(failure):
    return {
        "error": type(failure).__name__,
        "status": failure.status_code,
        "code": failure.code,
        "session": failure.response.headers.get("x-hermes-session"),
    }


def chat(asked):
    raw = client.chat.completions.with_raw_response.create(**asked)
    return {"answer": raw.parse().model_dump(), "session": raw.headers["x-hermes-session"]}


def chat_stream(asked):
    text, calls, finish, usage = "", {}, None, None
    for chunk in client.chat.completions.create(stream=True, **asked):
        usage = chunk.usage or usage
        for choice in chunk.choices:
            text += choice.delta.content or ""
            finish = choice.finish_reason or finish
            for call in choice.delta.tool_calls or ():
                calls[call.index] = call.model_dump(exclude={"index"})
    calls = list(calls.values())
    return {"text": text, "calls": calls, "finish": finish, "usage": usage and usage.total_tokens}


def collected(asked):
    with client.chat.completions.stream(**asked) as stream:
        kinds = {event.type for event in stream}
        final = stream.get_final_completion()
    return {"kinds": sorted(kinds), "answer": final.model_dump()}


def leave(asked):
    stream = client.chat.completions.create(stream=True, **asked)
    for chunk in stream:
        if chunk.choices[0].delta.content:
            break
    session = stream.response.headers["x-hermes-session"]
    stream.close()
    return {"session": session}


def shape(response):
    return {
        "id": response.id,
        "text": response.output_text,
        "kinds": [type(item).__name__ for item in response.output],
        "calls": [item.call_id for item in response.output if item.type == "function_call"],
        "status": response.status,
        "tokens": response.usage and response.usage.total_tokens,
        "session": response.conversation.id,
    }


def respond(asked):
    return shape(client.responses.create(**asked))


def respond_stream(asked):
    deltas, final = "", None
    with client.responses.stream(**asked) as stream:
        for event in stream:
            if event.type == "response.output_text.delta":
                deltas += event.delta
        final = stream.get_final_response()
    return {"deltas": deltas, **shape(final)}


def models(asked):
    return [model.id for model in client.models.list()] + [client.models.retrieve(**asked).id]


out = []
for name, asked in given["calls"]:
    before = out[-1] if out and isinstance(out[-1], dict) else {}
    text = json.dumps(asked)
    for word in ("id", "session"):
        text = text.replace("$" + word, str(before.get(word)))
    try:
        out.append(globals()[name](json.loads(text)))
    except openai.APIStatusError as failure:
        out.append(tell(failure))
    except openai.APIError as failure:
        out.append({"error": type(failure).__name__, "message": failure.message})
json.dump(out, sys.stdout)
"""

WEATHER = {"name": "weather", "parameters": {"type": "object", "properties": {}}}
CHAT_TOOLS = [{"type": "function", "function": WEATHER}]
RESPONSE_TOOLS = [{"type": "function", **WEATHER, "strict": False}]

SAME_SESSION = {"X-Hermes-Session": "$session"}


@pytest.fixture
def served(
    tmp_path: Path, stub: StubModelServer, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Served]:
    """A running server in an empty working folder."""
    monkeypatch.chdir(tmp_path)
    served = Served(tmp_path, stub).start()
    yield served
    served.stop()


def by_client(served: Served, *calls: tuple[str, dict[str, Any]], key: str = TOKEN) -> list[Any]:
    """Return what the official client made of these calls.

    `$id` and `$session` in a call stand for those of the answer before it.
    """
    named = [(name, {"model": "stub-model", **asked}) for name, asked in calls]
    given = {"base_url": f"{served.url}/v1", "key": key, "calls": named}
    done = subprocess.run(
        [BIN / "python", "-c", CLIENT],
        input=json.dumps(given),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    answers: list[Any] = json.loads(done.stdout)
    return answers


def test_answers_whole_and_streamed(served: Served) -> None:
    served.stub.script([], then=Reply(chunks=("Good ", "day.")))
    asked = {"messages": [user("hello")]}
    counted = {**asked, "stream_options": {"include_usage": True}}
    whole, streamed, collected = by_client(
        served, ("chat", asked), ("chat_stream", counted), ("collected", asked)
    )
    choice = whole["answer"]["choices"][0]
    assert (choice["message"]["content"], choice["finish_reason"]) == ("Good day.", "stop")
    assert whole["answer"]["usage"]["total_tokens"] > 0
    assert streamed.pop("usage") > 0
    assert streamed == {"text": "Good day.", "calls": [], "finish": "stop"}
    assert collected["answer"]["choices"][0]["message"]["content"] == "Good day."
    assert {"chunk", "content.delta", "content.done"} <= set(collected["kinds"])


def test_a_session_goes_on_by_its_header(served: Served) -> None:
    first, second = by_client(
        served,
        ("chat", {"messages": [user("one")]}),
        ("chat", {"messages": [user("two")], "extra_headers": SAME_SESSION}),
    )
    assert second["session"] == first["session"]
    contents = [message["content"] for message in served.stub.requests[-1].messages[1:]]
    assert contents == ["one", "ok", "two"]


def test_tools_of_the_client_and_images(served: Served) -> None:
    made = call("weather", {"city": "Oslo"}, call_id="call_7")
    served.stub.script([Reply(text="I look.", tool_calls=[made])] * 2)
    parts = [{"type": "text", "text": "weather here?"}, image()]
    asked = {"messages": [user(parts)], "tools": CHAT_TOOLS}
    result = {"role": "tool", "tool_call_id": "call_7", "content": "rain"}
    answered = {"messages": [result], "tools": CHAT_TOOLS, "extra_headers": SAME_SESSION}
    streamed, whole, after = by_client(
        served, ("chat_stream", asked), ("chat", asked), ("chat", answered)
    )
    message = whole["answer"]["choices"][0]["message"]
    assert message["tool_calls"] == [made]
    assert streamed == {"text": "I look.", "calls": [made], "finish": "tool_calls", "usage": None}
    assert served.stub.requests[1].messages[-1] == user(parts)
    assert after["answer"]["choices"][0]["message"]["content"] == "ok"
    assert served.stub.requests[-1].messages[-2:] == [
        {"role": "assistant", "content": "I look.", "tool_calls": [made]},
        result,
    ]


def test_failures_are_the_errors_that_clients_know(served: Served) -> None:
    asked = {"messages": [user("hi")]}
    served.stub.script(
        [
            Reply(status=401, error="no"),
            Reply(status=429, error={"message": "empty", "code": "insufficient_quota"}),
            Reply(chunks=("half ", "way"), finish=None),
        ]
    )
    told = by_client(
        served,
        ("chat", asked),
        ("chat", asked),
        ("chat_stream", asked),
        ("chat", {**asked, "n": 2}),
        ("chat", {**asked, "model": "gpt-99"}),
        ("respond", {"input": "hi", "previous_response_id": "resp_none"}),
    )
    sessions = [failure.pop("session", None) for failure in told]
    assert [bool(session) for session in sessions] == [True, True, False, False, False, False]
    broken = told.pop(2)
    assert broken["error"] == "APIError"
    assert "ended without a finish" in broken["message"]
    assert [tuple(failure.values()) for failure in told] == [
        ("InternalServerError", 502, "auth"),
        ("RateLimitError", 429, "insufficient_quota"),
        ("BadRequestError", 400, "unsupported_parameter"),
        ("NotFoundError", 404, "model_not_found"),
        ("NotFoundError", 404, "previous_response_not_found"),
    ]
    [refused] = by_client(served, ("chat", asked), key="wrong")
    assert (refused["error"], refused["status"]) == ("AuthenticationError", 401)


def test_a_stream_that_is_left_stops_the_turn(served: Served) -> None:
    served.stub.script([Reply(chunks=("first ", "second"), stall_after_chars=6)])
    [left] = by_client(served, ("leave", {"messages": [user("one")]}))
    [request] = served.stub.requests
    assert request.done.wait(10)
    assert request.client_closed_at is not None
    path = f"/api/sessions/{left['session']}"
    while served.get(path).json()["busy"]:
        pass
    assert served.rows(left["session"]) == [("user", "one"), ("assistant", "first ")]


def test_responses_go_on_from_each_other(served: Served) -> None:
    made = call("weather", {}, call_id="call_7")
    served.stub.script(
        [Reply(text="One."), Reply(chunks=("Two", ".")), Reply(text=None, tool_calls=[made])]
    )
    goes_on = {"previous_response_id": "$id"}
    with_tools = {**goes_on, "tools": RESPONSE_TOOLS}
    output = {"type": "function_call_output", "call_id": "call_7", "output": "rain"}
    picture = {"type": "input_image", "image_url": "https://x.example/a.png"}
    parts = [{"type": "input_text", "text": "and?"}, picture]
    first, second, third, last = by_client(
        served,
        ("respond", {"input": "one"}),
        ("respond_stream", {"input": "two", **goes_on}),
        ("respond_stream", {"input": "weather?", **with_tools}),
        ("respond", {"input": [output, {"role": "user", "content": parts}], **with_tools}),
    )
    assert (first["text"], first["status"]) == ("One.", "completed")
    assert first["tokens"] > 0
    assert (second["deltas"], second["text"]) == ("Two.", "Two.")
    assert third["calls"] == ["call_7"]
    assert last["text"] == "ok"
    assert {one["session"] for one in (second, third, last)} == {first["session"]}
    roles = [message["role"] for message in served.stub.requests[-1].messages[1:]]
    assert roles == ["user", "assistant", "user", "assistant", "user", "assistant", "tool", "user"]


def test_models_are_listed_and_found(served: Served) -> None:
    assert by_client(served, ("models", {})) == [["stub-model", "stub-model"]]


@pytest.mark.node
def test_the_client_for_node_finds_the_same(served: Served) -> None:
    made = call("weather", {"city": "Oslo"}, call_id="call_7")
    good = Reply(chunks=("Good ", "day."))
    served.stub.script(
        [
            good,
            good,
            Reply(text=None, tool_calls=[made]),
            Reply(text="One."),
            Reply(chunks=("Two", ".")),
            Reply(chunks=("first ", "second"), stall_after_chars=6),
        ]
    )
    picture = image()
    given = {
        "base_url": f"{served.url}/v1",
        "key": TOKEN,
        "model": "stub-model",
        "image": picture["image_url"]["url"],
        "tools": CHAT_TOOLS,
    }
    done = subprocess.run(
        ["node", str(NODE / "serve.mjs")],
        input=json.dumps(given),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert served.rows(told.pop("session")) == [("user", "hello"), ("assistant", "Good day.")]
    assert told == {
        "whole": "Good day.",
        "streamed": "Good day.",
        "calls": [made],
        "deltas": "Two.",
        "final": "Two.",
        "error": ["BadRequestError", 400, "unsupported_parameter"],
        "left": "first ",
    }
    requests = served.stub.requests
    assert requests[2].messages[-1]["content"][1] == picture
    assert [message["content"] for message in requests[4].messages[1:]] == ["one", "One.", "two"]
    assert requests[5].done.wait(10)
    assert requests[5].client_closed_at is not None


def judge(served: Served, *options: str) -> None:
    """Let `schemathesis` send what the description allows and what it does not."""
    done = subprocess.run(
        [
            BIN / "schemathesis",
            "run",
            f"{served.url}/openapi.json",
            "--checks=not_a_server_error",
            f"--header=Authorization: Bearer {TOKEN}",
            "--request-timeout=60",
            *options,
        ],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout


def test_few_requests_that_are_made_up_do_not_make_it_fail(served: Served) -> None:
    judge(served, "--max-examples=1", "--phases=fuzzing", SAME_EACH_TIME)


@pytest.mark.soak
@pytest.mark.timeout(300)
def test_many_requests_that_are_made_up_do_not_make_it_fail(served: Served) -> None:
    same = [SAME_EACH_TIME] if os.environ.get("CI") == "true" else []
    judge(served, "--max-examples=30", *same)
