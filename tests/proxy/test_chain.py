"""Renderings that mean the same have one hash; anything a client changed has another."""

from __future__ import annotations

from typing import Any

import pytest

from agent.base.messages import Message
from agent.server.proxy_chain import (
    Unreadable,
    after,
    chain,
    model_family,
    owner_digest,
    read_request,
)


def called(arguments: str, **fields: Any) -> Message:
    call = {"id": "c1", "type": "function", "function": {"name": "look", "arguments": arguments}}
    return {"role": "assistant", "tool_calls": [call], **fields}


def said(text: Any, **fields: Any) -> Message:
    return {"role": "assistant", "content": text, **fields}


def asked(content: Any, **fields: Any) -> Message:
    return {"role": "user", "content": content, **fields}


def part(text: str, **fields: Any) -> dict[str, Any]:
    return {"type": "text", "text": text, **fields}


SAME = {
    "null and no content": (called("{}"), called("{}", content=None)),
    "empty content beside calls": (called("{}"), called("{}", content="")),
    "fields that an SDK adds": (said("a"), said("a", refusal=None, annotations=[], audio=None)),
    "an empty list of calls": (said("a"), said("a", tool_calls=[])),
    "space in arguments": (called('{"a":1,"b":2}'), called('{"b": 2, "a": 1}')),
    "no arguments": (called(""), called("{}")),
    "an index beside a call": (
        called("{}"),
        {**called("{}"), "tool_calls": [{**called("{}")["tool_calls"][0], "index": 0}]},
    ),
    "reasoning that is not given back": (said("a"), said("a", reasoning_content="hm")),
    "text in parts": (said("ab"), said([part("a"), part("b")])),
    "space around an answer": (said("a"), said(" a\n")),
    "a refusal as text": (said("no"), said(None, refusal="no")),
    "one text part of a user": (asked("a"), asked([part("a")])),
    "a mark of a cache": (asked("a"), asked([part("a", cache_control={"type": "ephemeral"})])),
    "an empty name": (asked("a"), asked("a", name=None)),
}
OTHER = {
    "another text": (said("a"), said("b")),
    "another role": (said("a"), asked("a")),
    "space in what a user says": (asked("a"), asked("a ")),
    "another argument": (called('{"a":1}'), called('{"a":2}')),
    "another id": (
        called("{}"),
        {**called("{}"), "tool_calls": [{**called("{}")["tool_calls"][0], "id": "c2"}]},
    ),
    "another name": (asked("a", name="x"), asked("a", name="y")),
    "an image more": (asked("a"), asked([part("a"), {"type": "image_url", "image_url": {}}])),
    "an unknown field": (asked("a"), asked("a", mood="good")),
    "two parts of a user": (asked("ab"), asked([part("a"), part("b")])),
    "another call": (
        {"role": "tool", "tool_call_id": "c1", "content": "x"},
        {"role": "tool", "tool_call_id": "c2", "content": "x"},
    ),
}


@pytest.mark.parametrize(("one", "two"), SAME.values(), ids=SAME.keys())
def test_harmless_differences_have_one_hash(one: Message, two: Message) -> None:
    assert chain([one], start="m") == chain([two], start="m")


@pytest.mark.parametrize(("one", "two"), OTHER.values(), ids=OTHER.keys())
def test_whatever_means_something_has_a_hash_of_its_own(one: Message, two: Message) -> None:
    assert chain([one], start="m") != chain([two], start="m")


def test_a_change_reaches_every_later_hash_and_no_earlier_one() -> None:
    one = chain([asked("a"), said("b"), asked("c")], start="m")
    two = chain([asked("a"), said("B"), asked("c")], start="m")
    assert [x == y for x, y in zip(one, two, strict=True)] == [True, False, False]


def test_the_hash_of_an_answer_goes_on_from_the_request() -> None:
    rows = [asked("a")]
    assert after(chain(rows, start="m"), "m", said("b")) == chain([*rows, said("b")], start="m")[1]


def test_texts_that_are_no_valid_unicode_have_a_hash() -> None:
    assert len(chain([asked("\ud800"), said("\x00")], start="m")) == 2


@pytest.mark.parametrize(
    ("name", "family"),
    [
        ("gpt-4o", "gpt-4o"),
        ("openai/gpt-4o-2024-08-06", "gpt-4o"),
        ("claude-sonnet-4-20250514", "claude-sonnet-4"),
        ("gpt-4o-latest", "gpt-4o"),
        ("qwen/qwen3:free", "qwen3"),
        ("gpt-4-0613", "gpt-4"),
        ("", ""),
    ],
)
def test_versions_of_a_model_are_one_family(name: str, family: str) -> None:
    assert model_family(name) == family


def test_system_messages_are_apart_with_their_places() -> None:
    system, late = {"role": "system", "content": "s"}, {"role": "developer", "content": "d"}
    sent = read_request({"model": "m", "messages": [system, asked("a"), late, said("b")]}, "k")
    assert (list(sent.rows), list(sent.system_at)) == (
        [asked("a"), said("b")],
        [(0, system), (1, late)],
    )
    assert sent.owner == owner_digest("k")


@pytest.mark.parametrize(
    ("body", "why"),
    [
        ([], "the body must be a JSON object, not list"),
        ({"messages": "hi"}, "messages must be a list, not str"),
        ({"messages": [1]}, "messages[0] must be an object with a role"),
        ({"messages": [{"role": ""}]}, "messages[0] has an empty role"),
        (
            {"messages": [asked("a"), said("b", tool_calls=["x"])]},
            "messages[1].tool_calls must be a list of calls with a function",
        ),
    ],
)
def test_what_is_no_request_says_where(body: Any, why: str) -> None:
    with pytest.raises(Unreadable) as caught:
        read_request(body, "k")
    assert str(caught.value) == why
