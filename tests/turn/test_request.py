"""The wire form of a view: valid for the strictest provider whatever it holds, and bounded."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.base.messages import Message, text_of, wire_message
from agent.base.tokens import estimate_message
from agent.compaction.budget import FRAME_TOKENS, budget_for, shown_tokens
from agent.testing.stub_strict import check_messages
from agent.turn.framing import DEALT_WITH, RESTATED
from agent.turn.request import LOST_RESULT, ShapeLimits, shape

LIMITS = ShapeLimits(round_tokens=2_000, message_tokens=2_000)


def rows(*messages: Message) -> list[Message]:
    return [
        {**message, "_seq": seq, "_row_id": seq, "_tokens": estimate_message(message)}
        for seq, message in enumerate(messages, start=1)
    ]


def user(text: Any, **extra: object) -> Message:
    return {"role": "user", "content": text, **extra}


def answer(text: str, *calls: str, **extra: object) -> Message:
    message: Message = {"role": "assistant", "content": text, **extra}
    if calls:
        message["tool_calls"] = [
            {"id": call, "type": "function", "function": {"name": "look", "arguments": "{}"}}
            for call in calls
        ]
    return message


def result(call: str, text: str = "found") -> Message:
    return {"role": "tool", "tool_call_id": call, "content": text}


def shown(view: list[Message], **options: Any) -> list[Message]:
    return [wire_message(message) for message in shape(view, LIMITS, **options).messages]


def test_a_plain_conversation_is_sent_as_it_stands_with_its_very_rows():
    view = rows(user("hello"), answer("hi"), user("go on"))
    shaped = shape(view, LIMITS)
    assert shaped.messages == view
    assert all(sent is row for sent, row in zip(shaped.messages, view, strict=True))
    assert shaped.tokens == sum(row["_tokens"] for row in view)


def test_a_call_whose_result_never_came_gets_one_synthetic_result():
    view = rows(user("look"), answer("", "t9"), user("and now?"))
    assert shown(view) == [
        user("look"),
        answer("", "t9"),
        {"role": "tool", "tool_call_id": "t9", "content": LOST_RESULT},
        user("and now?"),
    ]


def test_a_result_without_a_call_is_left_out():
    assert shown(rows(user("a"), result("gone"), answer("b"))) == [user("a"), answer("b")]


def test_a_message_accepted_between_call_and_result_follows_the_results():
    view = rows(user("look"), answer("", "t1", "t2"), result("t2"), user("hurry"), result("t1"))
    assert shown(view) == [
        user("look"),
        answer("", "t1", "t2"),
        result("t1"),
        result("t2"),
        user("hurry"),
    ]


def test_a_message_accepted_while_an_answer_was_under_way_follows_that_answer():
    view = rows(user("first"), user("second"), answer("about the first", _seen=1))
    assert shown(view) == [user("first"), answer("about the first"), user("second")]


def test_the_request_in_progress_is_restated_verbatim_after_the_summary():
    view = rows(
        user("make A"),
        user("explain C"),
        user("notes", _kind="summary"),
        answer("", "t1"),
        result("t1"),
    )
    sent = shown(view)
    assert [message["role"] for message in sent] == ["user", "assistant", "tool"]
    text = text_of(sent[0]["content"])
    dealt_with, restated = text.index(DEALT_WITH), text.index(RESTATED)
    assert dealt_with < text.index("#1: make A") < restated < text.index("explain C")
    assert text.endswith("explain C")
    assert text.count("explain C") == 1


def test_a_heading_that_earlier_requests_share_stands_once_above_them():
    view = rows(
        user("HOUSE RULE: no force push."),
        user("NOTE: Ada is away."),
        user("make A"),
        user("HOUSE RULE: ask before a release."),
        user("notes", _kind="summary"),
        answer("done"),
        user("HOUSE RULE: now B"),
    )
    sent = shown(view)
    said = text_of(sent[0]["content"]).partition(DEALT_WITH)[2].partition("\n\n")[0]
    assert said.splitlines() == [
        "",
        "#2: NOTE: Ada is away.",
        "#3: make A",
        "HOUSE RULE:",
        "#1: no force push.",
        "#4: ask before a release.",
    ]
    assert text_of(sent[-1]["content"]) == "HOUSE RULE: now B"


def test_every_row_of_the_running_turn_is_in_progress():
    view = rows(user("do it"), user("and this"), user("notes", _kind="summary"), answer("ok"))
    text = text_of(shown(view, current_from_seq=1)[0]["content"])
    assert DEALT_WITH not in text
    assert text.endswith("do it\n\nand this")


def test_a_summary_beside_kept_answers_stands_where_it_is():
    view = rows(user("q"), answer("kept"), user("notes", _kind="summary"), user("next"))
    sent = shown(view)
    assert [message["role"] for message in sent] == ["user", "assistant", "user"]
    assert text_of(sent[2]["content"]).endswith("next")


def test_one_round_of_results_shares_a_quarter_of_the_window_and_small_ones_stay_whole():
    big = "line of a log\n" * 3_000
    view = rows(
        user("run"), answer("", "a", "b", "c"), result("a", big), result("b", big), result("c")
    )
    shaped = shape(view, LIMITS)
    results = [message for message in shaped.messages if message["role"] == "tool"]
    assert sum(estimate_message(message) for message in results) <= LIMITS.round_tokens
    assert results[2] is view[4]
    assert 'recall(rows="3", offset=' in results[0]["content"]
    assert results[0]["content"].startswith("line of a log")


def test_a_user_message_over_its_share_is_shown_in_part_and_said_so():
    view = rows(user("word " * 20_000))
    shaped = shape(view, LIMITS)
    assert shaped.excerpted == (1,)
    assert shaped.tokens <= LIMITS.message_tokens * 1.1
    assert 'recall(rows="1", offset=' in shaped.messages[0]["content"]


@pytest.mark.parametrize("parts", [["word " * 20_000], ["word " * 9_000, "last " * 9_000, "end"]])
def test_a_user_message_of_parts_over_its_share_is_shown_in_part_beside_its_images(parts):
    texts = [{"type": "text", "text": text} for text in parts]
    image = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}
    plain, pictured = shape(rows(user(texts)), LIMITS), shape(rows(user([image, *texts])), LIMITS)
    assert (plain.excerpted, pictured.excerpted) == ((1,), (1,))
    assert max(plain.tokens, pictured.tokens) <= LIMITS.message_tokens
    said = plain.messages[0]["content"]
    assert said.startswith("word word ")
    assert said.endswith(parts[-1][-3:])
    assert 'recall(rows="1", offset=' in said
    told, shown = pictured.messages[0]["content"]
    assert shown == image
    assert 'recall(rows="1", offset=' in told["text"]


def test_images_of_merged_messages_are_kept_as_parts():
    image = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}
    view = rows(user("one"), {"role": "user", "content": [{"type": "text", "text": "two"}, image]})
    assert shown(view) == [
        {
            "role": "user",
            "content": [{"type": "text", "text": "one"}, {"type": "text", "text": "two"}, image],
        }
    ]


TEXTS = st.sampled_from(["", " ", "word", "a longer text with several words", "日本語"])
CALLS = st.lists(st.sampled_from(["t1", "t2", "t3"]), unique=True, max_size=3)
ROWS = st.one_of(
    st.builds(user, TEXTS),
    st.builds(
        lambda text, kind: user(text, _kind=kind), TEXTS, st.sampled_from(["summary", "mechanical"])
    ),
    st.builds(
        lambda text, calls, seen: answer(text, *calls, _seen=seen), TEXTS, CALLS, st.integers(0, 20)
    ),
    st.builds(result, st.sampled_from(["t1", "t2", "t3", "t4"]), TEXTS),
    st.builds(lambda text: {"role": "system", "content": text}, TEXTS),
)


@given(st.lists(ROWS, min_size=1, max_size=20), st.none() | st.integers(1, 20))
def test_whatever_the_view_holds_the_strictest_provider_takes_the_request(messages, current):
    view = rows(*messages)
    sent = shown(view, current_from_seq=current)
    if all(message["role"] == "tool" for message in messages):
        assert sent == []
    else:
        assert check_messages(sent) is None


@given(st.lists(ROWS, min_size=1, max_size=20))
def test_shaping_leaves_the_view_untouched_and_shows_every_real_request(messages):
    view = rows(*messages)
    before = [dict(row) for row in view]
    sent = shape(view, LIMITS).messages
    assert view == before
    text = "\n".join(text_of(message["content"]) for message in sent)
    for row in view:
        if row["role"] == "user" and row.get("_kind") is None:
            assert row["content"].strip() in text


def test_a_view_with_a_summary_is_counted_with_the_frame_it_is_shown_in():
    """What passes go by may be more than what is sent, never less."""
    budget = budget_for(100_000, 4_096, 0)
    view = rows(user("make A"), user("notes " * 50, _kind="summary"), answer("done"), user("now B"))
    sent = shape(view, LIMITS)
    assert sent.tokens <= shown_tokens(view, budget) <= sent.tokens + 40
    bare = rows(user("", _kind="summary", _seq=123_456), user("B"))
    assert shape(bare, LIMITS).tokens - sum(row["_tokens"] for row in bare) <= FRAME_TOKENS


def marker(text: str, **extra: object) -> Message:
    return answer(text, _kind="micro", **extra)


def test_a_marker_is_shown_as_the_assistants_and_names_the_rows_it_stands_for():
    view = rows(user("look"), marker("found port 5433", _from_seq=2), user("go on"))
    view[1]["_seq"] = 5
    [asked, shown_marker, following] = shape(view, LIMITS).messages
    assert (asked, following) == (view[0], view[2])
    assert wire_message(shown_marker) == {
        "role": "assistant",
        "content": "[Condensed: what was done and said here; the rows are kept: "
        'recall(rows="2-5")]\nfound port 5433',
    }
    assert shown_marker["_tokens"] == estimate_message(wire_message(shown_marker))
    assert "_row_id" not in shown_marker


def test_a_marker_names_no_tool_that_is_not_offered():
    view = rows(user("look"), marker("found port 5433"), user("go on"))
    limits = ShapeLimits(2_000, 2_000, recall=False)
    assert "recall" not in shape(view, limits).messages[1]["content"]


def test_a_message_typed_before_an_answer_it_was_not_seen_by_follows_the_marker():
    view = rows(user("one"), user("two"), marker("answered one", _seen=1), answer("answered two"))
    roles = [(message["role"], text_of(message["content"])[-12:]) for message in shown(view)]
    assert roles == [
        ("user", "one"),
        ("assistant", "answered one"),
        ("user", "two"),
        ("assistant", "answered two"),
    ]


def test_requests_whose_markers_were_rolled_up_stand_side_by_side():
    view = rows(user("one"), user("two"), marker("both answered"), user("three"))
    assert [message["role"] for message in shown(view)] == ["user", "assistant", "user"]
    assert check_messages([{"role": "system", "content": "s"}, *shown(view)]) is None
