"""What the Responses shape of the stub server refuses, and how it answers."""

from __future__ import annotations

import http.client
import json
from typing import Any
from urllib.parse import urlsplit

import pytest

from agent.testing.builders import call
from agent.testing.stub_reply import Reply
from agent.testing.stub_responses_strict import check_items, count_request, seal, unseal
from agent.testing.stub_server import StubModelServer

MODEL = "m"
USER = {"role": "user", "content": "a"}
SAID = {"role": "assistant", "content": "b"}


def called(call_id: str = "c1", **fields: Any) -> dict[str, Any]:
    item = {"type": "function_call", "call_id": call_id, "name": "f", "arguments": "{}"}
    return item | fields


def output(call_id: str = "c1", text: Any = "x") -> dict[str, Any]:
    return {"type": "function_call_output", "call_id": call_id, "output": text}


def reasoning(sealed: str = "") -> dict[str, Any]:
    sealed = sealed or seal("hm", MODEL)
    return {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": sealed}


def compaction() -> dict[str, Any]:
    return {"type": "compaction", "id": "cmp_1", "encrypted_content": seal("all", MODEL)}


IMAGE = {"type": "input_image", "image_url": "data:image/png;base64,aGk=", "detail": "auto"}


@pytest.mark.parametrize(
    "items",
    [
        pytest.param([USER], id="one request"),
        pytest.param([USER, SAID, USER], id="alternating"),
        pytest.param([{"role": "user", "content": [IMAGE]}], id="an image alone"),
        pytest.param([USER, called(), called("c2"), output("c2"), output("c1", "")], id="calls"),
        pytest.param([USER, reasoning(), SAID, called(), output(), SAID], id="reasoning"),
        pytest.param([USER, reasoning(), called(), output(), USER], id="a request after results"),
        pytest.param([compaction(), SAID, USER], id="a compaction first"),
        pytest.param([USER, called(), output("c1", [IMAGE])], id="an image as output"),
    ],
)
def test_valid_items_are_not_refused(items: list[dict[str, Any]]) -> None:
    assert check_items(items, MODEL) is None


@pytest.mark.parametrize(
    ("items", "why"),
    [
        ([], "input is empty; at least one item is needed"),
        ([SAID], "input[0]: the first item must be of the user"),
        ([called(), output()], "input[0]: the first item must be of the user"),
        ([USER, USER], "input[1]: two messages of role 'user' in a row"),
        ([{"role": "user", "content": " "}], "input[0]: empty content of a message of role 'user'"),
        ([{"role": "king", "content": "a"}], "input[0]: unknown role 'king'"),
        ([USER | {"_seq": 1}], "input[0]: Unknown parameter: '_seq'."),
        (
            [{"type": "item_reference", "id": "rs_1"}],
            "input[0]: unknown item type 'item_reference'",
        ),
        (
            [USER, output()],
            "input[1]: No tool call found for function call output with call_id c1.",
        ),
        ([USER, called()], "No tool output found for function call c1."),
        ([USER, called(), USER], "input[2]: No tool output found for function call c1."),
        ([USER, called(), called()], "input[2]: call_id 'c1' is missing or in use"),
        (
            [USER, called(name="f g"), output()],
            "input[1]: function name 'f g' does not match '[a-zA-Z0-9_-]{1,64}'",
        ),
        (
            [USER, called(arguments="{"), output()],
            "input[1]: arguments '{' are no JSON object",
        ),
        (
            [USER, reasoning()],
            "Item 'rs_1' of type 'reasoning' was provided without its required following item.",
        ),
        (
            [USER, reasoning(), USER],
            (
                "input[2]: Item 'rs_1' of type 'reasoning' was provided without its required "
                "following item."
            ),
        ),
        (
            [USER, reasoning(seal("hm", "another")), SAID],
            "input[1]: The encrypted content for item rs_1 could not be verified.",
        ),
        (
            [USER, reasoning(seal("hm", MODEL)[:-4]), SAID],
            "input[1]: The encrypted content for item rs_1 could not be verified.",
        ),
        (
            [{"role": "user", "content": [{"type": "text", "text": "a"}]}],
            "input[0]: a message of role 'user' cannot hold the part {'type': 'text', 'text': 'a'}",
        ),
        (
            [{"role": "user", "content": [IMAGE | {"detail": None}]}],
            "input[0]: an image needs a detail",
        ),
    ],
)
def test_what_is_not_valid_is_refused(items: list[dict[str, Any]], why: str) -> None:
    refusal = check_items(items, MODEL)
    assert refusal is not None
    assert refusal.message == why


def test_what_a_compaction_stands_for_counts_nothing() -> None:
    before = {"role": "user", "content": "x" * 4_000}
    whole = count_request({"input": [before, SAID, USER]}, MODEL)
    compacted = count_request({"input": [before, compaction(), SAID, USER]}, MODEL)
    assert whole - compacted == 1_004 - 1


def test_a_seal_is_read_only_by_its_maker() -> None:
    assert unseal(seal("text", MODEL), MODEL) == "text"
    assert unseal(seal("text", MODEL), "another") is None
    assert unseal(None, MODEL) is None


def _post(stub: StubModelServer, **fields: Any) -> tuple[int, bytes]:
    connection = http.client.HTTPConnection(urlsplit(stub.base_url).netloc, timeout=10)
    try:
        body = {"model": MODEL, "input": "hello", "store": False, **fields}
        connection.request("POST", "/v1/responses", json.dumps(body))
        response = connection.getresponse()
        return response.status, response.read()
    finally:
        connection.close()


def test_a_whole_answer_has_items_status_and_usage(stub: StubModelServer) -> None:
    calls = [call("f", {"a": 1}, call_id="c1")]
    stub.script([Reply(text="hi", reasoning="hm", tool_calls=calls)])
    _, raw = _post(stub, include=["reasoning.encrypted_content"])
    answer = json.loads(raw)
    assert [item["type"] for item in answer["output"]] == ["reasoning", "message", "function_call"]
    assert unseal(answer["output"][0]["encrypted_content"], MODEL) == "1: hm"
    assert (answer["status"], answer["usage"]["input_tokens"]) == ("completed", 10)


def test_events_are_numbered_and_end_with_the_whole_answer(stub: StubModelServer) -> None:
    text = "a text that comes in several pieces"
    stub.script([Reply(text=text, finish="length")])
    _, raw = _post(stub, stream=True)
    events = [json.loads(block.split("data: ")[1]) for block in raw.decode().split("\n\n") if block]
    assert [event["sequence_number"] for event in events] == list(range(len(events)))
    assert "".join(event["delta"] for event in events if "delta" in event) == text
    last = events[-1]
    assert last["type"] == "response.incomplete"
    assert last["response"]["incomplete_details"] == {"reason": "max_output_tokens"}
    assert last["response"]["output"][0]["content"][0]["text"] == text


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ({"messages": []}, "Unknown parameter: 'messages'."),
        ({"input": 1}, "input must be a text or a list of items, not 1"),
        ({"max_output_tokens": 5}, "max_output_tokens 5 is below the minimum of 16"),
        (
            {"tools": [{"type": "function", "function": {"name": "f"}}]},
            (
                "a tool needs type 'function', a name and parameters: "
                "{'type': 'function', 'function': {'name': 'f'}}"
            ),
        ),
    ],
)
def test_a_body_of_another_shape_is_refused(
    stub: StubModelServer, fields: dict[str, Any], why: str
) -> None:
    status, raw = _post(stub, **fields)
    assert (status, json.loads(raw)["error"]["message"]) == (400, why)
