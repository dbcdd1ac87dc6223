"""Micro passes: what gives way to a marker, what never does, and how a marker is made."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.base.errors import SummaryFailure, SummaryTruncated
from agent.base.messages import Message, is_user_text
from agent.base.settings import CompressionSettings
from agent.compaction.attempt import reconcile
from agent.compaction.budget import Budget, budget_for
from agent.compaction.context_compressor import MICRO_TRIES, ContextCompressor
from agent.compaction.cut import group_rows, is_summary, standing_rows
from agent.compaction.micro import MARKER_MAX_TOKENS, MIN_TOKENS, MicroCut, micro_cuts
from agent.compaction.verify import judge_candidate
from agent.sessions.records import PassKind
from agent.testing.builders import assistant, call, result, user
from agent.testing.summaries import ScriptedSummaries, Written
from tests.compaction.views import attempt, call_sides, stored, summary_row, views

NOTE = "Port 5433 was set in config/db.yml and the tests pass now."
LONG = "the report names every file that was read and what stood in it; " * 30


def budget(tail_tokens: int = 0) -> Budget:
    return dataclasses.replace(budget_for(16_000, 2_000, 500), tail_tokens=tail_tokens)


def cuts(view: list[Message], *, tail_tokens: int = 0, roll_up_tokens: int = 2_000) -> Any:
    return list(micro_cuts(view, budget(tail_tokens), roll_up_tokens))


def exchanges(count: int, text: str = LONG) -> list[Message]:
    """Return finished exchanges and a request that is in progress."""
    rows = [row for n in range(count) for row in (user(f"question {n}"), assistant(text))]
    return [*rows, user("and now?")]


def marker(text: str = NOTE) -> Message:
    return {"role": "assistant", "content": text, "_kind": "micro"}


# -- what is chosen -------------------------------------------------------------------------------
def test_the_oldest_finished_exchange_comes_first_and_the_last_answer_never():
    view = stored(exchanges(3))
    assert [(cut.covered, cut.read) for cut in cuts(view)] == [((1,), (0, 1)), ((3,), (2, 3))]


def test_a_marker_may_take_a_quarter_within_limits():
    [short] = cuts(stored(exchanges(2, "word " * 160)))
    [long] = cuts(stored(exchanges(2, LONG * 20)))
    assert 60 <= short.max_tokens <= 80
    assert long.max_tokens == MARKER_MAX_TOKENS


def test_what_lies_in_the_tail_or_saves_nothing_is_left_alone():
    assert cuts(stored(exchanges(2)), tail_tokens=10_000) == []
    view = stored(exchanges(2, "ok"))
    assert view[1]["_tokens"] < MIN_TOKENS
    assert cuts(view) == []


def test_an_exchange_that_no_later_request_closes_is_not_finished():
    assert cuts(stored(exchanges(1)[:-1])) == []


def test_rows_before_the_newest_summary_are_not_looked_at():
    view = stored([user("early"), assistant(LONG), summary_row(), *exchanges(2)])
    assert [cut.covered for cut in cuts(view)] == [(4,)]


def test_tool_rounds_go_as_a_whole_and_a_message_typed_meanwhile_stays():
    look = call("read_file", {"path": "a"})
    view = stored(
        [
            user("look"),
            assistant(None, look),
            user("hurry"),
            result(look, LONG),
            assistant("found it"),
            user("thanks"),
            assistant("welcome"),
            user("next"),
        ]
    )
    assert [cut.covered for cut in cuts(view)] == [(1, 3, 4)]


def test_an_exchange_with_a_marker_is_done_with():
    view = stored([user("one"), marker(LONG), user("two"), assistant(LONG), *exchanges(1)])
    assert [cut.covered for cut in cuts(view)] == [(3,)]


def test_markers_are_rolled_up_first_once_they_exceed_their_budget():
    view = stored([user("one"), marker(), user("two"), marker(), *exchanges(2)])
    size = view[1]["_tokens"] + view[3]["_tokens"]
    rolled = MicroCut((1, 3), (1, 3), (size - 1) // 2, "roll_up")
    assert cuts(view, roll_up_tokens=size - 1)[0] == rolled
    assert [cut.strategy for cut in cuts(view, roll_up_tokens=size)] == ["micro"]


@given(view=views(), tail_tokens=st.integers(0, 1_500), roll_up_tokens=st.integers(0, 400))
def test_every_cut_takes_whole_groups_of_replies_and_nothing_that_stands(
    view, tail_tokens, roll_up_tokens
):
    groups = group_rows(view)
    standing = standing_rows(view, groups)
    newest = max((i for i, row in enumerate(view) if is_summary(row)), default=-1)
    for cut in cuts(view, tail_tokens=tail_tokens, roll_up_tokens=roll_up_tokens):
        kept = set(range(len(view))) - set(cut.covered)
        assert list(cut.covered) == sorted(set(cut.covered))
        assert {view[index]["role"] for index in cut.covered} <= {"assistant", "tool"}
        assert not standing.intersection(cut.covered)
        assert cut.covered[0] > newest
        assert set(cut.covered) <= set(cut.read)
        assert all(len(sides) == 1 for sides, _call in call_sides(view, kept))
        read_besides = set(cut.read) - set(cut.covered)
        assert all(is_user_text(view[index]) for index in read_besides)


# -- how a marker is made -------------------------------------------------------------------------
def compressor(**settings: Any) -> ContextCompressor:
    made = ContextCompressor(CompressionSettings(micro_compact=True, **settings))
    made.tail_token_budget = 0
    return made


def test_the_marker_is_the_assistants_and_stands_where_the_last_reply_stood():
    look = call("read_file", {"path": "a"})
    late = assistant("done") | {"_seen": 12}
    view = stored(
        [user("look"), assistant(None, look), result(look, LONG), late, *exchanges(1)], first_seq=7
    )
    model = ScriptedSummaries([NOTE])
    candidate = compressor().micro_compress(view, attempt=attempt(model))
    made = {"role": "assistant", "content": NOTE, "_kind": "micro", "_from_seq": 8, "_seen": 12}
    assert candidate[1] == {**made, "_tokens": candidate[1]["_tokens"]}
    assert [row["_ref"] for row in candidate if "_ref" in row] == [0, 4, 5, 6]
    assert (candidate.kind, candidate.strategy) == (PassKind.MICRO, ("micro",))
    changes = reconcile(view, candidate)
    assert changes.new_row is not None
    assert changes.new_row == {**made, "_tokens": changes.new_row["_tokens"]}
    assert judge_candidate(view, changes, budget()) == ""
    [asked] = model.asked
    assert "[7 user] look" in asked.prompt
    assert "[9 result of read_file]" in asked.prompt


def test_rolled_up_markers_know_where_the_first_of_them_began():
    rows = [user("one"), marker(NOTE * 20) | {"_from_seq": 2}, user("two"), marker(NOTE * 20)]
    view = stored([*rows, *exchanges(1)], first_seq=5)
    made = compressor(micro_compact_defrag_threshold_tokens=100)
    candidate = made.micro_compress(view, attempt=attempt(ScriptedSummaries([NOTE])))
    assert candidate.strategy == ("roll_up",)
    assert [row.get("_kind") for row in candidate] == [None, None, "micro", None, None, None]
    assert candidate[2]["_from_seq"] == 2


def test_without_anything_due_the_view_comes_back_and_no_model_is_asked():
    model = ScriptedSummaries([NOTE])
    view = stored([user("hello"), assistant("hi")])
    assert list(compressor().micro_compress(view, attempt=attempt(model))) == view
    assert model.asked == []


def test_what_failed_three_times_is_left_alone_and_the_next_exchange_taken():
    made = compressor()
    view = stored(exchanges(3))
    failing = ScriptedSummaries([SummaryTruncated("cut off")])
    for _ in range(MICRO_TRIES):
        with pytest.raises(SummaryTruncated):
            made.micro_compress(view, attempt=attempt(failing))
    candidate = made.micro_compress(view, attempt=attempt(ScriptedSummaries([NOTE])))
    assert [row["_ref"] for row in candidate if "_ref" in row] == [0, 1, 2, 4, 5, 6]


class Looping(ScriptedSummaries):
    """A model that repeats itself until its answer is cut off."""

    def summarise(self, *_args: Any, on_delta: Any = None, **_options: Any) -> Written:
        on_delta("the tests pass and the tests pass and " * 40)
        raise SummaryTruncated("cut off")


def test_a_text_that_only_loops_is_a_failure_of_the_summary():
    with pytest.raises(SummaryFailure, match="refused: repeating"):
        compressor().micro_compress(stored(exchanges(2)), attempt=attempt(Looping()))


def test_a_pass_is_due_every_nth_turn():
    made = compressor(micro_compact_every_n_turns=3)
    view = stored(exchanges(2))
    assert [made.micro_is_due(view, budget()) for _ in range(4)] == [False, False, True, True]
    made.micro_compress(view, attempt=attempt(ScriptedSummaries([NOTE])))
    assert [made.micro_is_due(view, budget()) for _ in range(3)] == [False, False, True]
