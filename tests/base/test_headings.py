"""One heading stands over the statements that share it, and nothing of them is lost."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.base.headings import heading_above, split_heading, under_headings


@pytest.mark.parametrize(
    ("text", "parted"),
    [
        ("PROD: the port is 5432.", ("PROD", "the port is 5432.")),
        ("HOUSE RULE: no force push.", ("HOUSE RULE", "no force push.")),
        ("NON-PROD: TEST: go on.", ("NON-PROD", "TEST: go on.")),
        ("ÜBERGABE: morgen um neun.", ("ÜBERGABE", "morgen um neun.")),
        ("PROD: stop.\nTEST: go on.", ("PROD", "stop.\nTEST: go on.")),
        ("Note: the port is 5432.", ("", "Note: the port is 5432.")),
        ("端口: 5432", ("", "端口: 5432")),
        ("HTTP://example.test", ("", "HTTP://example.test")),
        ("PROD: ", ("", "PROD: ")),
        ("PROD:\n5432", ("", "PROD:\n5432")),
        ("the port is 5432.", ("", "the port is 5432.")),
        ("A" * 100_000, ("", "A" * 100_000)),
    ],
)
def test_words_in_capitals_before_a_colon_are_a_heading(text: str, parted: tuple[str, str]) -> None:
    assert split_heading(text) == parted


def test_a_heading_that_two_share_stands_once_and_what_shares_none_stands_first():
    said = [
        ("#1: ", "PROD: the port is 5432."),
        ("#2: ", "TEST: the port is 5433."),
        ("#3: ", "Go on.\nPROD:"),
        ("#4: ", "PROD: the host is db7."),
        ("#5: ", "PROD: the keys are\nold"),
    ]
    assert under_headings(said) == [
        "#2: TEST: the port is 5433.",
        "#3: Go on.\nPROD:",
        "#5: PROD: the keys are\nold",
        "PROD:",
        "#1: the port is 5432.",
        "#4: the host is db7.",
    ]


_TEXTS = st.lists(
    st.builds(
        "{}{}{}".format,
        st.sampled_from(["", "PROD", "PROD TEST", "Prod", " PROD"]),
        st.sampled_from([": ", ":  ", ":\n", ":", ""]),
        st.text("aZ: \n5", max_size=5),
    ),
    max_size=8,
)


@given(texts=_TEXTS)
def test_each_text_reads_letter_by_letter_from_its_line_and_the_heading_above_it(
    texts: list[str],
) -> None:
    heading, told = "", dict[int, str]()
    for line in under_headings([(f"#{place}|", text) for place, text in enumerate(texts)]):
        mark, behind, text = line.partition("|")
        if not behind:
            heading = line
        else:
            told[int(mark[1:])] = f"{heading} {text}" if heading else text
    assert [told[place] for place in range(len(texts))] == texts


@given(texts=_TEXTS)
def test_headings_that_are_shared_never_take_more_room(texts: list[str]) -> None:
    alone, lines = "\n".join(texts), "\n".join(under_headings([("", text) for text in texts]))
    shared = [heading for heading in map(heading_above, texts) if heading]
    assert len(lines) <= len(alone)
    assert (len(lines) < len(alone)) == (len(shared) > len({*shared}))
