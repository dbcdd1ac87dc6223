"""What a candidate lost and gets back, within its budget and never at the price of growth."""

from __future__ import annotations

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.base.extract import extract
from agent.base.messages import Message, text_of
from agent.compaction.anchors import HEADING, strip_anchors, tell
from agent.compaction.attempt import Candidate, Changes, reconcile
from agent.compaction.budget import Budget, budget_for, total_tokens
from agent.compaction.conserve import conserve, stands_in
from agent.compaction.material import Material
from agent.compaction.verify import judge_candidate, resulting_rows
from agent.sessions.records import PassKind, Pin, StoredExtract
from agent.testing.builders import assistant, call, result, user
from tests.compaction.views import stored, views

BUDGET = budget_for(16_000, 2_000, 500)
PARTS = ("Anvil", "Bellows", "Chisel", "Drill", "Engine", "Forge", "Grinder", "Hammer")
CALL = call("read_file", {"path": "src/parse.py"})
TALK = stored(
    [
        user("Never push to main. The API listens on port 8080."),
        assistant(None, CALL),
        result(CALL, "commit 9f2c1abe77 touched src/parse.py\n" + "filler line\n" * 200),
        assistant("I'll write the rollback next. " + "Some more words here. " * 60),
        user("The API moved to port 9090."),
        assistant("Done, it is in OPS-4121. " + "Some more words here. " * 60),
        user("What is left?"),
    ]
)


def said(rows: list[Message]) -> list[StoredExtract]:
    """Return what rows say, newest first."""
    return [
        StoredExtract(row["_row_id"], row["_seq"], row["role"], e.kind, e.subject, e.value)
        for row in reversed(rows)
        if row.get("_kind", "message") == "message"
        for e in extract(text_of(row.get("content")), row["role"])
    ]


def covering(rows: list[Message], text: str, kept: int = 1) -> Changes:
    """Return the changes of a candidate that keeps the newest rows and sums up the others."""
    new: Message = {"role": "user", "content": text}
    return reconcile(rows, Candidate([new, *rows[-kept:]], kind=PassKind.SUMMARY))


def content(changes: Changes) -> str:
    assert changes.new_row is not None
    return text_of(changes.new_row["content"])


def test_what_a_summary_left_out_is_put_back_word_for_word() -> None:
    conserved = conserve(TALK, covering(TALK, "Nothing of use."), Material(said(TALK)), BUDGET)
    block = content(conserved.changes).split(HEADING)[1]
    for value in ("9f2c1abe77", "src/parse.py", "OPS-4121", "I'll write the rollback next."):
        assert value in block
    assert "9090 (was 8080)" in block
    assert conserved.receipt["identifiers_dropped"] == 1
    assert conserved.receipt["dropped"] == ["8080"]


def test_what_the_summary_says_is_not_repeated() -> None:
    text = "## Done\nCommit 9f2c1abe77 changed src/parse.py for OPS-4121; port 9090 replaced 8080."
    conserved = conserve(TALK, covering(TALK, text), Material(said(TALK)), BUDGET)
    block = content(conserved.changes).partition(HEADING)[2]
    assert "9f2c1abe77" not in block
    assert "9090" not in block
    assert conserved.receipt["identifiers_kept"] >= 4


def test_a_pin_in_force_is_not_an_anchor_and_a_withdrawn_rule_neither() -> None:
    pins = [Pin(1, "Never push to main.", 1, 0.0)]
    for material in (Material(said(TALK), pins), Material(said(TALK))):
        conserved = conserve(TALK, covering(TALK, "Nothing of use."), material, BUDGET)
        assert "Never push to main." not in content(conserved.changes)


def test_a_pin_beyond_the_pin_budget_is_an_anchor() -> None:
    small = dataclasses.replace(BUDGET, pin_tokens=1)
    pins = [Pin(1, "Never push to main.", 1, 0.0)]
    conserved = conserve(TALK, covering(TALK, "No."), Material(said(TALK), pins), small)
    assert "- [1] instruction: Never push to main." in content(conserved.changes)


def test_a_heading_says_what_an_anchor_is_of_a_rule_alone() -> None:
    told = {
        kind: tell(StoredExtract(1, 1, "user", kind, "", "PROD: never push."), "")
        for kind in ("instruction", "withdrawal")
    }
    assert told == {
        "instruction": "PROD: never push.",
        "withdrawal": "withdrawal: PROD: never push.",
    }


def test_an_old_value_in_view_brings_the_new_one_first() -> None:
    tight = dataclasses.replace(BUDGET, anchor_tokens=24, summary_tokens=1)
    conserved = conserve(TALK, covering(TALK, "Port 8080."), Material(said(TALK)), tight)
    assert "9090 (was 8080)" in content(conserved.changes)


def test_a_value_that_may_have_replaced_one_in_view_comes_first_too() -> None:
    told = [user("The launch: 2027-01-05."), user("Ann put the launch on 2027-03-09.")]
    others = [user(f"{name} weighs {n + 11} kg.") for n, name in enumerate(PARTS)]
    talk = stored([*told, *others, user("What is left?")])
    tight = dataclasses.replace(BUDGET, anchor_tokens=34, summary_tokens=1)
    first = content(
        conserve(talk, covering(talk, "On 2027-01-05."), Material(said(talk)), tight).changes
    )
    assert "launch: 2027-03-09" in first


def test_a_value_that_one_in_view_may_have_replaced_is_left_to_recall() -> None:
    told = [user("Launch is fixed at 2027-01-05."), user("The launch deadline is 2027-03-09.")]
    talk = stored([*told, assistant("Noted. " * 80), user("What is left?")])
    for summary, shown in (("On 2027-03-09.", False), ("No date yet.", True)):
        changes = conserve(talk, covering(talk, summary), Material(said(talk)), BUDGET).changes
        assert ("2027-01-05" in content(changes)) is shown


def test_what_comes_nearest_a_value_in_a_pin_comes_first() -> None:
    told = "The upload limit is 20 MB."
    later = user("From what Ann and Bob agreed the guests may send an upload of 50 MB.")
    others = [user(f"{name} weighs {n + 11} kg.") for n, name in enumerate(PARTS)]
    talk = stored([user(told), later, *others, user("What is left?")])
    tight = dataclasses.replace(BUDGET, anchor_tokens=34, summary_tokens=1)
    material = Material(said(talk), [Pin(1, told, 1, 0.0)])
    block = content(conserve(talk, covering(talk, "No."), material, tight).changes)
    assert "50 MB" in block
    without = Material(said(talk))
    assert "50 MB" not in content(conserve(talk, covering(talk, "No."), without, tight).changes)


def test_a_long_value_that_was_replaced_is_told_only_where_it_is_in_view() -> None:
    old, new = "https://one.example.test/v2", "https://two.example.test/v2"
    told = [user(f"The staging API is {old}"), user(f"The staging API is {new}")]
    filler = assistant("Done. " + "Some more words here. " * 60)
    talk = stored([*told, filler, user("What is left?")])
    for summary, shown in (("No.", new), (f"Tried {old} once.", f"{new} (was {old})")):
        changes = conserve(talk, covering(talk, summary), Material(said(talk)), BUDGET).changes
        assert content(changes).endswith(shown)


def test_a_new_value_stands_alone_where_not_all_that_the_user_said_fits() -> None:
    told = user("The cache is on 10.0.0.1. The release is on 2027-01-05. The limit is 20 MB.")
    talk = stored([told, *TALK])
    for tokens, shown in ((44, "9090"), (400, "9090 (was 8080)")):
        budget = dataclasses.replace(BUDGET, anchor_tokens=tokens, summary_tokens=1)
        block = content(conserve(talk, covering(talk, "No."), Material(said(talk)), budget).changes)
        assert (shown in block, "(was" in block) == (True, "(was" in shown)


def test_a_later_pass_with_little_gain_keeps_the_anchors_of_the_one_before() -> None:
    first = conserve(TALK, covering(TALK, "Nothing of use."), Material(said(TALK)), BUDGET)
    assert first.changes.new_row is not None
    notes = user(content(first.changes))
    rows = stored([notes, user("Where were we?"), assistant("Here."), user("And now?")])
    rows[0]["_kind"] = "summary"
    changes = covering(rows, "Nothing of use.")
    second = conserve(rows, changes, Material(said(TALK)), BUDGET)
    for value in ("9f2c1abe77", "src/parse.py", "9090", "OPS-4121"):
        assert value in content(second.changes)


def _extract(seq: int, kind: str, subject: str, value: str) -> StoredExtract:
    return StoredExtract(500 + seq, seq, "assistant", kind, subject, value)


def test_open_tasks_of_the_newest_list_are_put_back_and_no_others() -> None:
    extracts = [
        _extract(4, "task", "done", "write the test"),
        _extract(4, "task", "in_progress", "write the rollback"),
        _extract(2, "task", "pending", "an old plan"),
    ]
    block = content(conserve(TALK, covering(TALK, "No."), Material(extracts), BUDGET).changes)
    assert "task in_progress: write the rollback" in block
    assert "write the test" not in block
    assert "an old plan" not in block


def test_a_question_that_the_user_spoke_after_is_not_open_any_more() -> None:
    last = max(row["_seq"] for row in TALK if row["role"] == "user")
    for seq, is_open in ((last - 1, False), (last + 1, True)):
        extracts = [_extract(seq, "question", "", "Shall I go on?")]
        changes = conserve(TALK, covering(TALK, "No."), Material(extracts), BUDGET).changes
        assert ("Shall I go on?" in content(changes)) is is_open


def test_without_extracts_nothing_changes() -> None:
    changes = covering(TALK, "Nothing of use.")
    assert conserve(TALK, changes, Material(), BUDGET).changes is changes


def test_anchors_come_off_a_summary_again() -> None:
    conserved = conserve(TALK, covering(TALK, "Nothing of use."), Material(said(TALK)), BUDGET)
    assert conserved.changes.new_row is not None
    assert text_of(strip_anchors(conserved.changes.new_row)["content"]) == "Nothing of use."


def test_a_value_inside_a_longer_word_is_not_in_view() -> None:
    assert stands_in("5432", "port 5432, then")
    assert not stands_in("5432", "id 154321")
    assert stands_in("端口", "改端口了")


@pytest.mark.parametrize("tokens", [0, 10, 60, 400])
def test_anchors_stay_within_their_budget(tokens: int) -> None:
    budget = dataclasses.replace(BUDGET, anchor_tokens=tokens, summary_tokens=1)
    changes = covering(TALK, "Nothing of use.")
    conserved = conserve(TALK, changes, Material(said(TALK)), budget)
    before, after = changes.new_row, conserved.changes.new_row
    assert before is not None
    assert after is not None
    assert after["_tokens"] - before["_tokens"] <= tokens + 1


@given(view=views(), text=st.sampled_from(["x", "Nothing of use.", "## Done\nSee [1]."]))
def test_what_is_restored_never_makes_a_good_candidate_a_bad_one(
    view: list[Message], text: str
) -> None:
    if len(view) < 2:
        return
    budget: Budget = BUDGET
    changes = covering(view, text)
    if judge_candidate(view, changes, budget):
        return
    conserved = conserve(view, changes, Material(said(view)), budget).changes
    assert judge_candidate(view, conserved, budget) == ""
    assert total_tokens(resulting_rows(view, conserved)) < total_tokens(view)
