"""What the kit makes is accepted by what the kit checks, whatever the seed."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from agent.testing.builders import system, turn
from agent.testing.stub_strict import check_messages, count_message, count_text, count_tokens
from agent.testing.transcripts import transcript

shares = st.floats(0, 1)


@given(seed=st.integers(0, 2**63), messages=st.integers(1, 120), cjk=shares, base64_share=shares)
def test_a_generated_transcript_of_any_length_passes_the_strict_validation(
    seed: int, messages: int, cjk: float, base64_share: float
) -> None:
    made = transcript(seed, messages=messages, cjk=cjk, base64_share=base64_share)
    assert len(made) == messages
    assert check_messages(made) is None
    assert check_messages([system(), *made]) is None


@given(seed=st.integers(0, 1_000), cut=st.integers(0, 59))
def test_a_transcript_without_one_of_its_messages_passes_only_where_that_is_valid(
    seed: int, cut: int
) -> None:
    made = transcript(seed, messages=60)
    gone = made[cut]
    rest = made[:cut] + made[cut + 1 :]
    refused = check_messages(rest) is not None
    assert refused == _breaks(made, cut, gone)


def _breaks(made: list[dict[str, Any]], cut: int, gone: dict[str, Any]) -> bool:
    """Without it a pairing is broken, or two neighbours of one role meet, or no user is first."""
    if gone["role"] == "tool" or "tool_calls" in gone:
        return True
    before = made[cut - 1]["role"] if cut else "nothing"
    after = made[cut + 1]["role"] if cut + 1 < len(made) else "nothing"
    return before == after != "nothing" or (before == "nothing" and after == "assistant")


@given(
    st.lists(
        st.dictionaries(st.sampled_from(["read", "list", "grep"]), st.text(), min_size=1),
        max_size=4,
    )
)
def test_a_turn_of_any_rounds_passes_the_strict_validation(rounds: list[dict[str, str]]) -> None:
    assert check_messages(turn("do it", rounds=rounds)) is None


@given(st.text(), st.text())
def test_counting_is_additive_within_one_token(one: str, two: str) -> None:
    assert count_text(one) + count_text(two) - 1 <= count_text(one + two)
    assert count_text(one + two) <= count_text(one) + count_text(two)


@given(st.integers(0, 1_000))
def test_a_request_counts_as_the_sum_of_its_messages(seed: int) -> None:
    made = transcript(seed, messages=20)
    assert count_tokens(made) == sum(count_message(message) for message in made)
