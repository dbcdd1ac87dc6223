"""The official openai client's types accept what our Responses wire sends and our stub answers."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator

import pytest

from agent.base.messages import Message
from agent.providers.protocol import CallWatch, Limits, ModelRequest
from agent.providers.responses import Responses
from agent.testing.builders import assistant, call, image, result, system, user
from agent.testing.stub_reply import Reply
from agent.testing.stub_server import StubModelServer
from tests.conftest import ORACLES_PYTHON
from tests.providers.conftest import Wire, openings

# A client alone takes seconds to start, more on a busy machine.
pytestmark = [pytest.mark.oracles, pytest.mark.timeout(240)]

JUDGE = """
import json
import sys
import typing
from typing import Any

import openai
import pydantic
from openai.types.responses import Response, ResponseInputItemParam, ResponseStreamEvent
from openai.types.responses import response_create_params as params


def request_faults(body: dict[str, Any]) -> list[str]:
    streams = body["stream"]
    kind = params.ResponseCreateParamsStreaming
    kind = kind if streams else params.ResponseCreateParamsNonStreaming
    known = set(typing.get_type_hints(kind))
    faults = [f"unknown field {name!r}" for name in body.keys() - known]
    items = pydantic.TypeAdapter(list[ResponseInputItemParam])
    for check, value in (
        (items, body["input"]),
        (pydantic.TypeAdapter(params.Iterable[params.ToolParam]), body.get("tools", [])),
        (pydantic.TypeAdapter(kind), body),
    ):
        try:
            list(check.validate_python(value))
        except pydantic.ValidationError as error:
            faults.append(str(error))
    return faults


def answer_faults(base_url: str) -> list[str]:
    client = openai.OpenAI(base_url=base_url, api_key="k", max_retries=0)
    asked: dict[str, Any] = {
        "model": "m",
        "input": "hello",
        "store": False,
        "include": ["reasoning.encrypted_content"],
    }
    faults = []
    raw = client.responses.with_raw_response.create(**asked)
    whole = json.loads(raw.text)
    answers = [whole]
    kinds = []
    with client.responses.with_streaming_response.create(**asked, stream=True) as streamed:
        for line in streamed.iter_lines():
            if line.startswith("data: "):
                event = json.loads(line.removeprefix("data: "))
                kinds.append(event["type"])
                faults += _faults(ResponseStreamEvent, event)
                answers += [event["response"]] if "response" in event else []
    for answer in answers:
        faults += _faults(Response, answer)
    text = client.responses.create(**asked).output_text
    stream = client.responses.create(**asked, stream=True)
    pieces = [event.delta for event in stream if event.type == "response.output_text.delta"]
    if not text or "".join(pieces) != text:
        faults.append(f"the client reads {text!r} whole and {pieces!r} streamed")
    if kinds[-1] != "response.completed":
        faults.append(f"the stream ends with {kinds[-1]!r}")
    return faults


def _faults(kind: Any, value: Any) -> list[str]:
    try:
        pydantic.TypeAdapter(kind).validate_python(value)
    except pydantic.ValidationError as error:
        return [str(error)]
    return []


def main() -> None:
    given = json.load(sys.stdin)
    faults = [fault for body in given["requests"] for fault in request_faults(body)]
    json.dump(faults + answer_faults(given["base_url"]), sys.stdout)


main()
"""
"""Reads a base URL and requests; prints what the types say against these and the answers."""

TOOL = {
    "type": "function",
    "function": {"name": "f", "description": "d", "parameters": {"type": "object"}},
}


@pytest.fixture
def wire() -> Iterator[Wire]:
    yield from openings(Responses)


def test_requests_and_answers_have_the_official_shapes(wire: Wire, stub: StubModelServer) -> None:
    calls = [call("f", {"a": 1}, call_id="c1")]
    full = Reply(text="hi there", reasoning="because", tool_calls=calls)
    stub.script([full], then=full)
    provider = wire(stub.base_url)
    history: list[Message] = [
        system("Be brief."),
        user([{"type": "text", "text": "look"}, image()]),
    ]
    for stream in (True, False):
        request = ModelRequest(messages=history, tools=[TOOL], temperature=0.5, stream=stream)
        reply = provider.complete(request, limits=Limits(retries=0), watch=CallWatch())
        history += [reply.message, result(calls[0], "x"), assistant("done"), user("more")]
    pictured = {"role": "tool", "tool_call_id": "c1", "content": [image()]}
    history[3] = pictured
    provider.complete(ModelRequest(messages=history), limits=Limits(retries=0), watch=CallWatch())
    bodies = [request.body for request in stub.requests]
    assert [request.refusal for request in stub.requests] == ["", "", ""]
    assert "encrypted_content" in json.dumps(bodies[2]["input"])
    judged = subprocess.run(
        [ORACLES_PYTHON, "-c", JUDGE],
        input=json.dumps({"base_url": stub.base_url, "requests": bodies}),
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    assert judged.stderr == ""
    assert json.loads(judged.stdout) == []
