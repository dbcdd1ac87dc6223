"""What a later row of the user says anew, and what only looks like it."""

from __future__ import annotations

import pytest

from agent.base.restate import is_pair, is_restated, renamed


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("The on-call owner this week is Ada Byron.", "This week's on-call owner is Alan Kay."),
        ("I want the weekly report on Monday.", "Weekly report for me: Thursday."),
        ("Le responsable du service est Anne.", "Le responsable du service est désormais Luc."),
        ("Print all dates as Europe/Rome does.", "Dates are to be printed as Asia/Tokyo does."),
        ("The import is at step 2 of 9.", "We are at step 3 of 10 of the nightly import."),
        ("Keep answers in Markdown style.", "Answers in Prose style."),
        ("Import progress: step 2 of 9.", "The nightly import is at step 3 of 8."),
        ("NOTE: the demo is led by Ada.", "NOTE: Alan leads: the demo is led by Alan."),
    ],
)
def test_what_names_another_than_a_later_row_is_said_anew(old: str, new: str) -> None:
    assert renamed([old, new]) == {0: 1}


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("The parser is owned by Ada.", "The billing export is owned by Alan."),
        ("Ada reviews the parser.", "Alan reviews the parser."),
        ("Der Parser liegt im Ordner Quellen.", "Der Parser liegt im Ordner Tests."),
        ("Ask Ada Byron about the parser.", "Ask Ada Lovelace about the parser."),
        ("Set the database port to 5432.", "Set the gateway port to 8080."),
        ("PROD: the database port is 5432.", "STAGING: the database port is 5433."),
        ("The import is at step 2 of 9.", "The import is at step 2 of 9, as I said."),
        ("The report goes to Ada.", f"The report goes to Alan. {'And there is more. ' * 20}"),
    ],
)
def test_what_may_both_hold_is_not_said_anew(old: str, new: str) -> None:
    assert renamed([old, new]) == {}


def test_the_newest_of_several_is_found_by_each_that_it_revises() -> None:
    texts = [f"The weekly report goes to {name} first." for name in ("Ada", "Alan", "Grace")]
    assert set(renamed(texts)) == {0, 1}
    assert renamed([*texts, *texts]).keys() == {3, 4}


def test_two_wordings_share_most_words_and_no_place_where_one_stands_for_another() -> None:
    wordings = ["answer style", "user wants answer style", "test port", "staging port"]
    one, two, three, four = map(str.split, wordings)
    assert (is_restated(one, two), is_restated(three, four)) == (True, False)
    assert (is_pair(three, four), is_pair(one, two), is_pair(one, one)) == (True, False, False)
    access, contact = "access code for user".split(), "user contact code".split()
    assert (is_restated(access, contact), is_restated(access, "access to code".split())) == (
        False,
        True,
    )
    assert not is_pair(["call", "owner", "week"], ["week", "call", "owner"])
