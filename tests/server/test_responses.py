"""The Responses API: objects, events, and how one response goes on from another."""

from __future__ import annotations

from typing import Any

from agent.testing.builders import call
from agent.testing.stub_reply import Reply
from tests.server.served import Served, error_of, read_events

PATH = "/v1/responses"
WEATHER = {
    "type": "function",
    "name": "weather",
    "description": "Tells the weather.",
    "parameters": {"type": "object", "properties": {}},
    "strict": True,
}
UNSERVED: list[tuple[dict, int, str]] = [
    ({"previous_response_id": "resp_none"}, 404, "previous_response_not_found"),
    ({"conversation": "nobody"}, 404, "session_not_found"),
    ({"conversation": {"id": 5}}, 400, "invalid_value"),
    ({"conversation": "a", "previous_response_id": "b"}, 400, "invalid_value"),
    ({"text": {"format": {"type": "json_schema"}}}, 400, "unsupported_parameter"),
    ({"background": True}, 400, "unsupported_parameter"),
    ({"tools": [{"type": "web_search"}]}, 400, "unsupported_parameter"),
    ({"tools": [{"type": "function"}]}, 400, "invalid_value"),
    ({"input": [{"type": "item_reference", "id": "x"}]}, 400, "unsupported_item"),
    ({"input": [{"type": ["x"]}]}, 400, "unsupported_item"),
    ({"input": [{"role": "user"}]}, 400, "invalid_value"),
    ({"input": []}, 400, "invalid_value"),
    ({"model": "gpt-99"}, 404, "model_not_found"),
]


def ask(served: Served, given: Any, **fields: Any) -> Any:
    """Return the response object to an input."""
    answer = served.post(PATH, {"model": "stub-model", "input": given, **fields})
    assert answer.status_code == 200, answer.text
    return answer.json()


def stream(served: Served, given: Any, **fields: Any) -> list[Any]:
    """Return the events of a response to an input."""
    body = {"model": "stub-model", "input": given, "stream": True, **fields}
    with served.client.stream("POST", PATH, json=body) as answer:
        return list(read_events(answer))


def texts(response: dict) -> list[str]:
    """Return the texts of the messages of a response."""
    return [item["content"][0]["text"] for item in response["output"] if item["type"] == "message"]


def sent_contents(served: Served) -> list[Any]:
    """Return the contents of the newest request to the model, without the prompt."""
    return [message["content"] for message in served.stub.requests[-1].messages[1:]]


def test_a_whole_response_has_the_shape_that_clients_expect(served: Served) -> None:
    counted = {"prompt_tokens": 9, "completion_tokens": 3}
    served.stub.script([Reply(text="Good day.", usage=counted)])
    response = ask(served, "hello", instructions="Be kind.")
    [message] = response["output"]
    assert message.pop("id").startswith("msg_")
    part = {"type": "output_text", "text": "Good day.", "annotations": [], "logprobs": []}
    assert message == {
        "type": "message",
        "role": "assistant",
        "status": "completed",
        "content": [part],
    }
    assert response["id"].startswith("resp_")
    assert (response["object"], response["status"]) == ("response", "completed")
    assert response["usage"] == {
        "input_tokens": 9,
        "input_tokens_details": {"cached_tokens": 0},
        "output_tokens": 3,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": 12,
    }
    assert served.stub.requests[-1].messages[0]["content"].endswith("\n\nBe kind.")


def test_the_events_of_a_stream_build_the_response_up(served: Served) -> None:
    served.stub.script([Reply(chunks=("Good ", "day."))])
    events = stream(served, "hello")
    assert [event["sequence_number"] for event in events] == list(range(len(events)))
    assert [event["type"] for event in events] == [
        "response.created",
        "response.in_progress",
        "response.output_item.added",
        "response.content_part.added",
        "response.output_text.delta",
        "response.output_text.delta",
        "response.output_text.done",
        "response.content_part.done",
        "response.output_item.done",
        "response.completed",
    ]
    assert [event["delta"] for event in events if "delta" in event] == ["Good ", "day."]
    ended = events[-1]["response"]
    assert texts(ended) == ["Good day."]
    assert ended["output"] == [events[-2]["item"]]
    assert ended["usage"]["total_tokens"] > 0
    assert ended["id"] == events[0]["response"]["id"]


def test_a_response_goes_on_from_the_one_before(served: Served) -> None:
    first = ask(served, "one")
    second = ask(served, "two", previous_response_id=first["id"])
    assert second["previous_response_id"] == first["id"]
    assert second["conversation"] == first["conversation"]
    assert sent_contents(served) == ["one", "ok", "two"]


def test_two_that_go_on_from_one_response_never_see_each_other(served: Served) -> None:
    first = ask(served, "one")
    left = ask(served, "left", previous_response_id=first["id"])
    right = ask(served, "right", previous_response_id=first["id"])
    assert left["conversation"] == first["conversation"] != right["conversation"]
    assert sent_contents(served) == ["one", "ok", "right"]
    ask(served, "further", previous_response_id=left["id"])
    assert sent_contents(served) == ["one", "ok", "left", "ok", "further"]


def test_a_response_is_remembered_by_the_next_server(hermes: Served) -> None:
    first = ask(hermes.start(), "one")
    hermes.stop()
    try:
        ask(hermes.start(), "two", previous_response_id=first["id"])
        assert sent_contents(hermes) == ["one", "ok", "two"]
    finally:
        hermes.stop()


def test_a_response_of_a_deleted_session_is_forgotten_with_it(served: Served) -> None:
    first = ask(served, "one")
    served.client.delete(f"/api/sessions/{first['conversation']['id']}")
    answer = served.post(
        PATH, {"model": "stub-model", "input": "two", "previous_response_id": first["id"]}
    )
    assert error_of(answer)[::2] == (404, "previous_response_not_found")


def test_a_conversation_is_a_session(served: Served) -> None:
    session = served.post("/api/sessions", {"title": "Garden"}).json()["id"]
    first = ask(served, "one", conversation="Garden")
    second = ask(served, "two", conversation={"id": session})
    assert first["conversation"] == second["conversation"] == {"id": session}
    assert [role for role, _content in served.rows(session)] == ["user", "assistant"] * 2


def test_function_calls_go_to_the_client_and_their_results_come_back(served: Served) -> None:
    wanted = call("weather", {"city": "Oslo"}, call_id="call_7")
    served.stub.script([Reply(text=None, tool_calls=[wanted]), Reply(text="It rains.")])
    first = ask(served, "weather?", tools=[WEATHER])
    [item] = first["output"]
    assert item.pop("id").startswith("fc_")
    assert item == {
        "type": "function_call",
        "call_id": "call_7",
        "name": "weather",
        "arguments": '{"city": "Oslo"}',
        "status": "completed",
    }
    result = {"type": "function_call_output", "call_id": "call_7", "output": "rain"}
    second = ask(served, [result], previous_response_id=first["id"], tools=[WEATHER])
    assert texts(second) == ["It rains."]
    request = served.stub.requests[-1]
    assert [m["role"] for m in request.messages] == ["system", "user", "assistant", "tool"]
    assert [tool["function"]["name"] for tool in request.body["tools"]] == ["weather"]


def test_a_call_is_streamed_with_its_arguments(served: Served) -> None:
    wanted = call("weather", {"city": "Oslo"}, call_id="call_7")
    served.stub.script([Reply(text="I look.", tool_calls=[wanted])])
    events = stream(served, "weather?", tools=[WEATHER])
    assert [event["type"] for event in events][-5:] == [
        "response.output_item.added",
        "response.function_call_arguments.delta",
        "response.function_call_arguments.done",
        "response.output_item.done",
        "response.completed",
    ]
    assert events[-3]["arguments"] == '{"city": "Oslo"}'
    kinds = [item["type"] for item in events[-1]["response"]["output"]]
    assert kinds == ["message", "function_call"]


def test_a_whole_history_as_input_seeds_a_session(served: Served) -> None:
    image = "data:image/png;base64,aGVsbG8="
    ask(
        served,
        [
            {"role": "developer", "content": "Rhyme."},
            {"role": "user", "content": [{"type": "input_text", "text": "one"}]},
            {"type": "reasoning", "id": "rs_1", "summary": []},
            {"type": "function_call", "call_id": "c1", "name": "f", "arguments": "{}"},
            {"type": "function_call", "call_id": "c2", "name": "f", "arguments": "{}"},
            {"type": "function_call_output", "call_id": "c1", "output": "1"},
            {"type": "function_call_output", "call_id": "c2", "output": "2"},
            {"role": "assistant", "content": [{"type": "output_text", "text": "first"}]},
            {"role": "user", "content": [{"type": "input_image", "image_url": image}]},
        ],
    )
    sent = served.stub.requests[-1].messages
    assert sent[0]["content"].endswith("\n\nRhyme.")
    roles = [message["role"] for message in sent[1:]]
    assert roles == ["user", "assistant", "tool", "tool", "assistant", "user"]
    assert sent[-1]["content"] == [{"type": "image_url", "image_url": {"url": image}}]


def test_a_cut_answer_is_incomplete(served: Served) -> None:
    served.stub.script([Reply(text="half", finish="length")])
    response = ask(served, "hi", max_output_tokens=5)
    assert response["status"] == "incomplete"
    assert response["incomplete_details"] == {"reason": "max_output_tokens"}
    assert served.stub.requests[-1].body["max_tokens"] == 5


def test_a_stream_that_breaks_ends_with_a_failed_response(served: Served) -> None:
    served.stub.script([Reply(text="broken", finish=None)])
    events = stream(served, "hello")
    assert events[-1]["type"] == "response.failed"
    assert events[-1]["response"]["error"]["code"] == "network"


def test_what_cannot_be_served_is_refused(served: Served) -> None:
    base = {"model": "stub-model", "input": "hi"}
    told = [error_of(served.post(PATH, {**base, **fields})) for fields, _status, _code in UNSERVED]
    assert told == [(status, "invalid_request_error", code) for _, status, code in UNSERVED]
    assert served.get("/api/sessions").json() == {"sessions": []}
