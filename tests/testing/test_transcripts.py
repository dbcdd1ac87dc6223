"""The generator of transcripts: sizes, kinds and repeatability."""

from __future__ import annotations

import base64
import json

import orjson
import pytest

from agent.testing.stub_strict import check_messages
from agent.testing.transcripts import MAX_RESULT_CHARS, MIN_RESULT_CHARS, transcript


def test_one_seed_always_gives_the_same_bytes_and_another_seed_others() -> None:
    first = orjson.dumps(transcript(7, messages=300))
    assert orjson.dumps(transcript(7, messages=300)) == first
    assert orjson.dumps(transcript(8, messages=300)) != first


def test_a_long_transcript_has_the_sizes_and_kinds_of_real_ones() -> None:
    messages = transcript(1, messages=4_000)
    assert len(messages) == 4_000
    assert check_messages(messages) is None
    assert 1_400 < len(orjson.dumps(messages)) / len(messages) < 1_800
    sizes = [len(message["content"]) for message in messages if message["role"] == "tool"]
    assert MIN_RESULT_CHARS <= min(sizes) < 2 * MIN_RESULT_CHARS
    assert MAX_RESULT_CHARS // 2 < max(sizes) <= MAX_RESULT_CHARS
    rounds = [message["tool_calls"] for message in messages if "tool_calls" in message]
    assert {len(calls) for calls in rounds} >= {1, 2, 3}
    for calls in rounds:
        for made in calls:
            assert isinstance(json.loads(made["function"]["arguments"]), dict)


def test_shares_decide_about_cjk_and_base64() -> None:
    plain = transcript(3, messages=200, cjk=0, base64_share=0)
    assert all(str(message["content"]).isascii() for message in plain)
    packed = transcript(3, messages=200, cjk=1, base64_share=1)
    requests = [message["content"] for message in packed if message["role"] == "user"]
    assert not any(text.isascii() for text in requests)
    for message in packed:
        if message["role"] == "tool":
            assert base64.b64decode(message["content"], validate=True)


def test_a_negative_length_is_refused() -> None:
    with pytest.raises(ValueError, match=r"^messages must not be negative, not -1$"):
        transcript(1, messages=-1)
