"""The digest that needs no model."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.base.tokens import estimate_text
from agent.compaction.mechanical import TITLE, write_digest
from agent.testing.builders import assistant, call, result, user
from tests.compaction.views import stored, summary_row, views


def rows_of_work() -> list:
    return stored(
        [
            user("make the tests of src/app/parse.py green"),
            assistant("I look.", call("read_file", {"path": "src/app/parse.py"}, call_id="c1")),
            result("c1", "def parse(): ..."),
            assistant(None, call("shell", {"command": "pytest tests/test_parse.py"}, call_id="c2")),
            result("c2", "collected 3\nE   ValueError: unconverted data remains: 00Z\n1 failed"),
            assistant("One test fails."),
        ],
        first_seq=11,
    )


def test_a_digest_tells_requests_actions_files_errors_and_the_last_lines():
    assert write_digest(rows_of_work(), [], 1_000) == (
        f"""{TITLE}

## Requests
- [11] make the tests of src/app/parse.py green

## Actions
- [12] read_file {{"path": "src/app/parse.py"}}
- [14] shell {{"command": "pytest tests/test_parse.py"}}

## Files
- src/app/parse.py [12]
- tests/test_parse.py [14]

## Errors
- [15] shell: E ValueError: unconverted data remains: 00Z

## Last lines before the cut
- [11] user: make the tests of src/app/parse.py green
- [12] assistant: I look.
- [13] tool: def parse(): ...
- [15] tool: collected 3 E ValueError: unconverted data remains: 00Z 1 failed
- [16] assistant: One test fails.

To read any of these rows in full: recall(rows="11-16")."""
    )


def test_an_earlier_summary_is_carried_on_under_a_heading_of_its_own():
    [earlier] = stored([summary_row("## Done\n- [3] The port was changed.\n## Values\nPort 5433.")])
    digest = write_digest(rows_of_work(), [earlier], 1_000)
    start = digest.index("## Earlier summary\n")
    assert digest[start:].startswith(
        "## Earlier summary\n### Done\n- [3] The port was changed.\n### Values\nPort 5433.\n\n"
    )
    assert digest.endswith('recall(rows="1-16").')


def test_digests_merge_section_by_section_and_never_nest():
    [summary] = stored([summary_row("## Values\nPort 5433.")])
    first = write_digest(rows_of_work(), [summary], 1_000)
    [digest] = stored([summary_row(first, "mechanical")], first_seq=16)
    later = stored(
        [
            user("now document it"),
            assistant(None, call("write_file", {"path": "src/app/parse.py"}, call_id="c9")),
            result("c9", "ok"),
        ],
        first_seq=17,
    )
    second = write_digest(later, [digest], 1_000)
    assert second.count(TITLE) == 1
    assert second.count("## Requests") == 1
    assert second.count("Port 5433.") == 1
    assert "- [11] make the tests of src/app/parse.py green\n- [17] now document it" in second
    assert "- src/app/parse.py [12] [18]\n" in second
    assert "Last lines before the cut\n- [17] user: now document it\n" in second


def test_secrets_stay_out_of_every_section():
    key = "ghp_0123456789abcdefABCDEF0123456789abcd"
    rows = stored(
        [
            user(f"use {key}"),
            assistant(f"with {key}", call("shell", {"command": f"echo {key}"}, call_id="c")),
            result("c", f"error: {key} was denied"),
        ]
    )
    digest = write_digest(rows, stored([summary_row(f"the key is {key}")]), 1_000)
    assert key not in digest
    assert digest.count("[REDACTED:github_token]") >= 5


def test_rows_without_numbers_are_found_by_searching():
    rows = [user("hello"), assistant("hi")]
    digest = write_digest(rows, [], 400)
    assert "- hello\n" in digest
    assert digest.endswith('recall(query="words to look for").')


def test_the_newest_lines_stay_when_there_is_no_room_for_all():
    rows = stored([user(f"request number {n} about file{n}.py please") for n in range(400)])
    digest = write_digest(rows, [], 300)
    assert "request number 399 " in digest
    assert "request number 0 " not in digest
    assert estimate_text(digest) <= 300


def test_a_long_earlier_summary_in_one_line_is_cut_rather_than_lost():
    earlier = stored([summary_row("port 5433 " + "and so on " * 2_000)])
    digest = write_digest(rows_of_work(), earlier, 400)
    assert "## Earlier summary\nport 5433" in digest
    assert estimate_text(digest) <= 400


@pytest.mark.parametrize("max_tokens", [0, 5, 20])
def test_no_room_for_the_frame_means_no_digest(max_tokens):
    assert write_digest(rows_of_work(), [], max_tokens) == ""


def test_broken_arguments_and_images_do_no_harm():
    rows = stored(
        [
            user([{"type": "image_url", "image_url": {"url": "data:image/png;base64,AA"}}]),
            assistant(None, call("write", '{"path": "a/b.py", "text', call_id="c")),
            result("unknown", "fatal: no such file"),
        ]
    )
    digest = write_digest(rows, [], 600)
    assert "- [1] (attachment)\n" in digest
    assert "- a/b.py [2]\n" in digest
    assert "- [3] tool: fatal: no such file\n" in digest


@given(views(), st.integers(0, 1_500), st.booleans())
def test_a_digest_keeps_its_budget_and_ends_with_how_to_read_on(view, max_tokens, again):
    earlier = [row for row in view if row.get("_kind") == "summary"]
    rows = [row for row in view if row.get("_kind") != "summary"]
    if again and (text := write_digest(rows, earlier, 600)):
        earlier = stored([summary_row(text, "mechanical")])
    digest = write_digest(rows, earlier, max_tokens)
    assert estimate_text(digest) <= max_tokens
    if digest:
        assert digest.startswith(TITLE)
        assert "recall(" in digest.splitlines()[-1]
