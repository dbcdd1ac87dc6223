"""The first rung: old bulk as one line each."""

from __future__ import annotations

import dataclasses
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.base.messages import call_ids, last_user_index
from agent.base.tokens import estimate_message
from agent.compaction.attempt import Candidate, reconcile
from agent.compaction.budget import budget_for, total_tokens
from agent.compaction.mask import mask_rows
from agent.testing.builders import assistant, call, image, result, turn, user
from tests.compaction.views import stored, views


def masked_beyond(view: list, tail_tokens: int) -> list:
    budget = budget_for(128_000, 4_096, 0)
    return mask_rows(view, dataclasses.replace(budget, tail_tokens=tail_tokens))


def masked_fields(before: list, after: list) -> dict[int, dict]:
    return {
        index: shown["_stub"]
        for index, (row, shown) in enumerate(zip(before, after, strict=True))
        if shown is not row
    }


def test_an_old_result_becomes_one_line_that_says_how_to_read_it():
    text = "def f():\n    return 1\n" * 40
    made = call("read_file", {"path": "src/a.py", "limit": 50, "deep": {"x": 1}}, call_id="c1")
    view = stored([user("look"), assistant(None, made), result("c1", text), *turn("next")])
    after = masked_beyond(view, 60)
    line = (
        '[read_file(path="src/a.py", limit=50): 81 lines, 880 characters, put aside; '
        'recall(rows="3") shows it]'
    )
    assert masked_fields(view, after) == {2: {"content": line}}
    assert after[2] == {
        **view[2],
        "content": line,
        "_stub": {"content": line},
        "_tokens": estimate_message({"role": "tool", "tool_call_id": "c1", "content": line}),
    }


@pytest.mark.parametrize(
    "output",
    [
        "exit code: 3\n" + "noise " * 60,
        '{"output": "' + "noise " * 60 + '", "exit_code": 3}',
        "noise " * 60 + "\nexited with status 3",
    ],
    ids=["first-line", "json", "last-line"],
)
def test_the_line_of_a_command_names_its_exit_code(output):
    made = call("shell", {"command": "make   test"}, call_id="c1")
    view = stored([user("run"), assistant(None, made), result("c1", output), *turn("next")])
    content = masked_beyond(view, 60)[2]["content"]
    assert content.startswith('[shell(command="make test"): exit code 3, ')


def test_the_line_of_an_excerpt_names_the_size_of_the_whole():
    text = (
        "head\n" * 60
        + '[90000 of 98000 characters left out here; read on with recall(rows="3", offset=6000)]\n'
        + "tail"
    )
    view = stored(
        [user("a"), assistant(None, call("x", call_id="c")), result("c", text), *turn("b")]
    )
    assert masked_beyond(view, 60)[2]["content"] == (
        '[x(): 98,000 characters, put aside; recall(rows="3") shows it]'
    )


def test_short_results_the_tail_and_the_last_round_stay():
    rounds = [{"read_file": "short"}, {"read_file": "x" * 900}, {"read_file": "y" * 900}]
    view = stored(turn("go", rounds=rounds)[:-1])
    assert set(masked_fields(view, masked_beyond(view, 20))) == {4}
    assert masked_fields(view, masked_beyond(view, 100_000)) == {}


def test_an_identical_result_further_up_refers_to_the_newest_one():
    rounds = [{"status": "same " * 60}, {"status": "other " * 60}, {"status": "same " * 60}]
    view = stored([*turn("go", rounds=rounds), *turn("and")])
    after = masked_beyond(view, 100_000)
    assert masked_fields(view, after) == {
        2: {"content": "[the same output as row 7, further down]"}
    }


def test_long_arguments_are_cut_inside_their_json():
    arguments = {"path": "a.py", "content": "z" * 5_000, "list": ["y" * 300, 3, None]}
    view = stored(
        [
            user("write"),
            assistant("I write it.", call("write_file", arguments, call_id="c1")),
            result("c1", "ok"),
            *turn("next"),
        ]
    )
    after = masked_beyond(view, 60)
    assert set(masked_fields(view, after)) == {1}
    cut = json.loads(after[1]["tool_calls"][0]["function"]["arguments"])
    assert cut == {
        "path": "a.py",
        "content": "z" * 200 + "… [4,800 characters more]",
        "list": ["y" * 200 + "… [100 characters more]", 3, None],
    }
    assert (after[1]["content"], call_ids(after[1])) == ("I write it.", ["c1"])


@pytest.mark.parametrize(
    "arguments", ['{"broken": "' + "x" * 900, "[1]" * 400, '"' + "x" * 90 + '"']
)
def test_arguments_that_are_no_json_or_short_stay(arguments):
    view = stored([user("a"), assistant(None, call("t", arguments)), *turn("next")])
    assert masked_fields(view, masked_beyond(view, 40)) == {}


def test_old_images_become_words_and_the_newest_requests_image_stays():
    picture = image("https://example.com/cat.png")
    view = stored(
        [
            user([{"type": "text", "text": "what is this"}, picture]),
            assistant("a cat"),
            user([{"type": "text", "text": "and this"}, picture]),
        ]
    )
    assert masked_fields(view, masked_beyond(view, 10)) == {
        0: {
            "content": [
                {"type": "text", "text": "what is this"},
                {"type": "text", "text": "[an image stood here, in row 1]"},
            ]
        }
    }


def test_a_result_that_is_an_image_becomes_a_line():
    view = stored(
        [user("shot"), assistant(None, call("screen", call_id="c")), result("c", ""), *turn("next")]
    )
    view[2]["content"] = [image()]
    view[2]["_tokens"] = estimate_message(view[2])
    assert masked_beyond(view, 60)[2]["content"] == (
        '[screen(): 1 lines, 0 characters, an image, put aside; recall(rows="3") shows it]'
    )


def test_what_is_masked_or_not_stored_yet_is_left_alone():
    view = stored([*turn("go", rounds=[{"read_file": "x" * 900}]), *turn("next")])
    masked = {**view[2], "content": "[stub]", "_stub": {"content": "[stub]"}}
    pending = {key: value for key, value in view[2].items() if key != "_row_id"}
    for row in (masked, pending):
        shown = masked_beyond([*view[:2], row, *view[3:]], 60)
        assert shown[2] is row


@given(views(), st.integers(0, 3_000))
def test_masks_shrink_the_view_keep_its_shape_and_are_read_back(view, tail_tokens):
    after = masked_beyond(view, tail_tokens)
    assert [row["role"] for row in after] == [row["role"] for row in view]
    assert [call_ids(row) for row in after] == [call_ids(row) for row in view]
    assert total_tokens(after) <= total_tokens(view)
    newest = last_user_index(view)
    assert newest is None or after[newest] is view[newest]
    changes = reconcile(view, Candidate(after))
    assert {mask.ref: mask.stub for mask in changes.masked} == masked_fields(view, after)
    assert all(mask.tokens == after[mask.ref]["_tokens"] for mask in changes.masked)
    assert (changes.covered, changes.new_row) == ((), None)
