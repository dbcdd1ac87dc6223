"""D15: a picture has a fixed price, whatever its bytes; only text is counted as text."""

from __future__ import annotations

import base64
import random
from typing import Any

import pytest

from agent.base.messages import Message
from agent.base.tokens import IMAGE_TOKENS, estimate_message
from agent.sessions.records import PassStatus
from agent.testing.builders import assistant, call, user
from agent.testing.stub_reply import Reply
from agent.testing.stub_strict import count_tokens
from tests.field_reports.harness import SUMMARISER, SUMMARY, settings_for, small_talk

SMALL_BYTES, LARGE_BYTES = 100_000, 5_000_000
WINDOW = 32_000


def base64_of(size: int) -> str:
    return base64.b64encode(random.Random(size).randbytes(size)).decode()


PICTURES = {size: base64_of(size) for size in (SMALL_BYTES, LARGE_BYTES)}


def data_url(size: int) -> str:
    return f"data:image/png;base64,{PICTURES[size]}"


SHAPES: dict[str, Any] = {
    "image_url": lambda size: {"type": "image_url", "image_url": {"url": data_url(size)}},
    "image_url with detail": lambda size: {
        "type": "image_url",
        "image_url": {"url": data_url(size), "detail": "low"},
    },
    "image_url as text": lambda size: {"type": "image_url", "image_url": data_url(size)},
    "input_image": lambda size: {"type": "input_image", "image_url": data_url(size)},
    "image with source": lambda size: {
        "type": "image",
        "source": {"type": "base64", "media_type": "image/png", "data": PICTURES[size]},
    },
    "a data URL as a text part": lambda size: {"type": "text", "text": data_url(size)},
    "a data URL within a text part": lambda size: {
        "type": "text",
        "text": f"before ![shot]({data_url(size)}) after",
    },
    "a data URL with parameters": lambda size: {
        "type": "text",
        "text": f"see data:image/svg+xml;charset=utf-8;base64,{PICTURES[size]} there",
    },
}
EVERY_SHAPE = pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)


def from_user(part: Any) -> list[Message]:
    return [user([{"type": "text", "text": "what is on it?"}, part]), assistant("a cat")]


def from_tool(part: Any) -> list[Message]:
    made = call("screenshot", call_id="shot")
    content = [{"type": "text", "text": "taken"}, part]
    return [
        user("take one"),
        assistant(None, made),
        {"role": "tool", "tool_call_id": "shot", "content": content},
        assistant("a cat"),
    ]


PLACES = {"in a user message": from_user, "in a tool result": from_tool}
EVERY_PLACE = pytest.mark.parametrize("place", PLACES.values(), ids=PLACES)


@EVERY_PLACE
@EVERY_SHAPE
def test_d15_both_sizes_have_the_same_price_and_no_pass_runs(stub, open_bench, shape, place):
    stub.script([], model=SUMMARISER, then=Reply(text=SUMMARY))
    bench = open_bench(settings_for(stub.base_url, window_tokens=WINDOW))
    prices = []
    for size in (SMALL_BYTES, LARGE_BYTES):
        stored = bench.fill(place(shape(size)))
        prices.append([row["_tokens"] for row in stored])
        assert bench.agent.chat("and now?") == "ok"
    assert prices[0] == prices[1]
    without = sum(estimate_message(row) for row in place({"type": "text", "text": ""}))
    assert IMAGE_TOKENS <= sum(prices[0]) - without <= IMAGE_TOKENS + 30
    assert bench.passes == []
    assert bench.summary_requests == []
    assert bench.refusals == []
    assert len(bench.main_requests) == 2
    assert bench.main_requests[-1].raw.count(PICTURES[LARGE_BYTES].encode()) == 1
    assert bench.agent.context().total == pytest.approx(
        count_tokens(bench.main_requests[-1].messages), rel=0.7
    )


@EVERY_PLACE
@pytest.mark.parametrize("count", [1, 3])
def test_d15_each_picture_adds_the_same(count, place):
    part = SHAPES["image_url"](SMALL_BYTES)
    rows = place(part)
    holder = next(row for row in rows if isinstance(row["content"], list))
    one = estimate_message(holder)
    holder["content"] = [*holder["content"], *[part] * count]
    assert estimate_message(holder) - one == count * IMAGE_TOKENS


@EVERY_SHAPE
def test_d15_a_pass_takes_old_pictures_away_and_shows_none_to_the_summariser(
    stub, open_bench, shape
):
    stub.script([], model=SUMMARISER, then=Reply(text=SUMMARY))
    bench = open_bench(settings_for(stub.base_url, window_tokens=WINDOW))
    bench.fill([*from_user(shape(SMALL_BYTES)), *from_tool(shape(LARGE_BYTES))])
    bench.fill(small_talk(10, tokens=300))
    accepted = bench.rows
    bench.compressor.tail_token_budget = 500
    assert bench.agent.compress().status is PassStatus.COMMITTED
    piece = PICTURES[LARGE_BYTES][1_000:1_100].encode(), PICTURES[SMALL_BYTES][1_000:1_100].encode()
    assert len(bench.summary_requests) <= 1
    for request in bench.summary_requests:
        assert not any(part in request.raw for part in piece)
        assert len(request.raw) < 100_000
    bench.agent.chat("and now?")
    assert not any(part in bench.main_requests[-1].raw for part in piece)
    assert bench.rows[: len(accepted)] == accepted
    assert bench.refusals == []


CONTROLS = {
    "a tool's output": lambda text: [
        user("print it"),
        assistant(None, call("shell", call_id="c1")),
        {"role": "tool", "tool_call_id": "c1", "content": text},
    ],
    "a user's text": lambda text: [user(text)],
    "a text part": lambda text: [user([{"type": "text", "text": text}])],
}


@pytest.mark.parametrize("place", CONTROLS.values(), ids=CONTROLS)
def test_d15_base64_that_is_plain_text_is_counted_as_text(place):
    text = PICTURES[LARGE_BYTES]
    assert estimate_message(place(text)[-1]) > len(text) / 4
    assert estimate_message(place(text)[-1]) > 300 * IMAGE_TOKENS


def test_d15_a_tool_that_printed_a_picture_as_text_is_shown_as_an_excerpt(stub, open_bench):
    bench = open_bench(settings_for(stub.base_url, window_tokens=WINDOW))
    bench.fill(CONTROLS["a tool's output"](data_url(LARGE_BYTES)))
    assert bench.agent.chat("well?") == "ok"
    assert len(bench.main_requests[0].raw) < 100_000
    assert bench.rows[2]["content"] == data_url(LARGE_BYTES)
    assert bench.passes == []
    assert bench.refusals == []
