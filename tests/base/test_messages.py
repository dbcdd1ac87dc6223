"""Cleaning, copying and reading messages."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.base.messages import (
    call_ids,
    clean_text,
    clean_value,
    copy_messages,
    is_user_text,
    last_user_index,
    text_of,
    wire_message,
)

ANY_TEXT = st.text(st.characters(codec=None))
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | ANY_TEXT,
    lambda inner: st.lists(inner) | st.dictionaries(ANY_TEXT, inner),
    max_leaves=10,
)


@given(ANY_TEXT)
def test_a_clean_text_can_be_stored_and_keeps_its_length(text: str) -> None:
    cleaned = clean_text(text)
    assert "\x00" not in cleaned
    cleaned.encode("utf-8")
    assert len(cleaned) == len(text)


@given(st.text().filter(lambda text: "\x00" not in text))
def test_a_text_that_is_clean_comes_back_as_the_same_object(text: str) -> None:
    assert clean_text(text) is text


@pytest.mark.parametrize(
    ("text", "cleaned"),
    [("a\x00b", "a\ufffdb"), ("\ud83d", "\ufffd"), ("😀\udc00", "😀\ufffd")],
    ids=["nul", "half of a pair", "after an emoji"],
)
def test_what_cannot_be_stored_becomes_a_replacement_character(text: str, cleaned: str) -> None:
    assert clean_text(text) == cleaned


def test_a_value_is_cleaned_in_its_keys_and_depths() -> None:
    value = {"a\x00": ["\ud800", {"b": ("c", 1, None, True)}], 2: 0.5}
    cleaned = {"a\ufffd": ["\ufffd", {"b": ["c", 1, None, True]}], "2": 0.5}
    assert clean_value(value) == cleaned


@given(JSON)
def test_cleaning_twice_changes_nothing_more(value: Any) -> None:
    cleaned = clean_value(value)
    assert clean_value(cleaned) == cleaned


def test_a_copy_shares_no_container_with_the_original() -> None:
    original = [{"role": "user", "content": [{"type": "text", "text": "a"}], "_stub": {"x": [1]}}]
    kept = copy.deepcopy(original)
    copied = copy_messages(original)
    assert copied == kept
    copied[0]["content"][0]["text"] = "b"
    copied[0]["_stub"]["x"].append(2)
    copied[0]["role"] = "tool"
    assert original == kept


def test_our_keys_never_reach_the_wire() -> None:
    message = {"role": "user", "content": "a", "_row_id": 7, "_reasoning": "opaque"}
    assert wire_message(message) == {"role": "user", "content": "a"}


@pytest.mark.parametrize(
    ("content", "text"),
    [
        ("a", "a"),
        (None, ""),
        ([], ""),
        (["a", {"type": "text", "text": "b"}], "a\nb"),
        ([{"type": "image_url", "image_url": {}}, {"type": "text", "text": "b"}], "b"),
        ([{"type": "text", "text": None}, 7], ""),
        (7, ""),
    ],
)
def test_the_readable_text_of_any_content(content: Any, text: str) -> None:
    assert text_of(content) == text


def test_call_ids_come_in_the_order_of_the_calls() -> None:
    message = {"role": "assistant", "tool_calls": [{"id": "b"}, {"id": "a"}, {}]}
    assert call_ids(message) == ["b", "a", ""]


@pytest.mark.parametrize("message", [{"role": "user"}, {"role": "assistant", "tool_calls": None}])
def test_a_message_without_calls_has_no_call_ids(message: dict[str, Any]) -> None:
    assert call_ids(message) == []


USER_TEXTS: dict[str, tuple[dict[str, Any], bool]] = {
    "text": ({"role": "user", "content": "a"}, True),
    "an image alone": ({"role": "user", "content": [{"type": "image_url"}]}, True),
    "of kind message": ({"role": "user", "content": "a", "_kind": "message"}, True),
    "blank": ({"role": "user", "content": " \n"}, False),
    "nothing": ({"role": "user", "content": None}, False),
    "no parts": ({"role": "user", "content": []}, False),
    "a summary": ({"role": "user", "content": "a", "_kind": "summary"}, False),
    "the assistant's": ({"role": "assistant", "content": "a"}, False),
}


@pytest.mark.parametrize(("message", "expected"), USER_TEXTS.values(), ids=USER_TEXTS)
def test_a_real_user_message_is_told_from_the_rest(message: dict[str, Any], expected: bool) -> None:
    assert is_user_text(message) is expected


def test_the_newest_user_message_is_found_below_later_rows() -> None:
    texts = [message for message, _ in USER_TEXTS.values()]
    assert last_user_index(texts) == 2
    assert last_user_index(texts[3:]) is None
