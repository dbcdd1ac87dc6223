"""What is left out is counted, and the reference reads on exactly where the head ends."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.base.excerpt import excerpt_chars

_REFERENCE = re.compile(
    r"\[(\d+) of (\d+) characters left out here; read on with "
    r'recall\(rows="(\d+)", offset=(\d+)\)\]'
)


def test_an_excerpt_has_head_reference_and_tail() -> None:
    assert excerpt_chars("abcdefghij", head=3, tail=2, seq=17) == (
        'abc\n[5 of 10 characters left out here; read on with recall(rows="17", offset=3)]\nij'
    )


@pytest.mark.parametrize("text", ["", "ab", "abcde"])
def test_a_text_that_fits_is_shown_as_it_is(text: str) -> None:
    assert excerpt_chars(text, head=3, tail=2, seq=1) is text


@pytest.mark.parametrize("shift", range(0, 30, 3))
def test_a_cut_goes_through_no_word_when_a_break_is_near(shift: int) -> None:
    secret = "ghp_A1b2C3d4E5f6G7h8I9j0"
    ending = "." * (60 + shift)
    text = f'{"word " * 20}{"," * shift}"{secret}" {"and more " * 40}{secret}) end{ending}'
    shown = excerpt_chars(text, head=120, tail=100, seq=1)
    for piece in (secret[:14], secret[-14:]):
        assert shown.count(piece) == shown.count(secret)


def test_an_excerpt_without_a_tail_ends_with_the_reference() -> None:
    assert excerpt_chars("abcd", head=1, tail=0, seq=1).endswith("offset=1)]\n")


@given(st.text(), st.integers(0, 20), st.integers(0, 20), st.integers(1, 10**6))
def test_head_tail_and_what_the_reference_names_make_the_whole(
    text: str, head: int, tail: int, seq: int
) -> None:
    shown = excerpt_chars(text, head=head, tail=tail, seq=seq)
    if shown is text:
        assert len(text) <= head + tail
        return
    found = _REFERENCE.search(shown, head * 3 // 4)
    assert found is not None
    omitted, total, row, offset = map(int, found.groups())
    assert (total, row) == (len(text), seq)
    assert 0 <= head - offset <= head // 4
    assert len(text) - head - tail <= omitted
    assert (
        shown[: found.start() - 1] + text[offset : offset + omitted] + shown[found.end() + 1 :]
        == text
    )
