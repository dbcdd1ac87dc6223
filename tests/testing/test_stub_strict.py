"""What strict mode refuses and how it counts."""

from __future__ import annotations

import json
from typing import Any

import pytest

from agent.base.messages import Message
from agent.testing.builders import assistant, call, conversation, image, result, system, user
from agent.testing.stub_reply import RecordedRequest, Strictness
from agent.testing.stub_strict import check_chat, check_messages, count_text, count_tokens

ONE = call("read_file", {"path": "a"}, call_id="t1")
TWO = call("read_file", {"path": "b"}, call_id="t2")


def _refusal(messages: list[Message]) -> str:
    refusal = check_messages(messages)
    return refusal.message if refusal else ""


def _request(**body: Any) -> RecordedRequest:
    return RecordedRequest("POST", "/", {}, json.dumps(body).encode(), 0.0, body)


@pytest.mark.parametrize(
    "messages",
    [
        pytest.param([user("a")], id="one request"),
        pytest.param([system(), user("a")], id="system first"),
        pytest.param([user("a"), assistant("b"), user("c")], id="alternating"),
        pytest.param([user([image()])], id="an image alone"),
        pytest.param(
            [user("a"), assistant(None, ONE, TWO), result(TWO, ""), result(ONE, "x")],
            id="results in any order, one of them empty",
        ),
        pytest.param(
            [
                user("a"),
                assistant("first", ONE),
                result(ONE, "x"),
                assistant(None, ONE),
                result(ONE, "y"),
                assistant("b"),
                user("c"),
            ],
            id="rounds of one assistant side that use an id again",
        ),
        pytest.param(
            [user("a"), assistant(None, ONE), result(ONE, "x"), user("c")],
            id="a request straight after results",
        ),
    ],
)
def test_a_valid_list_is_not_refused(messages: list[Message]) -> None:
    assert _refusal(messages) == ""


@pytest.mark.parametrize(
    ("messages", "why"),
    [
        ([], "messages is empty; at least one message is needed"),
        (
            [system(), assistant("a")],
            "messages[1]: the first turn must be of role 'user', not 'assistant'",
        ),
        (
            [assistant("a")],
            "messages[0]: the first turn must be of role 'user', not 'assistant'",
        ),
        (
            [user("a"), user("b")],
            "messages[1]: roles must alternate: two messages of role 'user' in a row",
        ),
        (
            [user("a"), assistant("b"), assistant("c")],
            "messages[2]: roles must alternate: two messages of role 'assistant' in a row",
        ),
        (
            [user("a"), assistant("b"), assistant(None, ONE), result(ONE, "x")],
            "messages[2]: roles must alternate: two messages of role 'assistant' in a row",
        ),
        (
            [user("a"), system("b")],
            "messages[1]: a system message may only be the first",
        ),
        (
            [user("a"), result("t1", "x")],
            "messages[1]: tool result 't1' answers no open call of the message before it",
        ),
        (
            [user("a"), assistant(None, ONE), result(ONE, "x"), result(ONE, "x")],
            "messages[3]: tool result 't1' answers no open call of the message before it",
        ),
        (
            [user("a"), assistant(None, ONE, TWO), result(ONE, "x"), user("b")],
            "messages[3]: calls without a result before it: ['t2']",
        ),
        (
            [user("a"), assistant(None, ONE)],
            "calls without a result at the end of messages: ['t1']",
        ),
        (
            [user("a"), assistant(None, ONE, ONE), result(ONE, "x")],
            "messages[1]: two calls share an id: ['t1', 't1']",
        ),
        (
            [user("a"), assistant(None, call("f", '{"a": ', call_id="t1"))],
            "messages[1]: arguments '{\"a\": ' are no JSON object",
        ),
        (
            [user("a"), assistant(None, call("f g", {}, call_id="t1"))],
            "messages[1]: function name 'f g' does not match '[a-zA-Z0-9_-]{1,64}'",
        ),
        ([user(" \n")], "messages[0]: empty content of a message of role 'user'"),
        ([user([])], "messages[0]: empty content of a message of role 'user'"),
        (
            [user([{"type": "text", "text": ""}])],
            "messages[0]: empty content of a message of role 'user'",
        ),
        (
            [user("a"), assistant("")],
            "messages[1]: empty content of a message of role 'assistant'",
        ),
        ([{**user("a"), "_seq": 1}], "messages[0]: unknown fields ['_seq']"),
        ([{"role": "critic", "content": "a"}], "messages[0]: unknown role 'critic'"),
        (
            [user("a"), {**assistant("b"), "tool_calls": []}],
            "messages[1]: tool_calls must be a list of at least one call of an assistant message",
        ),
        (
            [user("a"), assistant(None, {"id": "", "function": {}})],
            "messages[1]: a call without an id: ['']",
        ),
        (
            [user("a"), assistant(None, {"id": "t", "function": {"name": "f", "arguments": {}}})],
            "messages[1]: call 't' needs a function name and arguments as JSON text",
        ),
        (
            [{"role": "user", "content": 5}],
            "messages[0]: content must be text, a list of parts or null, not int",
        ),
    ],
)
def test_an_invalid_list_is_refused_with_the_reason(messages: list[Message], why: str) -> None:
    assert _refusal(messages) == why


@pytest.mark.parametrize(
    ("text", "tokens"),
    [
        ("", 0),
        ("a", 1),
        ("abcdefgh", 2),
        ("日本語", 3),
        ("カタカナ", 4),
        ("한국어", 3),
        ("😀😀", 4),
        ("سلام", 2),
        ("ab日😀", 4),
        ("naïve café", 3),
    ],
)
def test_each_script_has_its_price(text: str, tokens: int) -> None:
    assert count_text(text) == tokens


def test_a_request_counts_messages_calls_images_and_tools() -> None:
    tool = {"type": "function", "function": {"name": "read_file", "parameters": {}}}
    messages = [
        system("abcd"),
        user([{"type": "text", "text": "abcd"}, image("data:" + "x" * 999)]),
    ]
    assert count_tokens(messages) == 5 + 5 + 1_000
    made = assistant(None, call("abcd", "{}"))
    assert count_tokens([made]) == 4 + 2
    assert count_tokens([], [tool]) == count_text(json.dumps(tool, separators=(",", ":")))


def test_a_request_over_the_window_is_refused_with_both_numbers() -> None:
    request = _request(messages=[user("x" * 400)], tools=[{"name": "f"}])
    limit = count_tokens([user("x" * 400)], [{"name": "f"}])
    assert check_chat(request, Strictness(window_tokens=limit)) is None
    refusal = check_chat(request, Strictness(window_tokens=limit - 1))
    assert refusal is not None
    assert refusal.code == "context_length_exceeded"
    assert refusal.message == (
        f"This model's maximum context length is {limit - 1} tokens. "
        f"However, your messages resulted in {limit} tokens."
    )
    assert check_chat(request, Strictness(window_tokens=0)) is None


def test_a_body_over_the_byte_limit_is_refused() -> None:
    request = _request(messages=[user("x" * 400)])
    refusal = check_chat(request, Strictness(max_body_bytes=100))
    assert refusal is not None
    assert refusal.message == f"the body has {len(request.raw)} bytes; the limit is 100"


def test_messages_that_are_no_list_are_refused() -> None:
    refusal = check_chat(_request(messages="hello"), Strictness())
    assert refusal is not None
    assert refusal.message == "messages must be a list, not 'hello'"


@pytest.mark.parametrize("text", ["\ud83d", "broken \udc00 half"])
def test_a_lone_surrogate_is_refused_wherever_it_stands(text: str) -> None:
    for messages in ([user(text)], [user("a"), assistant(None, {**ONE, "id": text})]):
        refusal = check_chat(_request(messages=messages), Strictness())
        assert refusal is not None
        assert refusal.message == "the body holds a lone surrogate, which is no valid Unicode text"


def test_small_histories_are_valid() -> None:
    for turns in (1, 2, 5):
        assert _refusal(conversation(turns)) == ""
        assert _refusal([system(), *conversation(turns, with_tools=True)]) == ""
