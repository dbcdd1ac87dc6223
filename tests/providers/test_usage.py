"""One record from every dialect of usage."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.providers.protocol import TokenUsage
from agent.providers.usage import later_usage, read_turn_usage, read_usage

CODEX_LAST = {
    "inputTokens": 900,
    "cachedInputTokens": 800,
    "outputTokens": 30,
    "reasoningOutputTokens": 10,
    "totalTokens": 930,
}

USAGES: dict[str, tuple[Any, TokenUsage | None]] = {
    "chat, cached and reasoning": (
        {
            "prompt_tokens": 10,
            "completion_tokens": 5,
            "total_tokens": 15,
            "prompt_tokens_details": {"cached_tokens": 4},
            "completion_tokens_details": {"reasoning_tokens": 3},
        },
        TokenUsage(prompt=10, completion=5, cached=4, reasoning=3),
    ),
    "deepseek": (
        {
            "prompt_tokens": 10,
            "completion_tokens": 5,
            "prompt_cache_hit_tokens": 6,
            "prompt_cache_miss_tokens": 4,
        },
        TokenUsage(prompt=10, completion=5, cached=6),
    ),
    "openrouter": (
        {
            "prompt_tokens": 100,
            "completion_tokens": 5,
            "total_tokens": 105,
            "cost": 0.01,
            "prompt_tokens_details": {"cached_tokens": 60, "cache_write_tokens": 30},
        },
        TokenUsage(prompt=100, completion=5, cached=60, cache_write=30),
    ),
    "moonshot": (
        {"prompt_tokens": 10, "completion_tokens": 5, "cached_tokens": 6},
        TokenUsage(prompt=10, completion=5, cached=6),
    ),
    "a proxy that says the words of two dialects, cached inside": (
        {
            "prompt_tokens": 100,
            "completion_tokens": 5,
            "total_tokens": 105,
            "cache_read_input_tokens": 60,
            "cache_creation_input_tokens": 30,
        },
        TokenUsage(prompt=100, completion=5, cached=60, cache_write=30),
    ),
    "a proxy that leaves cached out, as the numbers show": (
        {
            "prompt_tokens": 10,
            "completion_tokens": 5,
            "prompt_tokens_details": {"cached_tokens": 90},
        },
        TokenUsage(prompt=100, completion=5, cached=90),
    ),
    "a proxy that leaves cached out, as the total shows": (
        {
            "prompt_tokens": 60,
            "completion_tokens": 5,
            "total_tokens": 105,
            "prompt_tokens_details": {"cached_tokens": 40},
        },
        TokenUsage(prompt=100, completion=5, cached=40),
    ),
    "reasoning outside of the completion, as the total shows": (
        {
            "prompt_tokens": 10,
            "completion_tokens": 5,
            "total_tokens": 18,
            "completion_tokens_details": {"reasoning_tokens": 3},
        },
        TokenUsage(prompt=10, completion=8, reasoning=3),
    ),
    "reasoning outside of the completion, as the numbers show": (
        {
            "prompt_tokens": 10,
            "completion_tokens": 5,
            "completion_tokens_details": {"reasoning_tokens": 30},
        },
        TokenUsage(prompt=10, completion=35, reasoning=30),
    ),
    "responses": (
        {
            "input_tokens": 100,
            "input_tokens_details": {"cached_tokens": 80},
            "output_tokens": 9,
            "output_tokens_details": {"reasoning_tokens": 4},
            "total_tokens": 109,
        },
        TokenUsage(prompt=100, completion=9, cached=80, reasoning=4),
    ),
    "anthropic": (
        {
            "input_tokens": 10,
            "cache_read_input_tokens": 80,
            "cache_creation_input_tokens": 20,
            "cache_creation": {"ephemeral_5m_input_tokens": 20, "ephemeral_1h_input_tokens": 0},
            "output_tokens": 9,
        },
        TokenUsage(prompt=110, completion=9, cached=80, cache_write=20),
    ),
    "anthropic, all of it cached": (
        {"input_tokens": 0, "cache_read_input_tokens": 80, "output_tokens": 9},
        TokenUsage(prompt=80, completion=9, cached=80),
    ),
    "anthropic, no cache": (
        {
            "input_tokens": 10,
            "cache_read_input_tokens": None,
            "cache_creation_input_tokens": None,
            "output_tokens": 9,
        },
        TokenUsage(prompt=10, completion=9),
    ),
    "codex events": (
        {"input_tokens": 100, "cached_input_tokens": 80, "output_tokens": 9},
        TokenUsage(prompt=100, completion=9, cached=80),
    ),
    "codex app-server": (
        CODEX_LAST,
        TokenUsage(prompt=900, completion=30, cached=800, reasoning=10),
    ),
    "llama.cpp timings": (
        {"cache_n": 236, "prompt_n": 1, "prompt_ms": 30.9, "predicted_n": 35},
        TokenUsage(prompt=237, completion=35, cached=236),
    ),
    "only a total of the input": (
        {"prompt_tokens": None, "completion_tokens": 5, "total_tokens": 25},
        TokenUsage(prompt=20, completion=5),
    ),
    "floats that are whole": (
        {"prompt_tokens": 10.0, "completion_tokens": 5.0},
        TokenUsage(prompt=10, completion=5),
    ),
    "details null": (
        {"prompt_tokens": 1, "completion_tokens": 2, "prompt_tokens_details": None},
        TokenUsage(prompt=1, completion=2),
    ),
    "no completion yet": ({"prompt_tokens": 10}, TokenUsage(prompt=10, completion=0)),
    "no input": ({"output_tokens": 3}, TokenUsage(prompt=0, completion=3)),
    "negative": ({"prompt_tokens": -1, "completion_tokens": 5}, TokenUsage(0, 5)),
    "absurd": ({"prompt_tokens": 10**15, "completion_tokens": 5}, TokenUsage(0, 5)),
    "infinite": ({"prompt_tokens": float("inf"), "completion_tokens": 5}, TokenUsage(0, 5)),
    "truth values": ({"prompt_tokens": True, "completion_tokens": 5}, TokenUsage(0, 5)),
    "text": ({"prompt_tokens": "10", "completion_tokens": 5}, TokenUsage(0, 5)),
    "zeros": ({"prompt_tokens": 0, "completion_tokens": 0, "total_tokens": 0}, None),
    "nulls": ({"prompt_tokens": None, "completion_tokens": None}, None),
    "missing": (None, None),
    "empty": ({}, None),
    "another thing": (["prompt_tokens"], None),
}


@pytest.mark.parametrize(("usage", "read"), USAGES.values(), ids=USAGES.keys())
def test_usage_is_read(usage: Any, read: TokenUsage | None) -> None:
    assert read_usage(usage) == read


names = st.sampled_from(
    sorted({name for usage, _ in USAGES.values() if isinstance(usage, dict) for name in usage})
    + ["cached_tokens", "reasoning_tokens", "cache_write_tokens"]
)
values = st.none() | st.booleans() | st.integers(-5, 10**16) | st.floats() | st.text(max_size=2)


@given(st.dictionaries(names, values | st.dictionaries(names, values, max_size=3), max_size=6))
def test_whatever_is_sent_parts_never_exceed_their_whole(usage: dict[str, Any]) -> None:
    read = read_usage(usage)
    if read is not None:
        assert 0 <= read.cached + read.cache_write <= read.prompt
        assert 0 <= read.reasoning <= read.completion


def test_counts_of_one_answer_are_cumulative() -> None:
    start = {"input_tokens": 10, "cache_read_input_tokens": 80, "output_tokens": 1}
    end = {"input_tokens": 0, "cache_read_input_tokens": None, "output_tokens": 9}
    assert read_usage(later_usage(later_usage({}, start), end)) == TokenUsage(90, 9, cached=80)


def test_counts_that_come_only_at_the_end_are_taken() -> None:
    start = {"input_tokens": 0, "output_tokens": 0}
    end = {
        "input_tokens": 12,
        "output_tokens": 9,
        "service_tier": "standard",
        "output_tokens_details": {"thinking_tokens": 5},
    }
    merged = later_usage(later_usage(start, None), end)
    assert merged == end
    assert read_usage(later_usage(merged, end)) == TokenUsage(12, 9, reasoning=5)


def test_a_turn_is_billed_by_its_sum_and_fills_the_window_by_its_last_call() -> None:
    total = {
        "inputTokens": 5_000,
        "cachedInputTokens": 4_000,
        "outputTokens": 330,
        "reasoningOutputTokens": 110,
        "totalTokens": 5_330,
    }
    before = TokenUsage(prompt=3_000, completion=300, cached=2_500, reasoning=100)
    usage = read_turn_usage({"total": total, "last": CODEX_LAST}, before)
    assert usage == TokenUsage(2_000, 30, cached=1_500, reasoning=10, in_window=900)
    assert usage is not None
    assert usage.held_tokens == 900


def test_a_turn_without_a_last_call_does_not_say_what_the_window_holds() -> None:
    usage = read_turn_usage({"total": CODEX_LAST}, None)
    assert usage == TokenUsage(900, 30, cached=800, reasoning=10, in_window=0)
    assert read_turn_usage({"last": CODEX_LAST}, None) == read_usage(CODEX_LAST)
    assert read_turn_usage(None, None) is None
