"""What a summariser gets to read."""

from __future__ import annotations

import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.base.tokens import estimate_text
from agent.compaction.serialise import Line, clip, lines_of, pack
from agent.testing.builders import assistant, call, image, result, user
from agent.testing.transcripts import transcript
from tests.compaction.views import stored


def shown(rows: list) -> list[str]:
    return [f"{line.label} {line.body}".strip() for line in lines_of(rows)]


def test_rows_are_labelled_with_number_and_role():
    rows = stored(
        [
            user("look at a.py"),
            assistant("I look.", call("read_file", {"path": "a.py"}, call_id="c1")),
            result("c1", "def f(): ..."),
            assistant("It defines f."),
        ],
        first_seq=17,
    )
    assert shown(rows) == [
        "[17 user] look at a.py",
        "[18 assistant] I look.",
        '[18 assistant calls read_file] {"path": "a.py"}',
        "[19 result of read_file] def f(): ...",
        "[20 assistant] It defines f.",
    ]


def test_rows_without_a_number_and_results_without_a_call_are_shown_too():
    assert shown([user("a"), result("lost", "b")]) == ["[user] a", "[result of a tool] b"]


def test_images_and_other_parts_become_words_in_their_place():
    parts: list[Any] = [
        {"type": "text", "text": "before"},
        image("https://example.com/cat.png"),
        image(),
        {"type": "audio", "data": "AAAA"},
        "after",
        7,
    ]
    assert shown([user(parts)]) == [
        "[user] before\n[image https://example.com/cat.png]\n[image]\n[audio]\nafter"
    ]


def test_thoughts_are_left_out_and_empty_rows_make_no_line():
    rows = [assistant("<think>hm</think>Yes."), assistant(""), assistant(None), user("")]
    assert shown(rows) == ["[assistant] Yes."]


def test_secrets_never_reach_the_text():
    key = "sk-ant-api03-Zm9vYmFy_quux-1234567890"
    rows = [
        user(f"use {key}"),
        assistant(None, call("shell", {"command": f"curl -H 'x: {key}'"}, call_id="c")),
        result("c", f"token {key}"),
    ]
    text = "\n".join(shown(rows))
    assert key not in text
    assert text.count("[REDACTED:anthropic_key]") == 3


def test_a_new_day_is_marked_where_it_begins():
    noon = time.mktime((2026, 11, 29, 12, 0, 0, 0, 0, -1))
    rows = [
        {**user("a"), "_at": noon},
        {**assistant("b"), "_at": noon + 60},
        {**user("c"), "_at": noon + 86_400},
    ]
    assert shown(rows) == [
        "(2026-11-29)",
        "[user] a",
        "[assistant] b",
        "(2026-11-30)",
        "[user] c",
    ]


def test_clipping_keeps_head_and_tail_and_counts_the_rest():
    text = "a" * 700 + "b" * 300
    assert clip(text, 1_000) == text
    assert clip(text, 100) == f"{'a' * 70}\n[… 900 characters left out …]\n{'b' * 30}"


def test_what_fits_stays_whole_in_one_piece():
    rows = stored(transcript(3, messages=12, base64_share=0))
    lines = lines_of(rows)
    total = sum(line.tokens for line in lines)
    [piece] = pack(lines, piece_tokens=total, max_pieces=1)
    assert piece == "\n".join(f"{line.label} {line.body}".strip() for line in lines)


def test_one_huge_result_is_split_over_the_pieces_with_nothing_lost():
    words = [f"fact{n:05}" for n in range(9_000)]
    rows = [user("read"), assistant(None, call("cat", call_id="c")), result("c", " ".join(words))]
    pieces = pack(lines_of(rows), piece_tokens=12_000, max_pieces=6)
    assert len(pieces) <= 6
    assert all(estimate_text(piece) <= 12_000 for piece in pieces)
    assert pieces[1].startswith("[result of cat, continued] ")
    joined = " ".join(pieces)
    assert all(word in joined for word in words)


def test_bodies_are_cut_when_there_would_be_too_many_pieces_and_speech_last():
    rows = stored(
        [
            row
            for n in range(20)
            for row in (
                user(f"request{n} " + "please " * 60),
                assistant(None, call("cat", call_id="c")),
                result("c", f"head{n} " + "line " * 4_000 + f"tail{n}"),
            )
        ]
    )
    pieces = pack(lines_of(rows), piece_tokens=3_000, max_pieces=4)
    assert len(pieces) <= 4
    text = "\n".join(pieces)
    assert all(f"{mark}{n}" in text for n in range(20) for mark in ("request", "head", "tail"))
    assert "characters left out" in text


@given(
    st.integers(0, 10_000),
    st.integers(1, 60),
    st.integers(240, 6_000),
    st.integers(1, 12),
)
def test_every_piece_fits_and_every_row_is_in_some_piece(seed, messages, piece_tokens, max_pieces):
    rows = stored(transcript(seed, messages=messages, cjk=0.3, base64_share=0.2))
    lines = lines_of(rows)
    pieces = pack(lines, piece_tokens=piece_tokens, max_pieces=max_pieces)
    slack = 1.1 * piece_tokens + 20
    assert all(estimate_text(piece) <= slack for piece in pieces)
    text = "\n".join(pieces)
    for line in lines:
        assert line.label in text
        assert line.body[:40].split(" ")[0][:20] in text


@pytest.mark.parametrize("size", [0, 1])
def test_few_lines_make_few_pieces(size):
    lines = [Line("[user]", "hello", 4, speech=True)] * size
    assert pack(lines, piece_tokens=300, max_pieces=1) == ["[user] hello"] * size
