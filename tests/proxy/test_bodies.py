"""Bodies are read in part where they go on, and say the same as when they are read whole."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.server.proxy_bodies import Bodies, Reading

TEXTS = st.sampled_from(["", "a", 'messages":[1],"', "]}", "\\", "é\n", '"messages"', "[{"])
MESSAGES = st.lists(st.dictionaries(st.sampled_from(["role", "messages", "x"]), TEXTS), max_size=5)
FIELDS = st.dictionaries(
    st.sampled_from(["model", "tools", "a", "metadata"]),
    TEXTS | st.dictionaries(st.sampled_from(["messages", "b"]), st.lists(TEXTS, max_size=2)),
)


def encoded(body: Any, indent: int | None = None) -> bytes:
    return json.dumps(body, ensure_ascii=False, indent=indent).encode()


def read(bodies: Bodies, raw: bytes, owner: str = "o") -> Reading:
    reading = bodies.read(raw, owner)
    bodies.keep(reading, owner)
    return reading


@given(FIELDS, MESSAGES, MESSAGES, FIELDS, st.sampled_from([None, 2]))
def test_a_body_says_the_same_whatever_was_read_before(
    before: dict[str, Any],
    first: list[Any],
    more: list[Any],
    after: dict[str, Any],
    indent: int | None,
) -> None:
    bodies = Bodies()
    for messages in (first, [*first, *more], first, more):
        raw = encoded({**before, "messages": messages, **after}, indent)
        assert read(bodies, raw).body == json.loads(raw)


@pytest.mark.parametrize("indent", [None, 2])
def test_of_a_body_that_goes_on_only_the_new_messages_are_read(indent: int | None) -> None:
    bodies = Bodies()
    read(bodies, encoded({"model": "m", "messages": [{"a": "]"}], "stream": True}, indent))
    longer = {"model": "m", "messages": [{"a": "]"}, {"b": "\\"}, {}], "stream": True}
    raw = encoded(longer, indent)
    assert bodies.read(raw, "o") == Reading(raw, longer, known=1, closes=raw.rindex(b"]"))
    assert bodies.read(raw, "another") == Reading(raw, longer)


@pytest.mark.parametrize(
    "raw",
    [
        b'{"messages":[{}],"messages":[{},{}]}',
        b'{"messages":[{}],"mess\\u0061ges":[{},{}]}',
        b'{"messages":[{}],"a":{"messages":[{},{}]}}',
        b'{"a":"messages","b":[1],"messages":[{},{}]}',
        b'[{"messages":[{}]}]',
        b"null",
    ],
)
def test_an_odd_body_is_read_whole(raw: bytes) -> None:
    bodies = Bodies()
    read(bodies, raw)
    assert bodies.read(raw, "o").body == json.loads(raw)


@pytest.mark.parametrize("piece", [b",", b",,{}", b"{}", b",{}],[{}", b',{"a":"', b",1]"])
def test_what_is_no_json_is_refused_after_a_body_that_it_begins_with(piece: bytes) -> None:
    bodies = Bodies()
    read(bodies, b'{"messages":[{}]}')
    with pytest.raises(ValueError, match="."):
        bodies.read(b'{"messages":[{}' + piece + b"]}", "o")


def test_no_more_bodies_are_kept_than_there_is_room_for() -> None:
    raws = [encoded({"messages": [{"number": number}]}) for number in range(3)]
    few, small = Bodies(most=2), Bodies(most_bytes=2 * len(raws[0]))
    for bodies in (few, small):
        for raw in raws:
            read(bodies, raw)
        assert [bodies.read(raw, "o").known for raw in raws] == [0, 1, 1]


def test_a_body_takes_the_place_of_the_one_that_it_goes_on_from() -> None:
    bodies = Bodies(most=2)
    raws = [encoded({"messages": [{}] * count}) for count in (1, 2, 3)]
    read(bodies, encoded({"messages": [{"other": 1}]}))
    for raw in raws:
        read(bodies, raw)
    assert bodies.read(encoded({"messages": [{"other": 1}]}), "o").known == 1
    assert [bodies.read(raw, "o").known for raw in raws] == [0, 0, 3]
