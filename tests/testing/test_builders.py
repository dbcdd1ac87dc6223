"""Messages and turns as tests write them."""

from __future__ import annotations

from agent.testing.builders import assistant, call, conversation, image, result, system, turn, user


def test_each_builder_makes_one_message() -> None:
    made = call("f", {"a": "é"}, call_id="t1")
    assert made == {
        "id": "t1",
        "type": "function",
        "function": {"name": "f", "arguments": '{"a": "\\u00e9"}'},
    }
    assert [system("s"), user("u"), assistant("a"), assistant(None, made), result(made, "r")] == [
        {"role": "system", "content": "s"},
        {"role": "user", "content": "u"},
        {"role": "assistant", "content": "a"},
        {"role": "assistant", "content": None, "tool_calls": [made]},
        {"role": "tool", "tool_call_id": "t1", "content": "r"},
    ]
    assert result("t1", "r") == result(made, "r")
    assert image("data:x") == {"type": "image_url", "image_url": {"url": "data:x"}}


def test_calls_get_ids_of_their_own_and_keep_arguments_given_as_text() -> None:
    first, second = call("f"), call("f", "{broken")
    assert first["id"] != second["id"]
    assert (first["function"]["arguments"], second["function"]["arguments"]) == ("{}", "{broken")


def test_a_turn_holds_its_rounds_between_request_and_answer() -> None:
    messages = turn("find it", "found", rounds=[{"grep": "x", "ls": "y"}, {"cat": "z"}])
    assert [message["role"] for message in messages] == [
        "user",
        "assistant",
        "tool",
        "tool",
        "assistant",
        "tool",
        "assistant",
    ]
    assert [message["content"] for message in messages] == [
        "find it",
        None,
        "x",
        "y",
        None,
        "z",
        "found",
    ]


def test_a_conversation_numbers_its_turns() -> None:
    assert conversation(2) == [
        user("request 1"),
        assistant("answer 1"),
        user("request 2"),
        assistant("answer 2"),
    ]
    assert len(conversation(3, with_tools=True)) == 12
