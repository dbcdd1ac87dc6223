"""Estimates against counts measured with the o200k vocabulary, and against a strict counter."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.base import tokens
from agent.base.tokens import (
    IMAGE_TOKENS,
    MESSAGE_TOKENS,
    PRIOR_TOKENS,
    Calibration,
    estimate_message,
    estimate_text,
    estimate_tools,
)

CORPUS = Path(__file__).parent / "corpus"
MEASURED_TOKENS = {
    "prose": 241,
    "code": 315,
    "json": 374,
    "logs": 501,
    "cjk": 280,
    "base64": 824,
    "mixed": 159,
}
SMALL, LARGE = "A" * 100_000, "A" * 5_000_000
STRICT_TEXTS = {
    "english": "The quick brown fox jumps over the lazy dog. ",
    "english in capitals": "PLEASE READ THE RELEASE NOTES BEFORE YOU UPGRADE. ",
    "one long word": "internationalisation",
    "spaces": " ",
    "indented": "        x\n",
    "digits": "0123456789",
    "chinese": "数据库里的值是正确的,只有导出错了。",
    "japanese": "データベースの値は正しかったです。",
    "korean": "데이터베이스의 값은 정확했습니다. ",
    "full-width": "ＡＢＣ１２３",
    "emoji": "🚀🎉🔥",
    "older emoji": "☀⚡✅❌",
    "arabic": "كانت القيم صحيحة في قاعدة البيانات ",
    "russian": "Значения в базе были верны. ",
    "thai": "ค่าในฐานข้อมูลถูกต้อง",
}


def _strict_count(text: str) -> float:
    """Count as the strictest endpoints do: 1 a CJK character, 2 an emoji, half an Arabic letter."""

    def price(character: str) -> float:
        code = ord(character)
        if 0x3000 <= code <= 0x9FFF or 0xAC00 <= code <= 0xD7A3 or 0xFF00 <= code <= 0xFFEF:
            return 1
        if 0x2600 <= code <= 0x27BF or code >= 0x1F000:
            return 2
        return 0.5 if 0x0600 <= code <= 0x06FF else 0.25

    return sum(map(price, text))


@pytest.mark.parametrize("kind", MEASURED_TOKENS)
def test_each_kind_of_text_is_estimated_within_a_quarter(kind: str) -> None:
    text = (CORPUS / f"{kind}.txt").read_text("utf-8")
    assert estimate_text(text) == pytest.approx(MEASURED_TOKENS[kind], rel=0.25)


def test_all_kinds_together_are_estimated_within_a_tenth() -> None:
    estimates = [estimate_text(path.read_text("utf-8")) for path in CORPUS.glob("*.txt")]
    assert sum(estimates) == pytest.approx(sum(MEASURED_TOKENS.values()), rel=0.10)


@pytest.mark.parametrize("text", STRICT_TEXTS.values(), ids=STRICT_TEXTS)
def test_no_language_is_counted_far_below_a_strict_endpoint(text: str) -> None:
    assert estimate_text(text * 400) >= 0.8 * _strict_count(text * 400)


@given(st.text())
def test_no_text_is_counted_far_below_a_strict_endpoint(text: str) -> None:
    assert estimate_text(text) >= 0.8 * _strict_count(text)


@given(st.text() | st.text("aZ0 .\n\tü", max_size=40))
def test_changes_count_as_if_each_had_been_looked_for(text: str) -> None:
    data = text.encode("utf-8", "replace")
    assert tokens._weigh_ascii(data) == tokens._weigh(
        data.translate(tokens._CLASSES), tokens._ASCII_WEIGHTS
    )


@given(st.text(), st.text())
def test_a_longer_text_never_counts_less(text: str, more: str) -> None:
    assert estimate_text(text + more) >= estimate_text(text)


@pytest.mark.parametrize(("text", "tokens"), [("", 0), ("a", 1), ("\ud800", 1)])
def test_the_smallest_texts_have_an_estimate(text: str, tokens: int) -> None:
    assert estimate_text(text) == tokens


def _image_parts(data: str) -> dict[str, Any]:
    url = f"data:image/png;base64,{data}"
    return {
        "chat completions": {"type": "image_url", "image_url": {"url": url}},
        "responses": {"type": "input_image", "image_url": url},
        "anthropic": {
            "type": "image",
            "source": {"type": "base64", "media_type": "image/png", "data": data},
        },
        "in a tool result": {"type": "tool_result", "content": [{"type": "image", "source": data}]},
        "data URL in a text part": {"type": "text", "text": url},
        "beside a text": {"type": "text", "text": "", "image_url": url},
    }


@pytest.mark.parametrize("shape", _image_parts(""))
def test_an_image_counts_the_same_whatever_its_size(shape: str) -> None:
    small, large = (
        estimate_message({"role": "user", "content": [_image_parts(data)[shape]]})
        for data in (SMALL, LARGE)
    )
    assert small == large
    assert IMAGE_TOKENS + MESSAGE_TOKENS <= small <= IMAGE_TOKENS + MESSAGE_TOKENS + 10


@pytest.mark.parametrize("content", [LARGE, [{"type": "text", "text": LARGE}]], ids=["str", "part"])
def test_base64_that_was_printed_counts_as_text(content: Any) -> None:
    message = {"role": "tool", "content": content}
    assert estimate_message(message) == estimate_text(LARGE) + MESSAGE_TOKENS


def test_a_message_is_the_sum_of_its_parts_and_an_overhead() -> None:
    arguments = '{"path": "src/app.py"}'
    message = {
        "role": "assistant",
        "content": [{"type": "text", "text": "I look."}, "And then?"],
        "tool_calls": [
            {"id": "c1", "type": "function", "function": {"name": "read", "arguments": arguments}}
        ],
        "_reasoning": [{"encrypted_content": "opaque" * 1_000}],
    }
    texts = ("I look.", "And then?", "read", arguments)
    assert estimate_message(message) == 2 * MESSAGE_TOKENS + sum(map(estimate_text, texts))


def test_an_empty_message_is_only_its_overhead() -> None:
    assert estimate_message({"role": "assistant", "content": None}) == MESSAGE_TOKENS


def test_tools_count_as_the_json_that_is_sent() -> None:
    schema = {"type": "function", "function": {"name": "read", "parameters": {}}}
    text = '[{"type":"function","function":{"name":"read","parameters":{}}}]'
    assert (estimate_tools([]), estimate_tools([schema])) == (0, estimate_text(text))


def test_the_first_report_takes_over() -> None:
    estimated, real = 10_000 - PRIOR_TOKENS, 14_000 - PRIOR_TOKENS
    assert Calibration().observe(estimated, real) == Calibration(1.4, 1)


def test_a_report_on_a_short_request_says_little() -> None:
    assert 1.0 < Calibration().observe(20, 60).ratio < 1.1


def test_a_higher_ratio_is_taken_at_once_and_a_lower_one_by_half() -> None:
    estimated = 10_000 - PRIOR_TOKENS
    raised = Calibration(1.0, 1).observe(estimated, 16_000 - PRIOR_TOKENS)
    assert raised == Calibration(1.6, 2)
    assert raised.observe(estimated, estimated) == Calibration(1.3, 3)


@pytest.mark.parametrize(("real", "ratio"), [(1, 0.5), (10**9, 4.0)])
def test_a_report_beyond_belief_is_bounded(real: int, ratio: float) -> None:
    assert Calibration().observe(1_000_000, real).ratio == ratio


@pytest.mark.parametrize(("estimated", "real"), [(0, 10), (10, 0), (-1, 5)])
def test_a_report_without_a_count_is_ignored(estimated: int, real: int) -> None:
    assert Calibration(1.2, 3).observe(estimated, real) == Calibration(1.2, 3)


def test_a_calibrated_count_is_rounded_up() -> None:
    assert Calibration(1.15, 1).apply(1_001) == 1_152


@given(st.floats(0.5, 4.0), st.integers(0, 1_000))
def test_a_calibration_is_read_back_as_it_was_stored(ratio: float, reports: int) -> None:
    calibration = Calibration(ratio, reports)
    assert Calibration.from_dict(calibration.to_dict()) == calibration


@pytest.mark.parametrize("stored", [None, {}, {"model": "m"}])
def test_nothing_stored_is_no_report(stored: dict[str, Any] | None) -> None:
    assert Calibration.from_dict(stored) == Calibration()
