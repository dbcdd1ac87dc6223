"""Requests as bytes, and that a stored row is encoded once."""

from __future__ import annotations

from functools import partial
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.base.messages import wire_message
from agent.providers import encode
from agent.providers.encode import RowEncoder, write_chat_row

ROUTE = "m at http://here/v1"


def chat_encoder(route: str = ROUTE) -> RowEncoder:
    return RowEncoder(partial(write_chat_row, route=route))


@pytest.fixture
def encoder() -> RowEncoder:
    return chat_encoder()


@pytest.fixture
def encoded(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What is encoded from now on."""
    values: list[Any] = []

    def remember(value: Any) -> bytes:
        values.append(value)
        return orjson.dumps(value)

    monkeypatch.setattr(encode, "encode_json", remember)
    return values


def row(row_id: int, content: str, **keys: Any) -> dict[str, Any]:
    return {"role": "user", "content": content, "_row_id": row_id, "_seq": row_id, **keys}


def sent(encoder: RowEncoder, *messages: dict[str, Any]) -> Any:
    return orjson.loads(encoder.body(messages, {"model": "m"}))


def test_our_own_keys_are_not_sent(encoder: RowEncoder) -> None:
    messages = [{"role": "system", "content": "s"}, row(1, "a", _tokens=3), row(2, "b")]
    assert sent(encoder, *messages) == {
        "messages": [
            {"role": "system", "content": "s"},
            {"role": "user", "content": "a"},
            {"role": "user", "content": "b"},
        ],
        "model": "m",
    }


CUT = {
    "cut off": ('{"path": "a', {"unreadable": '{"path": "a'}),
    "a list": ("[1]", {"unreadable": "[1]"}),
    "nothing": ("", {}),
    "null": (None, {}),
    "half a surrogate": ('{"a":"\\ud800"}', {"unreadable": '{"a":"\\ud800"}'}),
    "an object": ('{"a": 1}', {"a": 1}),
}


@pytest.mark.parametrize(("written", "read"), CUT.values(), ids=CUT.keys())
def test_arguments_are_always_a_json_object(
    encoder: RowEncoder, written: str | None, read: dict[str, Any]
) -> None:
    function = {"name": "read file!" + "x" * 60, "arguments": written}
    answer = row(1, "", role="assistant", tool_calls=[{"id": "a", "function": function}])
    result = {"role": "tool", "tool_call_id": "a", "name": function["name"], "content": "no"}
    answered, told = sent(encoder, answer, result)["messages"]
    [call] = answered["tool_calls"]
    assert orjson.loads(call["function"]["arguments"]) == read
    assert call["function"]["name"] == told["name"] == "read_file_" + "x" * 54
    assert function["arguments"] == written


def test_no_messages_and_a_first_row_make_valid_bodies(encoder: RowEncoder) -> None:
    assert sent(encoder) == {"messages": [], "model": "m"}
    for _ in range(2):
        assert sent(encoder, row(1, "a"))["messages"] == [{"role": "user", "content": "a"}]


def test_a_stored_row_is_encoded_once(encoder: RowEncoder, encoded: list[Any]) -> None:
    system = {"role": "system", "content": "s"}
    for count in (2, 3):
        encoder.body([system, *(row(number, "x") for number in range(count))], {})
    user = {"role": "user", "content": "x"}
    assert [value for value in encoded if value] == [system, user, user, system, user]


def test_a_masked_row_is_another_one(encoder: RowEncoder) -> None:
    shown = [row(1, "long"), row(1, "stub", _masked_by="p1"), row(1, "stub 2", _masked_by="p2")]
    for message in [*shown, *shown]:
        [only] = sent(encoder, message)["messages"]
        assert only["content"] == message["content"]


def test_a_row_of_another_store_with_the_same_id_is_not_mixed_up(encoder: RowEncoder) -> None:
    for text in ("one", "other", "one"):
        assert sent(encoder, row(1, text))["messages"] == [{"role": "user", "content": text}]


def test_rows_that_left_are_forgotten_once_they_are_the_most(
    encoder: RowEncoder, encoded: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(encode, "_SPARE_BYTES", 0)
    rows = [row(number, "x" * 100) for number in range(9)]
    encoder.body(rows, {})
    encoder.body([{"role": "user", "content": "of another kind"}], {})
    encoder.body(rows[4:], {})
    assert count(encoded, rows) == 9
    encoder.body(rows[8:], {})
    encoder.body(rows, {})
    assert count(encoded, rows) == 9 + 8


def count(encoded: list[Any], rows: list[dict[str, Any]]) -> int:
    return sum(value == wire_message(rows[0]) for value in encoded)


def test_a_message_that_is_not_stored_may_change(encoder: RowEncoder) -> None:
    system = {"role": "system", "content": "one"}
    for text in ("one", "two"):
        system["content"] = text
        assert sent(encoder, system, row(1, "a"))["messages"][0]["content"] == text


@given(
    st.lists(
        st.lists(
            st.tuples(st.integers(0, 6), st.sampled_from([None, "p1", "p2"]), st.booleans()),
            max_size=8,
        ),
        max_size=6,
    )
)
def test_any_sequence_of_requests_is_encoded_as_if_nothing_were_kept(
    requests: list[list[tuple[int, str | None, bool]]],
) -> None:
    rows = {
        (number, mask): row(number, f"{number} {mask}", **({"_masked_by": mask} if mask else {}))
        for number in range(7)
        for mask in (None, "p1", "p2")
    }
    encoder = chat_encoder()
    for request in requests:
        messages = [
            rows[number, mask] if same else dict(rows[number, mask])
            for number, mask, same in request
        ]
        expected = [wire_message(message) for message in messages]
        assert sent(encoder, *messages)["messages"] == expected


def test_empty_text_beside_calls_is_sent_as_null(encoder: RowEncoder) -> None:
    calls = [{"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}]
    message = {"role": "assistant", "content": "", "tool_calls": calls}
    assert sent(encoder, message)["messages"] == [message | {"content": None}]


def test_reasoning_goes_back_to_its_route(encoder: RowEncoder) -> None:
    kept = orjson.dumps({"route": ROUTE, "fields": {"reasoning_content": "hm"}}).decode()
    message = {"role": "assistant", "content": "a", "_reasoning": kept}
    [own] = sent(encoder, message)["messages"]
    [foreign] = sent(chat_encoder("m at http://other/v1"), message)["messages"]
    assert own == {"role": "assistant", "content": "a", "reasoning_content": "hm"}
    assert foreign == {"role": "assistant", "content": "a"}


def test_lone_surrogates_never_reach_the_wire(encoder: RowEncoder) -> None:
    [message] = sent(encoder, {"role": "user", "content": "a\ud800b"})["messages"]
    assert message["content"] == "a\ufffdb"


def test_the_name_of_a_speaker_goes_out_as_strict_servers_take_it(encoder: RowEncoder) -> None:
    [said] = sent(encoder, row(1, "hello", role="user", name="Ada L.\n"))["messages"]
    assert said == {"role": "user", "content": "hello", "name": "Ada_L__"}
