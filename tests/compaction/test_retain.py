"""Which of the user's rows leave the view first."""

from __future__ import annotations

import pytest

from agent.base.extract import extract
from agent.base.messages import Message, text_of
from agent.compaction.material import Material
from agent.compaction.retain import Rank, renamed, user_ranks
from agent.sessions.records import Pin, StoredExtract
from agent.testing.builders import user
from tests.compaction.views import stored


def ranks(rows: list[Message], pins: list[Pin] | None = None) -> list[Rank]:
    """Return the rank of each row."""
    extracts = [
        StoredExtract(row["_row_id"], row["_seq"], "user", e.kind, e.subject, e.value)
        for row in reversed(rows)
        for e in extract(text_of(row.get("content")), "user")
    ]
    found = user_ranks(rows, Material(extracts, pins or []).standing(1_000))
    return [Rank(found[index][0]) for index in range(len(rows))]


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("The on-call owner this week is Ada Byron.", "This week's on-call owner is Alan Kay."),
        ("I want the weekly report on Monday.", "Weekly report for me: Thursday."),
        ("Le responsable du service est Anne.", "Le responsable du service est désormais Luc."),
    ],
)
def test_what_names_another_than_a_later_row_is_left_out(old: str, new: str) -> None:
    assert renamed([old, new]) == {0}


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("The parser is owned by Ada.", "The billing export is owned by Alan."),
        ("Ada reviews the parser.", "Alan reviews the parser."),
        ("Der Parser liegt im Ordner Quellen.", "Der Parser liegt im Ordner Tests."),
        ("Ask Ada Byron about the parser.", "Ask Ada Lovelace about the parser."),
    ],
)
def test_what_may_both_hold_stays(old: str, new: str) -> None:
    assert renamed([old, new]) == set()


def test_a_row_whose_only_value_was_replaced_is_left_out_whatever_its_words() -> None:
    rows = stored([user("The API listens on port 8080."), user("The API moved to port 9090.")])
    assert ranks(rows) == [Rank.OUTDATED, Rank.REMARK]


def test_a_row_that_lays_something_down_stays_though_its_value_was_replaced() -> None:
    told = "Never call port 8080 of the API directly."
    rows = stored([user(told), user("The API moved to port 9090.")])
    assert ranks(rows, [Pin(1, told, 1, 0.0)])[0] == Rank.PINNED


def test_a_long_row_stays_though_its_value_was_replaced() -> None:
    told = "The API listens on port 8080. " + "Its handlers are old and slow. " * 20
    rows = stored([user(told), user("The API moved to port 9090.")])
    assert ranks(rows)[0] == Rank.REMARK
