"""Texts and candidates that must not be committed, and good ones that may."""

from __future__ import annotations

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.base.messages import last_user_index
from agent.base.tokens import estimate_message, estimate_text
from agent.compaction.attempt import Candidate, Changes, Mask, reconcile
from agent.compaction.budget import budget_for, total_tokens
from agent.compaction.prompting import Prompt, template
from agent.compaction.verify import (
    TextRefused,
    goes_round,
    judge_candidate,
    judge_text,
    resulting_rows,
)
from agent.sessions.records import PassKind
from agent.testing.builders import assistant, call, result, turn, user
from agent.testing.summaries import GOOD_SUMMARY
from tests.compaction.texts import GOOD, POOR
from tests.compaction.views import call_sides, stored, summary_row, views

LONG_SOURCE = "The build took some time and then one more test was red for another reason. " * 200
SHORT_SOURCE = "Which of the three phones has the better battery? The Fairphone, probably. " * 20
BUDGET = budget_for(16_000, 2_000, 500)


@pytest.mark.parametrize("name", GOOD)
def test_a_good_summary_passes(name):
    source = SHORT_SOURCE if name.startswith("short") else LONG_SOURCE
    assert judge_text(GOOD[name], source, max_tokens=400) == ""


def test_the_scripted_summary_of_the_kit_is_a_good_one():
    assert judge_text(GOOD_SUMMARY, LONG_SOURCE, max_tokens=400) == ""


@pytest.mark.parametrize("name", POOR)
def test_what_the_embedded_model_writes_is_caught(name):
    assert judge_text(POOR[name], LONG_SOURCE, max_tokens=400) != ""


@pytest.mark.parametrize("name", [*list(GOOD)[:5], *list(GOOD)[6:]])
def test_a_good_text_that_starts_again_and_again_goes_round(name):
    assert goes_round(GOOD[name]) is False
    assert goes_round("\n".join([GOOD[name]] * 2)) is True


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "empty"),
        (" \n\t ", "empty"),
        ("ok", "too_short"),
        ("SANITIZED SUMMARY", "too_short"),
        ("The user and the assistant talked about several things.", "too_short"),
        ("port 5433 " * 50, "repeating"),
        ("数据库连接超时。" * 40, "repeating"),
        ("\n".join(GOOD.values()) * 1, "too_long"),
    ],
    ids=lambda value: value[:16],
)
def test_why_a_text_is_refused(text, reason):
    assert judge_text(text, LONG_SOURCE, max_tokens=100 if reason == "too_long" else 400) == reason


@pytest.mark.parametrize("prompt", Prompt)
def test_the_instructions_given_back_are_refused(prompt):
    assert judge_text(template(prompt), LONG_SOURCE, max_tokens=400) == "echoes_prompt"


def test_the_conversation_given_back_is_refused():
    source = "\n".join(GOOD.values())
    assert judge_text(source[300:1500], source, max_tokens=4_000) == "echoes_source"
    carried_on = """\
**User**: Which of them has a socket for headphones, then?
**Assistant**: The second one does, and it is cheaper by forty euros.
**User**: Fine, then tell me where it can be bought this week.
**Assistant**: Try the shop at the station, they open at nine."""
    assert judge_text(carried_on, SHORT_SOURCE, max_tokens=400) == "echoes_source"


def test_a_summary_may_say_what_the_user_asked_in_several_lines():
    text = """\
- User asked: which phone has a socket for headphones, and what does it cost here?
- User said: nothing above 450 euros, please, and no black ones.
- User wants: a shop that is open before work and close to the station.
- Assistant answered: the second phone, in green, for 410 euros."""
    assert judge_text(text, SHORT_SOURCE, max_tokens=400) == ""


def test_how_short_is_too_short_depends_on_what_it_stands_for():
    text = "The user wants the port changed to 5433 and the tests kept green."
    assert judge_text(text, "word " * 150, max_tokens=400) == ""
    assert judge_text(text, LONG_SOURCE, max_tokens=400) == "too_short"
    assert estimate_text(text) < 25


def test_a_refusal_names_its_reason():
    assert str(TextRefused("repeating")) == "the summary text is refused: repeating"
    assert TextRefused("repeating").reason == "repeating"


# -- candidates -----------------------------------------------------------------------------------
VIEW = stored(
    [*turn("first", "a " * 400, rounds=[{"read_file": "b " * 400}]), *turn("second", "done")]
)


def gist(text: str = GOOD_SUMMARY, kind: str = "summary") -> dict:
    row = summary_row(text, kind)
    return {**row, "_tokens": estimate_message(row)}


def judged(candidate: list, budget=BUDGET, view=VIEW) -> str:
    return judge_candidate(view, reconcile(view, candidate), budget)


def test_a_smaller_whole_view_with_the_newest_request_may_be_committed():
    assert judged([gist(), *VIEW[4:]]) == ""
    assert judged([gist(kind="mechanical"), *VIEW[4:]]) == ""


@pytest.mark.parametrize(
    ("candidate", "reason"),
    [
        pytest.param(VIEW, "no_progress", id="unchanged"),
        pytest.param([gist("x " * 3_000), *VIEW[4:]], "would_grow", id="grown"),
        pytest.param([*VIEW, gist()], "would_grow", id="only-added"),
        pytest.param([gist(), VIEW[5]], "request_lost", id="request-covered"),
        pytest.param([VIEW[0], VIEW[2], gist(), *VIEW[4:]], "pairing_broken", id="call-covered"),
        pytest.param([*VIEW[:2], gist(), *VIEW[4:]], "pairing_broken", id="result-covered"),
        pytest.param([gist("  "), *VIEW[4:]], "empty", id="blank"),
    ],
)
def test_why_a_candidate_is_refused(candidate, reason):
    assert judged(candidate) == reason


def test_a_masked_newest_request_counts_as_lost():
    view = stored([user("x " * 900), assistant("ok")])
    changes = Changes(PassKind.MASK, (0, 1), (), (Mask(0, {"content": "x"}, 9),), None)
    assert judge_candidate(view, changes, BUDGET) == "request_lost"


def test_a_mask_that_renames_a_call_breaks_the_pair():
    view = stored(
        [
            user("a"),
            assistant(None, call("t", {"x": "y" * 900}, call_id="c1")),
            result("c1", "ok"),
            user("b"),
        ]
    )
    other = {"tool_calls": [call("t", {}, call_id="c2")]}
    changes = Changes(PassKind.MASK, (0, 1, 2, 3), (), (Mask(1, other, 9),), None)
    assert judge_candidate(view, changes, BUDGET) == "pairing_broken"


def test_nothing_left_is_refused():
    changes = Changes(PassKind.SUMMARY, (), (0,), (), None)
    assert judge_candidate(stored([assistant("x")]), changes, BUDGET) == "empty_transcript"


def test_a_digest_that_would_start_the_next_pass_at_once_is_no_progress():
    tight = dataclasses.replace(BUDGET, trigger_tokens=400)
    digest = Candidate([gist(kind="mechanical"), *VIEW[4:]], kind=PassKind.MECHANICAL)
    assert judged(digest) == ""
    assert judged(digest, tight) == "no_progress"
    assert judged([gist(), *VIEW[4:]], tight) == ""


def test_the_new_row_stands_where_the_last_covered_row_stood():
    changes = reconcile(VIEW, [VIEW[0], gist(), *VIEW[4:]])
    rows = resulting_rows(VIEW, changes)
    assert rows == [VIEW[0], gist(), *VIEW[4:]]
    assert total_tokens(rows) < total_tokens(VIEW)


@given(views(), st.data())
def test_no_accepted_candidate_breaks_a_law(view, data):
    kept = {index for index in range(len(view)) if data.draw(st.booleans())}
    candidate = [gist("a gist"), *(view[index] for index in sorted(kept))]
    if judge_candidate(view, reconcile(view, candidate), BUDGET):
        return
    newest = last_user_index(view)
    assert newest is None or newest in kept
    assert all(len(side) == 1 for side, _id in call_sides(view, kept))
    assert total_tokens(candidate) < total_tokens(view)
