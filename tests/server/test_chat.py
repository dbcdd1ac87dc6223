"""Chat completions: whole and streamed, sessions, tools of either side, images."""

from __future__ import annotations

from agent.testing.builders import assistant, call, image, result, system, user
from agent.testing.stub_reply import Reply
from tests.server.served import CHAT, Served, chat_body, error_of, read_events

WEATHER = {
    "type": "function",
    "function": {
        "name": "weather",
        "description": "Tells the weather.",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}},
    },
}
COUNTED = {"prompt_tokens": 9, "completion_tokens": 3}
UNSERVED: list[tuple[dict, str]] = [
    ({"n": 2}, "unsupported_parameter"),
    ({"response_format": {"type": "json_object"}}, "unsupported_parameter"),
    ({"stop": ["x"]}, "unsupported_parameter"),
    ({"logprobs": True}, "unsupported_parameter"),
    ({"tools": [WEATHER], "tool_choice": "required"}, "unsupported_parameter"),
    ({"max_tokens": 0}, "invalid_value"),
    ({"temperature": 3}, "invalid_value"),
    ({"tools": [{"type": "function", "function": {"name": "no spaces"}}]}, "invalid_value"),
    ({"messages": []}, "invalid_value"),
    ({"messages": [assistant("prefilled")]}, "no_request"),
    ({"messages": [system("only this")]}, "no_request"),
    ({"messages": [user([{"type": "input_audio"}])]}, "unsupported_content"),
    ({"messages": [user([image("file:///etc/passwd")])]}, "invalid_value"),
    ({"messages": [{"role": "tool", "content": "x"}]}, "invalid_value"),
]


def test_a_whole_answer_has_the_shape_that_clients_expect(served: Served) -> None:
    served.stub.script([Reply(text="Good day.", usage=COUNTED)])
    answer = served.chat(user("hello"))
    shape = answer.json()
    assert answer.status_code == 200
    assert shape.pop("id").startswith("chatcmpl-")
    assert isinstance(shape.pop("created"), int)
    assert shape == {
        "object": "chat.completion",
        "model": "stub-model",
        "choices": [
            {
                "index": 0,
                "message": {"role": "assistant", "content": "Good day.", "refusal": None},
                "logprobs": None,
                "finish_reason": "stop",
            }
        ],
        "usage": {
            "prompt_tokens": 9,
            "completion_tokens": 3,
            "total_tokens": 12,
            "prompt_tokens_details": {"cached_tokens": 0},
        },
    }


def test_a_stream_is_the_same_answer_in_pieces_with_its_usage_last(served: Served) -> None:
    served.stub.script([Reply(chunks=("Good ", "day."), reasoning="Hm.")])
    options = {"stream": True, "stream_options": {"include_usage": True}}
    with served.client.stream("POST", CHAT, json=chat_body(user("hello"), **options)) as answer:
        events = list(read_events(answer))
    assert answer.headers["content-type"].startswith("text/event-stream")
    assert answer.headers["x-hermes-session"]
    assert events[-1] == "[DONE]"
    pieces = events[:-1]
    assert {piece["object"] for piece in pieces} == {"chat.completion.chunk"}
    assert len({piece["id"] for piece in pieces}) == 1
    assert [(c["delta"], c["finish_reason"]) for piece in pieces for c in piece["choices"]] == [
        ({"role": "assistant", "content": ""}, None),
        ({"reasoning_content": "Hm."}, None),
        ({"content": "Good "}, None),
        ({"content": "day."}, None),
        ({}, "stop"),
    ]
    assert pieces[-1]["choices"] == []
    usage = pieces[-1]["usage"]
    assert usage["total_tokens"] == usage["prompt_tokens"] + usage["completion_tokens"] > 0


def test_a_request_without_a_session_seeds_one_with_its_whole_history(served: Served) -> None:
    asked = [user("one"), assistant("first"), user("two")]
    answer = served.chat(system("Speak like a sailor."), *asked)
    session = answer.headers["x-hermes-session"]
    assert served.rows(session, "all") == [
        ("user", "one"),
        ("assistant", "first"),
        ("user", "two"),
        ("assistant", "ok"),
    ]
    sent = served.stub.requests[-1].messages
    assert sent[0]["role"] == "system"
    assert sent[0]["content"].endswith("\n\nSpeak like a sailor.")
    assert [(m["role"], m["content"]) for m in sent[1:]] == [
        ("user", "one"),
        ("assistant", "first"),
        ("user", "two"),
    ]


def test_with_a_session_only_what_follows_the_last_answer_is_new(served: Served) -> None:
    session = served.chat(user("the true first")).headers["x-hermes-session"]
    again = served.chat(user("a false first"), assistant("ok"), user("second"), session=session)
    assert again.headers["x-hermes-session"] == session
    assert served.rows(session) == [
        ("user", "the true first"),
        ("assistant", "ok"),
        ("user", "second"),
        ("assistant", "ok"),
    ]


def test_instructions_stay_with_the_session_until_others_come(served: Served) -> None:
    session = served.chat(system("Rhyme."), user("one")).headers["x-hermes-session"]
    served.chat(user("two"), session=session)
    served.chat(system("Count."), user("three"), session=session)
    prompts = [request.messages[0]["content"] for request in served.stub.requests]
    base = prompts[0].removesuffix("\n\nRhyme.")
    assert prompts == [f"{base}\n\nRhyme.", f"{base}\n\nRhyme.", f"{base}\n\nCount."]


def test_calls_of_tools_that_the_client_brings_come_back_to_it(served: Served) -> None:
    wanted = call("weather", {"city": "Oslo"}, call_id="call_7")
    served.stub.script([Reply(text="I look.", tool_calls=[wanted]), Reply(text="It rains.")])
    first = served.chat(system("Be brief."), user("weather in Oslo?"), tools=[WEATHER])
    session = first.headers["x-hermes-session"]
    choice = first.json()["choices"][0]
    assert choice["finish_reason"] == "tool_calls"
    assert choice["message"] == {
        "role": "assistant",
        "content": "I look.",
        "refusal": None,
        "tool_calls": [wanted],
    }
    second = served.chat(result("call_7", "rain"), session=session, tools=[WEATHER])
    assert second.json()["choices"][0]["message"]["content"] == "It rains."
    sent = served.stub.requests[-1]
    assert sent.body["tools"] == [WEATHER]
    assert sent.messages == [
        system("Be brief."),
        user("weather in Oslo?"),
        assistant("I look.", wanted),
        result("call_7", "rain"),
    ]


def test_a_stream_ends_with_the_calls_for_the_client(served: Served) -> None:
    wanted = call("weather", {"city": "Oslo"})
    served.stub.script([Reply(text=None, tool_calls=[wanted])])
    body = chat_body(user("weather?"), stream=True, tools=[WEATHER])
    with served.client.stream("POST", CHAT, json=body) as answer:
        events = list(read_events(answer))
    assert [(e["choices"][0]["delta"], e["choices"][0]["finish_reason"]) for e in events[:-1]] == [
        ({"role": "assistant", "content": ""}, None),
        ({"tool_calls": [{"index": 0, **wanted}]}, None),
        ({}, "tool_calls"),
    ]


def test_a_client_without_tools_gets_the_work_of_ours_and_nobody_is_asked(served: Served) -> None:
    looks = call("read_file", {"path": "notes.txt"})
    writes = call("write_file", {"path": "new.txt", "content": "x"})
    served.stub.script(
        [Reply(text="Looking.", tool_calls=[looks, writes]), Reply(text="All seen.")]
    )
    answer = served.chat(user("read notes.txt"))
    session = answer.headers["x-hermes-session"]
    assert answer.json()["choices"][0]["message"]["content"] == "Looking.\n\nAll seen."
    offered = {tool["function"]["name"] for tool in served.stub.requests[0].body["tools"]}
    assert {"read_file", "write_file", "recall"} <= offered
    results = [content for role, content in served.rows(session) if role == "tool"]
    assert len(results) == 2
    assert any("nobody can be asked" in content for content in results), results


def test_a_stream_of_several_answers_reads_like_the_whole(served: Served) -> None:
    looks = call("read_file", {"path": "notes.txt"})
    served.stub.script([Reply(text="Looking.", tool_calls=[looks]), Reply(text="All seen.")])
    with served.client.stream("POST", CHAT, json=chat_body(user("read"), stream=True)) as answer:
        events = list(read_events(answer))[:-1]
    text = "".join(e["choices"][0]["delta"].get("content", "") for e in events)
    assert text == "Looking.\n\nAll seen."


def test_images_reach_the_model_as_they_came(served: Served) -> None:
    parts = [{"type": "text", "text": "What is this?"}, image()]
    served.chat(user(parts))
    assert served.stub.requests[-1].messages[-1] == user(parts)


def test_limits_of_a_request_reach_the_model(served: Served) -> None:
    served.chat(user("hi"), max_tokens=7, temperature=0.5)
    served.chat(user("hi"), max_completion_tokens=9_000_000)
    served.chat(user("hi"), tools=[WEATHER], tool_choice="none")
    bodies = [request.body for request in served.stub.requests]
    assert (bodies[0]["max_tokens"], bodies[0]["temperature"]) == (7, 0.5)
    assert bodies[1]["max_tokens"] == 4_096
    assert "temperature" not in bodies[1]
    assert "tools" not in bodies[2]


def test_an_answer_that_was_cut_says_so(served: Served) -> None:
    served.stub.script([Reply(text="half", finish="length")])
    assert served.chat(user("hi")).json()["choices"][0]["finish_reason"] == "length"


def test_a_request_that_is_sent_again_is_not_stored_twice(served: Served) -> None:
    session = served.chat(user("one")).headers["x-hermes-session"]
    served.stub.script([Reply(status=401, error="the key is wrong")])
    failed = served.chat(user("two"), session=session)
    assert error_of(failed) == (502, "provider_error", "auth")
    assert failed.headers["x-should-retry"] == "false"
    assert failed.headers["x-hermes-session"] == session
    assert served.chat(user("two"), session=session).status_code == 200
    assert served.rows(session) == [
        ("user", "one"),
        ("assistant", "ok"),
        ("user", "two"),
        ("assistant", "ok"),
    ]


def test_what_cannot_be_served_is_refused_before_anything_is_stored(served: Served) -> None:
    told = [
        (fields, error_of(served.post(CHAT, {**chat_body(user("hi")), **fields})))
        for fields, _code in UNSERVED
    ]
    assert told == [(fields, (400, "invalid_request_error", code)) for fields, code in UNSERVED]
    assert served.get("/api/sessions").json() == {"sessions": []}
    assert served.stub.requests == []


def test_another_model_and_another_session_are_not_found(served: Served) -> None:
    other = served.post(CHAT, {**chat_body(user("hi")), "model": "gpt-99"})
    assert error_of(other) == (404, "invalid_request_error", "model_not_found")
    unknown = served.chat(user("hi"), session="nobody")
    assert error_of(unknown) == (404, "invalid_request_error", "session_not_found")
