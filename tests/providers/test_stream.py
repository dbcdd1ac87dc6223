"""The decoder of server-sent events."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.providers.stream import EventDecoder, ServerEvent

CASES = {
    "two events": (b"data: a\n\ndata: b\n\n", [("message", b"a"), ("message", b"b")]),
    "lines joined": (b"data: a\ndata: b\n\n", [("message", b"a\nb")]),
    "no space": (b"data:a\n\n", [("message", b"a")]),
    "one space is taken off": (b"data:  a\n\n", [("message", b" a")]),
    "no colon": (b"data\n\n", [("message", b"")]),
    "named": (b"event: error\ndata: x\n\n", [("error", b"x")]),
    "the name holds for one event": (
        b"event: e\ndata: x\n\ndata: y\n\n",
        [("e", b"x"), ("message", b"y")],
    ),
    "comments": (b": keep-alive\n\n:\ndata: a\n: in between\ndata: b\n\n", [("message", b"a\nb")]),
    "carriage returns": (b"data: a\r\rdata: b\r\r", [("message", b"a"), ("message", b"b")]),
    "both": (b"data: a\r\n\r\ndata: b\r\n\r\n", [("message", b"a"), ("message", b"b")]),
    "last without blank line": (b"data: a\n\ndata: b", [("message", b"a"), ("message", b"b")]),
    "byte order mark": (b"\xef\xbb\xbfdata: a\n\n", [("message", b"a")]),
    "other fields": (b"id: 1\nretry: 5\nfoo: x\ndata: a\n\n", [("message", b"a")]),
    "an event without data is none": (b"event: e\n\n", []),
    "nothing": (b"", []),
    "utf-8": ("data: 日本\n\n".encode(), [("message", "日本".encode())]),
}


def decode(chunks: list[bytes]) -> list[tuple[str, bytes]]:
    decoder = EventDecoder()
    events: list[ServerEvent] = []
    for chunk in chunks:
        events.extend(decoder.feed(chunk))
    events.extend(decoder.end())
    return [(event.name, event.data) for event in events]


@pytest.mark.parametrize(("body", "events"), CASES.values(), ids=CASES.keys())
def test_a_body_is_decoded(body: bytes, events: list[tuple[str, bytes]]) -> None:
    assert decode([body]) == events


@pytest.mark.parametrize(("body", "events"), CASES.values(), ids=CASES.keys())
def test_single_bytes_decode_to_the_same(body: bytes, events: list[tuple[str, bytes]]) -> None:
    without_mark = body.removeprefix(b"\xef\xbb\xbf")
    assert decode([bytes([byte]) for byte in without_mark]) == events


@given(st.data())
def test_the_way_a_body_is_cut_changes_nothing(data: st.DataObject) -> None:
    body = b"".join(case for case, _events in CASES.values())
    cuts = sorted(data.draw(st.sets(st.integers(4, len(body)), max_size=12)))
    bounds = [0, *cuts, len(body)]
    chunks = [body[start:end] for start, end in zip(bounds, bounds[1:], strict=False)]
    assert decode(chunks) == decode([body])


def test_an_event_comes_as_soon_as_its_blank_line_does() -> None:
    decoder = EventDecoder()
    assert list(decoder.feed(b"data: a\n")) == []
    assert list(decoder.feed(b"\n")) == [ServerEvent("message", b"a")]


def test_an_endless_event_is_refused() -> None:
    decoder = EventDecoder()
    piece = b"x" * (16 * 1024 * 1024)
    for _ in range(4):
        assert list(decoder.feed(piece)) == []
    with pytest.raises(ValueError, match="larger than 67108864 bytes"):
        list(decoder.feed(b"x"))
