"""When a pass waits for the sake of a warm prompt cache, for any figures."""

from __future__ import annotations

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.compaction.cache_timing import (
    REACH,
    SAFE_SHARE,
    CacheState,
    CacheUse,
    Situation,
    may_wait,
)
from agent.providers.protocol import TokenUsage

NOW = 1_000.0
WARM = CacheUse(prompt=75_000, cached=74_000, written=1_000, at=NOW - 10)
AUTOMATIC = dataclasses.replace(WARM, written=0)
TYPICAL = Situation(used=76_000, after=50_000, growth=1_500, trigger=75_000, usable=100_000)

TOKENS = st.integers(0, 400_000)
SITUATIONS = st.builds(
    Situation,
    used=TOKENS,
    after=TOKENS,
    growth=st.integers(0, 20_000),
    trigger=TOKENS,
    usable=TOKENS,
)
USES = st.builds(
    CacheUse,
    prompt=TOKENS,
    cached=TOKENS,
    written=st.one_of(st.just(0), TOKENS),
    at=st.floats(0, NOW),
)

CASES = {
    "a warm cache and little grown": (TYPICAL, WARM, True),
    "before the trigger": (dataclasses.replace(TYPICAL, used=70_000), WARM, True),
    "a cache that is written by itself": (TYPICAL, AUTOMATIC, False),
    "requests that grow slowly": (dataclasses.replace(TYPICAL, growth=100), WARM, False),
    "near the end of the window": (dataclasses.replace(TYPICAL, used=88_000), WARM, False),
    "far past the trigger": (dataclasses.replace(TYPICAL, trigger=60_000), WARM, False),
    "an expired cache": (TYPICAL, dataclasses.replace(WARM, at=NOW - 300), False),
    "a clock that was set back": (TYPICAL, dataclasses.replace(WARM, at=NOW + 1), False),
    "no cache": (TYPICAL, CacheUse(prompt=75_000, at=NOW - 1), False),
    "nothing known": (TYPICAL, CacheUse(), False),
}


@pytest.mark.parametrize(("situation", "use", "waits"), CASES.values(), ids=CASES.keys())
def test_a_pass_waits_only_while_it_pays(situation: Situation, use: CacheUse, waits: bool) -> None:
    assert may_wait(situation, use, NOW) is waits


@given(SITUATIONS, USES)
def test_nothing_waits_past_the_safe_part_of_the_window(
    situation: Situation, use: CacheUse
) -> None:
    if may_wait(situation, use, NOW):
        reached = situation.used + 2 * situation.growth
        assert reached <= SAFE_SHARE * situation.usable
        assert reached <= REACH * situation.trigger


@given(SITUATIONS, USES, st.floats(0, 10_000))
def test_a_cache_that_is_not_warm_holds_nothing_up(
    situation: Situation, use: CacheUse, later_s: float
) -> None:
    if may_wait(situation, use, NOW + later_s):
        assert use.state(NOW + later_s) is CacheState.WARM
        assert may_wait(situation, use, NOW)
    if use.state(NOW) is not CacheState.WARM:
        assert not may_wait(situation, use, NOW + later_s)


@given(SITUATIONS, USES, st.integers(0, 50_000))
def test_what_has_grown_more_waits_no_longer(
    situation: Situation, use: CacheUse, less: int
) -> None:
    smaller = dataclasses.replace(situation, used=max(0, situation.used - less))
    assert may_wait(smaller, use, NOW) or not may_wait(situation, use, NOW)


@given(USES)
def test_what_an_anchor_keeps_is_read_back(use: CacheUse) -> None:
    anchor = {
        "prompt": use.prompt,
        "cached": use.cached,
        "cache_write": use.written,
        "at": use.at,
        "ratio": 1.1,
    }
    assert CacheUse.from_anchor(anchor) == use
    assert CacheUse.from_anchor({"ratio": 1.1}) == CacheUse()


def test_the_next_request_reads_what_is_warm_and_unchanged() -> None:
    for use, prompt, unchanged, expected in [
        (WARM, 76_000, 75_000, TokenUsage(76_000, 0, cached=75_000, cache_write=1_000)),
        (WARM, 50_000, 4_000, TokenUsage(50_000, 0, cached=4_000, cache_write=46_000)),
        (AUTOMATIC, 50_000, 4_000, TokenUsage(50_000, 0, cached=4_000)),
        (dataclasses.replace(WARM, at=0.0), 9_000, 4_000, TokenUsage(9_000, 0, cache_write=9_000)),
        (CacheUse(), 9_000, 4_000, TokenUsage(9_000, 0)),
    ]:
        assert use.next_usage(prompt, unchanged, NOW) == expected
