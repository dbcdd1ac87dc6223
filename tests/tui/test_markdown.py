"""Blocks of an answer that still arrives."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from agent.tui.markdown import BlockSplitter, render_block


def test_a_block_ends_at_a_blank_line_but_not_inside_a_fence() -> None:
    splitter = BlockSplitter()
    pieces = [
        "# Ti",
        "tle\n\nfirst ",
        "line\nsecond\n",
        "\n```py\na = 1\n\nb = 2\n``",
        "`\n\nla",
        "st",
    ]
    assert [splitter.feed(piece) for piece in pieces] == [
        [],
        ["# Title"],
        [],
        ["first line\nsecond"],
        ["```py\na = 1\n\nb = 2\n```"],
        [],
    ]
    assert (splitter.pending, splitter.finish(), splitter.finish()) == ("last", "last", "")


def test_a_fence_ends_only_at_one_as_long_and_of_its_kind() -> None:
    splitter = BlockSplitter()
    assert splitter.feed("````\n```\n\n~~~~\n\n````\n\n") == ["````\n```\n\n~~~~\n\n````"]


@given(st.lists(st.sampled_from(["a", "\n", "\n\n", "```", "~~~\n", " ", "- b"]), max_size=40))
def test_no_text_is_lost_between_the_blocks(pieces: list[str]) -> None:
    splitter = BlockSplitter()
    blocks = [block for piece in pieces for block in splitter.feed(piece)]
    blocks.append(splitter.finish())
    kept = "".join("".join(blocks).split())
    assert kept == "".join("".join(pieces).split())


def test_a_rendered_block_fits_the_width_and_carries_no_colour_when_there_is_none() -> None:
    text = render_block("Some **bold** words and `code`\n- one\n- two", 20, color=False)
    assert text == "Some bold words and\ncode\n\n • one\n • two"


def test_a_heading_stands_at_the_left_edge() -> None:
    assert render_block("# Title\nText", 30, color=False) == "Title\n\nText"


def test_a_rendered_block_carries_colour_when_there_is_some() -> None:
    assert render_block("**bold**", 20, color=True) == "\x1b[1mbold\x1b[0m"
