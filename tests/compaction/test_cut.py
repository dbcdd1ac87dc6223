"""What is covered, what is kept."""

from __future__ import annotations

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.base.messages import is_user_text, last_user_index, text_of
from agent.base.tokens import estimate_text
from agent.compaction.budget import budget_for, shown_tokens, total_tokens
from agent.compaction.cut import Cut, group_rows, plan_cut, standing_rows, tail_start
from agent.compaction.retain import Standing
from agent.testing.builders import assistant, call, conversation, result, turn, user
from agent.turn.request import ShapeLimits, shape
from tests.compaction.views import call_sides, stored, summary_row, views

BUDGET = budget_for(8_000, 1_000, 0)
LONG = "word " * 400


def test_a_long_chat_keeps_its_tail_and_what_the_user_said():
    view = stored([row for n in range(12) for row in (user(f"request {n}"), assistant(LONG))])
    cut = plan_cut(view, BUDGET)
    assert cut.covered == tuple(range(1, 19, 2))
    assert cut.kept == (*range(0, 18, 2), *range(18, 20), *range(20, 24))


def test_the_newest_request_stays_when_only_tool_rounds_follow_it():
    rounds = [{"read_file": LONG}] * 10
    view = stored(
        [*turn("make A"), *turn("make B"), *turn("explain C", "later", rounds=rounds)[:-1]]
    )
    cut = plan_cut(view, dataclasses.replace(BUDGET, tail_tokens=600))
    assert [view[index]["content"] for index in cut.kept if view[index]["role"] == "user"] == [
        "make A",
        "make B",
        "explain C",
    ]
    assert cut.kept[-2:] == (len(view) - 2, len(view) - 1)
    assert 5 in cut.covered


def test_a_tail_of_ten_tokens_still_keeps_the_last_request_and_answer():
    view = stored([user("first " + LONG), assistant(LONG), user(LONG), assistant(LONG)])
    cut = plan_cut(view, dataclasses.replace(BUDGET, tail_tokens=10))
    assert cut == Cut(kept=(0, 2, 3), covered=(1,))


def test_what_is_said_again_leaves_however_much_room_there_is():
    said = [
        "The upload limit is 20 MB for all customers.",
        "run the tests and tell me what fails",
        "The upload limit is 30 MB for all customers.",
        "run the tests and tell me what fails",
        "use the staging box for this",
        "and now?",
    ]
    view = stored([row for text in said for row in (user(text), assistant(LONG))])
    cut = plan_cut(view, dataclasses.replace(BUDGET, tail_tokens=10))
    assert [view[at]["content"] for at in cut.kept if view[at]["role"] == "user"] == said[2:]


def test_an_answer_that_fills_the_window_is_covered_with_its_results():
    small = budget_for(4_096, 512, 1_000)
    asked = assistant("word " * 4_000, call("a", call_id="t1"))
    view = stored([user("go"), asked, result("t1", "x"), user("and then")])
    assert plan_cut(view, small) == Cut(kept=(3,), covered=(0, 1, 2))
    assert plan_cut(view, BUDGET) == Cut(kept=(1, 2, 3), covered=(0,))


def test_a_round_of_many_results_is_counted_as_a_request_shows_it():
    calls = [call("a", call_id=f"t{n}") for n in range(100)]
    results = [result(one, "word " * 100) for one in calls]
    view = stored([user("go"), assistant(None, *calls), *results])
    small = budget_for(8_000, 1_000, 0)
    shown = shape(view, ShapeLimits(small.round_tokens, small.message_tokens)).tokens
    assert shown > small.usable_tokens
    assert not small.fits(shown_tokens(view, small))


@pytest.mark.parametrize("tail_tokens", range(0, 400, 25))
def test_a_call_and_its_results_stay_on_one_side_at_every_cut(tail_tokens):
    view = stored(
        [
            user("first"),
            assistant(None, call("a", call_id="t1")),
            result("t1", "one " * 20),
            user("second"),
            assistant(None, call("a", call_id="t2"), call("b", call_id="t3")),
            result("t2", "two " * 20),
            result("t3", "[interrupted]"),
            assistant("answer"),
            user("third"),
        ]
    )
    cut = plan_cut(view, dataclasses.replace(BUDGET, tail_tokens=tail_tokens))
    assert all(len(side) == 1 for side, _id in call_sides(view, set(cut.kept)))
    assert 8 in cut.kept
    assert cut.covered


def test_a_user_row_between_a_call_and_its_result_does_not_split_them():
    view = stored(
        [
            user("go"),
            assistant(None, call("a", call_id="t1")),
            user("and hurry"),
            result("t1", "x " * 300),
        ]
    )
    groups = group_rows(view)
    assert groups == [0, 1, 2, 1]
    sizes = [row["_tokens"] for row in view]
    assert tail_start(sizes, groups, sizes[2] + sizes[3]) == 4
    assert tail_start(sizes, groups, sizes[1] + sizes[2] + sizes[3]) == 1
    assert standing_rows(view, groups) == {1, 2, 3}


def test_reused_call_ids_belong_to_the_call_before_them():
    view = stored([*turn("a", rounds=[{"x": "1"}]), *turn("b", rounds=[{"x": "2"}])])
    for row in view:
        if row["role"] == "tool":
            row["tool_call_id"] = "call_0"
        for each in row.get("tool_calls", ()):
            each["id"] = "call_0"
    assert group_rows(view) == [0, 1, 1, 3, 4, 5, 5, 7]


def test_chatter_leaves_before_older_requests_that_say_something():
    budget = dataclasses.replace(BUDGET, user_tokens=40, tail_tokens=0)
    view = stored(
        [
            user("use port 5433 from now on"),
            assistant(LONG),
            user("thanks!"),
            assistant(LONG),
            user("great, thank you"),
            assistant(LONG),
            user("rename the module to importer please"),
            assistant(LONG),
            user("next"),
            assistant("fine"),
        ]
    )
    assert plan_cut(view, budget).kept == (0, 6, 8, 9)


def test_a_request_too_large_for_the_users_share_is_covered_and_smaller_ones_stay():
    view = stored([user("keep me 1"), user(LONG), user("keep me 2"), *conversation(1)])
    budget = dataclasses.replace(BUDGET, user_tokens=100, tail_tokens=0)
    assert plan_cut(view, budget) == Cut(kept=(0, 2, 3, 4), covered=(1,))


def test_a_heading_that_kept_rows_share_takes_of_the_users_share_once():
    rules = ["no force push", "ask before releases", "write short names", "tests come first"]
    view = stored(
        [assistant("fine"), *(user(f"HOUSE RULE: {each}") for each in rules), *conversation(1)]
    )
    shown = sum(row["_tokens"] for row in view[1:5]) - 3 * estimate_text("HOUSE RULE")
    budget = dataclasses.replace(BUDGET, user_tokens=shown, tail_tokens=0)
    assert plan_cut(view, budget).covered == (0,)
    assert len(plan_cut(view, dataclasses.replace(budget, user_tokens=shown - 1)).covered) == 2


def test_requests_whose_work_goes_on_stay_beyond_the_users_share():
    budget = dataclasses.replace(BUDGET, user_tokens=20, tail_tokens=0)
    rounds = [{"read_file": LONG}] * 4
    view = stored(
        [
            *turn("an older request that is answered and long enough to leave"),
            user("rewrite the importer so that it reads one line at a time, please"),
            *turn("and keep its tests", rounds=rounds)[:-1],
        ]
    )
    cut = plan_cut(view, budget)
    assert [view[index]["content"] for index in cut.kept if view[index]["role"] == "user"] == [
        "rewrite the importer so that it reads one line at a time, please",
        "and keep its tests",
    ]
    flood = stored([*(user(LONG) for _ in range(9)), *turn("go", rounds=rounds)[:-1]])
    assert plan_cut(flood, budget).kept[0] == 9


def test_a_request_that_is_shown_in_part_does_not_cost_the_tail_its_rows():
    view = stored(
        [
            *(row for n in range(9) for row in (user(f"request {n}"), assistant(LONG))),
            user("word " * 60_000),
            assistant("noted"),
            *turn("so?", "yes"),
        ]
    )
    roomy = dataclasses.replace(BUDGET, target_tokens=4_500, tail_tokens=70_000)
    assert plan_cut(view, roomy).kept[-5:] == (17, 18, 19, 20, 21)


def test_an_earlier_summary_is_covered_with_the_rest_even_inside_the_tail():
    view = stored([user("a"), assistant(LONG), assistant(LONG), summary_row(), *conversation(1)])
    cut = plan_cut(view, BUDGET)
    assert cut == Cut(kept=(0, 4, 5), covered=(1, 2, 3))


def test_nothing_but_a_summary_and_what_stands_gives_nothing_to_cover():
    view = stored([summary_row(), *conversation(1)])
    assert plan_cut(view, BUDGET) == Cut(kept=(0, 1, 2), covered=())
    assert plan_cut([], BUDGET) == Cut(kept=(), covered=())
    assert plan_cut(stored([user("hello")]), BUDGET) == Cut(kept=(0,), covered=())


def test_a_view_inside_every_budget_still_claims_something():
    view = stored([user("m0"), user("m1"), user("m2")])
    assert plan_cut(view, BUDGET) == Cut(kept=(2,), covered=(0, 1))


def test_the_tail_shrinks_until_the_target_is_reached():
    view = stored([row for n in range(30) for row in (user(f"request {n}"), assistant(LONG))])
    tight = dataclasses.replace(BUDGET, target_tokens=1_500)
    kept = total_tokens([view[index] for index in plan_cut(view, tight).kept])
    assert kept + tight.summary_tokens <= 1_500


@given(views(), st.integers(0, 4_000), st.integers(0, 600), st.integers(1, 6_000))
def test_every_cut_is_whole(view, tail_tokens, user_tokens, target_tokens):
    budget = dataclasses.replace(
        BUDGET, tail_tokens=tail_tokens, user_tokens=user_tokens, target_tokens=target_tokens
    )
    cut = plan_cut(view, budget)
    assert sorted((*cut.kept, *cut.covered)) == list(range(len(view)))
    assert all(len(side) == 1 for side, _id in call_sides(view, set(cut.kept)))
    newest = last_user_index(view)
    assert newest is None or newest in cut.kept
    last = max((i for i, row in enumerate(view) if row["role"] == "assistant"), default=None)
    assert last is None or last in cut.kept
    if cut.covered:
        summaries = {i for i, row in enumerate(view) if row.get("_kind") == "summary"}
        assert summaries <= set(cut.covered)
        assert set(cut.covered) - summaries
    users = [i for i, row in enumerate(view) if is_user_text(row)]
    assert all(i in cut.kept or newest != i for i in users)


def test_what_the_user_laid_down_leaves_after_other_requests_and_chatter_first() -> None:
    rows = stored(
        [
            user("Never push to main, whatever the tests say about it."),
            assistant("Understood. " + "word " * 600),
            user("ok"),
            assistant("Going on. " + "word " * 600),
            user("Please look at src/parse.py, it chokes on empty lines again."),
            assistant("Done. " + "word " * 600),
            user("What is left?"),
        ]
    )
    size = max(rows[0]["_tokens"], rows[4]["_tokens"])
    budget = dataclasses.replace(budget_for(4_096, 512, 0), user_tokens=size, tail_tokens=20)
    said = text_of(rows[0]["content"])

    def kept(standing: Standing) -> tuple[bool, bool]:
        cut = plan_cut(rows, budget, standing)
        return 0 in cut.kept, 4 in cut.kept

    assert kept(Standing()) == (True, False)  # a remark before an errand, whatever it says
    assert kept(Standing(seqs={1})) == (True, False)
    assert kept(Standing(seqs={5})) == (False, True)
    assert kept(Standing(seqs={1, 5})) == (False, True)  # of equals the newer
    assert kept(
        Standing(
            seqs={1, 5}, pinned={5: "Please look at src/parse.py, it chokes on empty lines again."}
        )
    ) == (True, False)
    assert kept(Standing(seqs={1}, pinned={1: said})) == (True, False)
