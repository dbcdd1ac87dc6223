"""What stands below the conversation."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.tui import figures
from agent.tui.live import Footer, status_text, tail, toolbar_text, wrap

FOOTER = Footer("some-model", "Garden plan", 12_345, 28_672, 2)


@pytest.mark.parametrize(
    ("width", "text"),
    [
        (
            120,
            (
                " 12,345 / 28,672 tokens, 43 % █████████░░░░░░░░░░░ | 2 queued | some-model"
                " | Garden plan"
            ),
        ),
        (60, " 12,345 / 28,672 tokens, 43 % █████████░░░░░░░░░░░"),
        (40, " 12,345 / 28,672 tokens, 43 % ████░░░░░"),
        (20, " 43 % | 2 queued"),
        (6, " 43 %"),
        (3, ""),
    ],
)
def test_the_toolbar_drops_from_the_right_what_does_not_fit(width: int, text: str) -> None:
    assert toolbar_text(FOOTER, width) == text


def test_the_toolbar_of_a_new_session_shows_no_meter() -> None:
    assert toolbar_text(Footer("some-model", "20261130_1"), 80) == " some-model | 20261130_1"
    assert toolbar_text(Footer("some-model", "20261130_1", 100), 80) == " some-model | 20261130_1"


def test_the_status_says_how_to_stop() -> None:
    assert status_text("answering", 3.21, stopping=False) == "answering, 3.2 s; Ctrl-C stops"
    assert (
        status_text("answering", 3.21, stopping=True) == "stopping answering; Ctrl-C again leaves"
    )


def test_a_growing_text_shows_its_last_lines() -> None:
    assert tail("abcdefgh\nxy", 4, 2) == "efgh\nxy"
    assert tail("one two three", 8, 2) == "one two \nthree"
    assert tail("", 4, 2) == ""


@given(st.text(max_size=80), st.integers(min_value=2, max_value=20))
def test_wrapped_lines_fit_and_lose_nothing(text: str, width: int) -> None:
    lines = wrap(text, width)
    assert all(figures.cells(line) <= width for line in lines)
    assert "".join(lines) == text.replace("\n", "")
