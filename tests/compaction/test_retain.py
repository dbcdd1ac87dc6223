"""Which of the user's rows leave the view first."""

from __future__ import annotations

from agent.base.extract import extract
from agent.base.messages import Message, text_of
from agent.compaction.budget import row_tokens
from agent.compaction.material import Material
from agent.compaction.retain import ANEW, Rank, user_ranks
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


def test_what_is_said_anew_of_another_name_leaves_where_not_all_fits() -> None:
    rows = stored(
        [user("The on-call owner is Ada Byron."), user("On-call owner from today: Alan Kay.")]
    )
    ranked = user_ranks(rows, Material().standing(1_000), 0)
    assert [ranked[index][0] for index in (0, 1)] == [Rank.REVISED, Rank.REMARK]
    with_room = user_ranks(rows, Material().standing(1_000), 1_000)
    assert [with_room[index][0] for index in (0, 1)] == [Rank.REMARK, Rank.REMARK]


def test_what_says_something_anew_counts_for_less_than_its_length() -> None:
    new = user("On-call owner from today: Alan Kay.")
    for old, less in (("The on-call owner is Ada Byron.", ANEW), ("Lunch is at Luigi's today.", 1)):
        rows = stored([user(old), new])
        weight = user_ranks(rows, Material().standing(1_000), 0)[1][1]
        assert weight == row_tokens(new) * less


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
