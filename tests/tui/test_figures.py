"""Numbers, widths and tables, compared whole."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.tui import figures


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.04, "0.0 s"),
        (3.21, "3.2 s"),
        (59.94, "59.9 s"),
        (59.96, "1 min 00 s"),
        (3600, "60 min 00 s"),
    ],
)
def test_a_duration_is_tenths_then_minutes(seconds: float, text: str) -> None:
    assert figures.duration(seconds) == text


@pytest.mark.parametrize(
    ("byte_count", "text"),
    [(0, "0 B"), (999, "999 B"), (1_000, "1.0 KB"), (999_949, "999.9 KB"), (999_950, "1.0 MB")],
)
def test_a_size_takes_the_unit_that_keeps_it_short(byte_count: int, text: str) -> None:
    assert figures.size(byte_count) == text


def test_counts_carry_separators_and_nouns() -> None:
    assert (
        figures.count(1_234_567),
        figures.count(None),
        figures.counted(1, "message"),
        figures.counted(2_000, "message"),
        figures.percent(1, 3),
        figures.percent(1, 0),
        figures.dollars(None),
        figures.dollars(0.01234),
    ) == (
        "1,234,567",
        "?",
        "1 message",
        "2,000 messages",
        "33 %",
        "0 %",
        "price unknown",
        "$0.0123",
    )


@pytest.mark.parametrize(
    ("part", "whole", "bar"),
    [(0, 10, "░░░░"), (5, 10, "██░░"), (25, 10, "████"), (3, 0, "░░░░")],
)
def test_a_bar_never_leaves_its_width(part: int, whole: int, bar: str) -> None:
    assert figures.bar(part, whole, 4) == bar


def test_control_characters_are_made_visible_and_line_feeds_stay() -> None:
    assert figures.printable("a\x1b[31mb\r\nc\td\x9b\x00") == "a\\x1b[31mb\nc\td\\x9b\\x00"
    assert figures.one_line("  a\n\tb \x07") == "a b \\x07"


def test_wide_characters_count_two_cells_and_marks_none() -> None:
    assert [figures.cells(text) for text in ("abc", "日本", "e\u0301", "🙂", "")] == [3, 4, 1, 2, 0]


def test_clipping_keeps_whole_characters() -> None:
    assert [figures.clip("日本語", width) for width in (6, 5, 4, 1, 0)] == [
        "日本語",
        "日本…",
        "日…",
        "…",
        "",
    ]


@given(st.text(max_size=60), st.integers(min_value=0, max_value=40))
def test_a_clipped_text_fits(text: str, width: int) -> None:
    assert figures.cells(figures.clip(text, width)) <= width


def test_a_table_aligns_wide_text_and_cuts_long_lines() -> None:
    rows = [("one", "1", "a long title"), ("日本", "1,000", "x")]
    assert figures.table(("name", "n", "title"), rows, 20, right=("n",)) == [
        "name      n  title",
        "one       1  a long…",
        "日本  1,000  x",
    ]
