"""How the window is shared out."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.base.tokens import estimate_message
from agent.compaction.budget import Budget, budget_for, row_tokens, shown_tokens, total_tokens


def test_the_shares_of_a_window_of_128_thousand():
    assert budget_for(128_000, 4_096, 2_000) == Budget(
        usable_tokens=123_904,
        overhead_tokens=2_000,
        trigger_tokens=92_928,
        target_tokens=60_952,
        tail_tokens=24_780,
        user_tokens=12_390,
        pin_tokens=6_195,
        anchor_tokens=3_717,
        summary_tokens=6_195,
        round_tokens=30_976,
        message_tokens=30_976,
    )


@pytest.mark.parametrize(
    ("window", "reserve", "trigger", "tail", "summary"),
    [
        pytest.param(4_096, 512, 2_688, 716, 400, id="smallest"),
        pytest.param(200_000, 4_096, 146_928, 25_000, 9_795, id="common"),
        pytest.param(511_999, 4_096, 256_000, 25_000, 10_000, id="just-below-large"),
        pytest.param(512_000, 4_096, 253_952, 25_000, 10_000, id="large"),
        pytest.param(1_000_000, 4_096, 256_000, 25_000, 10_000, id="capped"),
    ],
)
def test_trigger_tail_and_summary_of_a_window(window, reserve, trigger, tail, summary):
    budget = budget_for(window, reserve, 0)
    assert (budget.trigger_tokens, budget.tail_tokens, budget.summary_tokens) == (
        trigger,
        tail,
        summary,
    )


@pytest.mark.parametrize(
    ("threshold", "trigger"), [(0.3, 29_771), (0.8, 79_390), (0.99, 84_352)], ids=str
)
def test_a_threshold_of_ones_own_stays_within_reach(threshold, trigger):
    assert budget_for(103_334, 4_096, 0, threshold=threshold).trigger_tokens == trigger


def test_a_threshold_of_ones_own_may_go_beyond_the_built_in_ceiling():
    assert budget_for(8_000_000, 4_096, 0, threshold=0.8).trigger_tokens == 6_396_723


def test_a_target_of_ones_own_counts_from_what_overhead_leaves():
    assert budget_for(100_000, 4_000, 16_000, target_ratio=0.25).target_tokens == 20_000


def test_a_provider_that_counts_more_than_we_do_shrinks_every_share():
    plain, counted = budget_for(100_000, 4_000, 0), budget_for(100_000, 4_000, 0, 2.0)
    assert (counted.usable_tokens, counted.trigger_tokens, counted.tail_tokens) == (
        plain.usable_tokens // 2,
        plain.trigger_tokens // 2,
        plain.tail_tokens // 2,
    )


def test_overhead_beyond_the_window_leaves_a_target_of_one_token():
    assert budget_for(8_000, 1_000, 9_000).target_tokens == 1


def test_fits_and_trigger_count_messages_and_overhead_together():
    budget = budget_for(10_000, 1_000, 2_000)
    assert (budget.fits(7_000), budget.fits(7_001)) == (True, False)
    assert (budget.under_trigger(4_749), budget.under_trigger(4_750)) == (True, False)


def test_a_stored_estimate_is_never_made_again():
    message = {"role": "user", "content": "some words", "_tokens": 7_000}
    assert row_tokens(message) == 7_000
    assert row_tokens({"role": "user", "content": "some words"}) == estimate_message(message)


def test_long_requests_and_large_tool_rounds_count_at_what_a_request_shows():
    budget = budget_for(40_000, 0, 0)
    rows = [
        {"role": "user", "content": "", "_tokens": 90_000},
        {"role": "assistant", "content": "", "_tokens": 11},
        {"role": "tool", "content": "", "_tokens": 9_000},
        {"role": "tool", "content": "", "_tokens": 9_000},
        {"role": "assistant", "content": "", "_tokens": 12},
        {"role": "tool", "content": "", "_tokens": 40},
    ]
    assert shown_tokens(rows, budget) == 10_000 + 11 + 10_000 + 12 + 40
    assert total_tokens(rows) == 108_063


@given(
    st.integers(4_096, 2_000_000),
    st.floats(0.01, 0.4),
    st.integers(0, 50_000),
    st.floats(0.5, 4.0),
    st.floats(0.0, 1.0),
)
def test_every_budget_can_be_reached(window, reserve_share, overhead, ratio, threshold):
    budget = budget_for(window, int(window * reserve_share), overhead, ratio, threshold=threshold)
    assert 0 < budget.trigger_tokens <= 0.85 * budget.usable_tokens + 1
    assert 0 < budget.target_tokens <= budget.usable_tokens
    kept = budget.tail_tokens + budget.user_tokens + budget.summary_tokens
    assert kept <= 0.35 * budget.usable_tokens + 400 / ratio + 1
