"""From a candidate back to what it changes."""

from __future__ import annotations

import copy

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.base.messages import wire_message
from agent.base.tokens import estimate_message
from agent.compaction.attempt import (
    LEFT_OUT,
    Candidate,
    CandidateRefused,
    Changes,
    Mask,
    reconcile,
)
from agent.sessions.records import PassKind
from agent.testing.builders import assistant, call, conversation, result, user
from tests.compaction.views import stored, views


def new_row(text: str, kind: str = "summary") -> dict:
    row = {"role": "user", "content": text, "_kind": kind}
    return {**row, "_tokens": estimate_message(row)}


def plain(messages: list) -> list:
    """Return what an engine that copies only what it knows gives back."""
    return [copy.deepcopy(wire_message(message)) for message in messages]


def test_an_unchanged_view_changes_nothing():
    view = stored(conversation(2))
    for candidate in (view, plain(view), Candidate(view)):
        changes = reconcile(view, candidate)
        assert changes == Changes(PassKind.MASK, (0, 1, 2, 3), (), (), None)
        assert changes.nothing is True


def test_the_built_in_engines_new_row_stands_for_what_is_missing():
    view = stored(conversation(3))
    candidate = Candidate([new_row("gist", "mechanical"), *view[4:]], kind=PassKind.MECHANICAL)
    assert reconcile(view, candidate) == Changes(
        PassKind.MECHANICAL, (4, 5), (0, 1, 2, 3), (), new_row("gist", "mechanical")
    )


def test_a_plain_engines_copies_are_matched_from_the_end():
    view = stored([user("yes"), assistant("a"), user("yes"), assistant("a"), user("go")])
    changes = reconcile(view, [user("gist"), user("yes"), assistant("a"), user("go")])
    assert (changes.kept, changes.covered) == ((2, 3, 4), (0, 1))


def test_several_new_rows_become_one_in_their_order():
    view = stored(conversation(3))
    changes = reconcile(view, [user("one"), assistant("two"), *plain(view[4:]), user("three")])
    assert (changes.kept, changes.new_row) == ((4, 5), new_row("one\n\ntwo\n\nthree"))


def test_rows_that_a_plain_engine_only_drops_get_a_row_that_says_so():
    view = stored(conversation(3))
    changes = reconcile(view, view[4:])
    assert (changes.covered, changes.new_row) == ((0, 1, 2, 3), new_row(LEFT_OUT))


def test_a_changed_result_of_a_kept_row_is_a_mask():
    made = call("shell", {"command": "ls"}, call_id="c1")
    view = stored([user("list"), assistant(None, made), result("c1", "x" * 500)])
    masked = {**view[2], "content": "[put aside]"}
    changes = reconcile(view, [*view[:2], masked])
    tokens = estimate_message(masked)
    assert changes == Changes(
        PassKind.MASK, (0, 1, 2), (), (Mask(2, {"content": "[put aside]"}, tokens),), None
    )


def test_a_mask_and_a_summary_can_stand_in_one_candidate():
    view = stored([user("a"), assistant("b" * 900), user("c"), assistant("d" * 900)])
    shown = {**view[3], "content": "short"}
    changes = reconcile(view, Candidate([new_row("gist"), view[2], shown]))
    assert (changes.kind, changes.kept, changes.covered) == (PassKind.SUMMARY, (2, 3), (0, 1))
    assert [(mask.ref, mask.stub) for mask in changes.masked] == [(3, {"content": "short"})]


def _reversed(view):
    return view[::-1]


def _twice(view):
    return [view[0], *view]


def _unknown(view):
    return [{**view[0], "_ref": 99}]


def _no_number(view):
    return [{**view[0], "_ref": "0"}]


def _other_role(view):
    return [{**view[0], "role": "assistant"}, *view[1:]]


def _extra_key(view):
    return [{**view[0], "name": "x"}, *view[1:]]


def _plain_twice(view):
    return plain([view[1], *view])


def _plain_reversed(view):
    return plain(view[::-1])


@pytest.mark.parametrize(
    ("build", "reason"),
    [
        (_reversed, "reordered"),
        (_twice, "duplicated"),
        (_unknown, "unknown_ref"),
        (_no_number, "unknown_ref"),
        (_other_role, "altered"),
        (_extra_key, "altered"),
        (_plain_twice, "duplicated"),
        (_plain_reversed, "duplicated"),
    ],
)
def test_a_candidate_that_is_no_change_of_the_view_is_refused(build, reason):
    view = stored(conversation(2))
    with pytest.raises(CandidateRefused, match="the engine's result is refused") as refusal:
        reconcile(view, build(view))
    assert refusal.value.reason == reason


def test_a_row_is_masked_once():
    view = stored([user("a"), {**assistant("[stub]"), "_stub": {"content": "[stub]"}}])
    with pytest.raises(CandidateRefused) as refusal:
        reconcile(view, [view[0], {**view[1], "content": "[shorter]"}])
    assert refusal.value.reason == "masked_again"


def test_a_row_that_is_not_stored_yet_cannot_be_masked():
    pending = {**assistant("long " * 90), "_ref": 0}
    with pytest.raises(CandidateRefused) as refusal:
        reconcile([pending], [{**pending, "content": "short"}])
    assert refusal.value.reason == "altered"


@given(views(), st.data())
def test_any_selection_comes_back_as_what_was_kept_and_covered(view, data):
    kept = [index for index in range(len(view)) if data.draw(st.booleans())]
    candidate = [new_row("a gist that no row says"), *(view[index] for index in kept)]
    changes = reconcile(view, candidate)
    assert changes.kept == tuple(kept)
    assert sorted((*changes.kept, *changes.covered)) == list(range(len(view)))
    assert changes.new_row == new_row("a gist that no row says")


@given(views(), st.data())
def test_a_plain_engines_selection_is_found_whatever_repeats(view, data):
    kept = [index for index in range(len(view)) if data.draw(st.booleans())]
    candidate = plain([view[index] for index in kept])
    gap = data.draw(st.integers(0, len(candidate)))
    candidate.insert(gap, user("a gist that no row says"))
    changes = reconcile(view, candidate)
    shown = [wire_message(view[ref]) for ref in changes.kept]
    assert shown == [row for row in candidate if row != user("a gist that no row says")]
    assert list(changes.kept) == sorted(set(changes.kept))
    assert all(found >= chosen for found, chosen in zip(changes.kept, kept, strict=True))


@given(views(), st.permutations(range(5)))
def test_rows_with_refs_are_only_taken_in_order(view, order):
    candidate = [view[index] for index in order if index < len(view)]
    refs = [row["_ref"] for row in candidate]
    if refs == sorted(refs):
        assert reconcile(view, candidate).kept == tuple(refs)
    else:
        with pytest.raises(CandidateRefused):
            reconcile(view, candidate)
