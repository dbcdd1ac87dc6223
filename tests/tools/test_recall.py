from __future__ import annotations

import ast
import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.base.errors import ToolError, ToolUsageError
from agent.base.tokens import estimate_text
from agent.tools.protocol import ToolContext
from agent.tools.recall import RECALL, recall, recall_rows, recall_text

AT = 1_796_049_620.0
DATE = "2026-11-30T14:40:20Z"


class Rows:
    """A reader over a list: what the store promises, in its simplest form."""

    def __init__(self, rows: list[dict[str, Any]], unseen: Sequence[tuple[int, str]] = ()) -> None:
        self._rows = rows
        self._unseen = unseen
        self.read: list[tuple[int, int]] = []

    def search(self, query: str, *, limit: int) -> list[dict[str, Any]]:
        words = query.replace('"', " ").casefold().split()
        found = [row for row in self._rows
                 if all(word in str(row["content"]).casefold() for word in words)]  # fmt: skip
        return found[::-1][:limit]

    def unseen(self, *, limit: int) -> list[tuple[int, str]]:
        return list(self._unseen[:limit])

    def rows(self, first_seq: int, last_seq: int) -> list[dict[str, Any]]:
        self.read.append((first_seq, last_seq))
        return [row for row in self._rows if first_seq <= row["_seq"] <= last_seq]


def _row(seq: int, content: Any, role: str = "user", **more: Any) -> dict[str, Any]:
    return {"role": role, "content": content, "_seq": seq, "_row_id": seq, "_at": AT, **more}


def _fails(reader: Rows, **arguments: Any) -> str:
    with pytest.raises(ToolUsageError) as raised:
        recall_text(reader, **arguments)
    assert raised.value.exit_code == 2
    return str(raised.value)


# -- ranges ---------------------------------------------------------------------------------
def test_rows_come_with_number_role_and_date(context: ToolContext) -> None:
    call = {"id": "t1", "function": {"name": "shell", "arguments": '{"command": "ls"}'}}
    reader = Rows(
        [
            _row(1, "hello\n  there"),
            _row(2, None, "assistant", tool_calls=[call]),
            _row(3, "a\nb\n[exit code 0]", "tool", name="shell"),
            _row(5, [{"type": "text", "text": "see"}, {"type": "image_url", "image_url": {}}]),
            _row(6, ""),
        ]
    )
    assert recall_text(reader, rows="1-9") == "\n".join(
        [
            f"#1 user {DATE}",
            "hello\n  there",
            f"#2 assistant {DATE}",
            '[calls shell with {"command": "ls"}]',
            f"#3 tool shell {DATE}",
            "a\nb\n[exit code 0]",
            f"#5 user {DATE}",
            "see",
            f"#6 user {DATE}",
            "",
        ]
    )
    assert RECALL.run({"rows": "3"}, replace(context, rows=reader)) == (
        f"#3 tool shell {DATE}\na\nb\n[exit code 0]"
    )


def test_the_reference_of_an_excerpt_works_when_executed_literally() -> None:
    text = "".join(f"{n:07}\n" for n in range(40_000))
    found = recall_text(Rows([_row(17, text, "tool")]), rows="17", offset=6000)
    header, _, rest = found.partition("\n")
    shown, _, left_out = rest.rpartition("\n")
    end = 6000 + len(shown)
    assert header == f"#17 tool {DATE} (characters 6000 to {end} of 320000)"
    assert shown == text[6000:end]
    assert left_out == (
        f"[row 17 has {320_000 - end} more characters; "
        f'read on with recall(rows="17", offset={end})]'
    )


def _arguments(left_out: str) -> dict[str, Any]:
    """Return the arguments of the call that a result names."""
    call = re.search(r"recall\((.*)\)", left_out)
    assert call is not None
    pairs = re.findall(r"(\w+)=(\"[^\"]*\"|\d+)", call[1])
    return {key: ast.literal_eval(value) for key, value in pairs}


texts = st.one_of(
    st.text(max_size=200),
    st.text(st.sampled_from("a b\n9{}漢字🙂é"), max_size=3_000),
    st.builds(
        lambda text, times: text * times, st.text(min_size=1, max_size=40), st.integers(1, 400)
    ),
)


@given(contents=st.lists(texts, min_size=1, max_size=8), budget=st.integers(400, 1_500))
def test_slices_read_one_after_another_are_the_rows_byte_exact(
    contents: list[str], budget: int
) -> None:
    reader = Rows([_row(2 * n, content) for n, content in enumerate(contents, 1)])
    arguments: dict[str, Any] = {"rows": f"1-{3 * len(contents)}", "budget_tokens": budget}
    read: dict[int, str] = {}
    for _ in range(10_000):
        whole = {"query": None, "offset": 0, "budget_tokens": 2_000} | arguments
        assert estimate_text(recall_text(reader, **arguments)) <= budget
        found = recall(reader, **whole)
        for piece in found.slices:
            seq = int(piece.row["_seq"])
            assert piece.start == len(read.get(seq, ""))
            read[seq] = read.get(seq, "") + piece.text
        if not found.left_out:
            break
        arguments = _arguments(found.left_out)
    assert list(read.values()) == contents


def test_a_wide_range_reads_only_what_is_shown() -> None:
    reader = Rows([_row(n, f"row {n} " + "word " * 100) for n in range(1, 1_000)])
    found = recall_text(reader, rows="3-1000000000000")
    shown = [int(seq) for seq in re.findall(r"^#(\d+) ", found, re.MULTILINE)]
    assert shown == list(range(3, 3 + len(shown)))
    assert found.endswith(f'[read on with recall(rows="{3 + len(shown)}-1000000000000")]')
    assert reader.read[:2] == [(3, 6), (7, 14)]
    assert reader.read[-1][1] <= 3 * shown[-1]


def test_rows_are_also_given_as_messages() -> None:
    rows = [_row(1, "first", name="x"), _row(2, "y" * 20_000)]
    first, second = recall_rows(Rows(rows), rows="1-2", budget_tokens=500)
    assert first == rows[0]
    shown = second["content"]
    assert second == {
        **rows[1],
        "content": shown,
        "_slice": {"offset": 0, "chars": len(shown), "total_chars": 20_000},
    }
    assert 0 < len(shown) < 20_000


@pytest.mark.parametrize("rows", ["17", "#17", " 17 ", "17-17", "16 - 18", "#16-#18"])
def test_ranges_may_be_written_in_several_ways(rows: str) -> None:
    assert recall_text(Rows([_row(17, "x")]), rows=rows) == f"#17 user {DATE}\nx"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({}, 'recall takes a query, or rows like "17" or "40-62"; given: neither'),
        ({"query": " ", "rows": ""},
         'recall takes a query, or rows like "17" or "40-62"; given: neither'),
        ({"query": "x", "rows": "1"},
         "recall takes a query, or rows like \"17\" or \"40-62\"; given: query='x' and rows='1'"),
        ({"rows": "abc"}, "rows 'abc' is no range; write \"17\" or \"40-62\""),
        ({"rows": "1,2"}, "rows '1,2' is no range; write \"17\" or \"40-62\""),
        ({"rows": "-3"}, "rows '-3' is no range; write \"17\" or \"40-62\""),
        ({"rows": "1\n2"}, r"rows '1\\n2' is no range; write " + '"17" or "40-62"'),
        ({"rows": "0"}, "rows '0' is empty; rows count from 1, the smaller number first"),
        ({"rows": "9-3"}, "rows '9-3' is empty; rows count from 1, the smaller number first"),
        ({"rows": "9"}, "this conversation has no row 9"),
        ({"rows": "8-9"}, "this conversation has no row 8 to 9"),
        ({"rows": "1", "offset": 5}, "row 1 has 5 characters; offset 5 is past its end"),
        ({"rows": "1", "offset": -1}, "offset -1 needs rows, and must be 0 or more"),
        ({"query": "x", "offset": 1}, "offset 1 needs rows, and must be 0 or more"),
        ({"rows": "1", "budget_tokens": 399}, "budget_tokens 399 is too small; give 400 or more"),
    ],
)  # fmt: skip
def test_a_recall_that_cannot_be_made_says_why(arguments: dict[str, Any], message: str) -> None:
    assert _fails(Rows([_row(1, "hello")]), **arguments) == message


def test_a_run_without_archive_says_so(context: ToolContext) -> None:
    with pytest.raises(ToolError, match="keeps no archive"):
        RECALL.run({"rows": "1"}, context)


# -- search ---------------------------------------------------------------------------------
def test_a_hit_comes_with_the_rows_around_it() -> None:
    rows = [_row(n, f"text {n}") for n in range(1, 30)]
    rows[9]["content"] = "the port is 5433"
    rows[11]["content"] = "the Port again"
    found = recall_text(Rows(rows), query="PORT the")
    assert found == "\n".join(
        f"#{n} user {DATE}\n{rows[n - 1]['content']}" for n in (9, 10, 11, 12, 13)
    )


def test_a_long_hit_is_shown_where_it_matches() -> None:
    text = "x" * 50_000 + " the needle is here " + "y" * 50_000
    found = recall_text(Rows([_row(3, "before"), _row(4, text, "tool")]), query="needle")
    before, _, rest = found.partition(f"#4 tool {DATE} (characters ")
    assert before == f"#3 user {DATE}\nbefore\n"
    start = int(rest.split(" ", 1)[0])
    header, shown, left_out = rest.split("\n")
    assert header == f"{start} to {start + len(shown)} of {len(text)})"
    assert shown == text[start : start + len(shown)]
    assert " the needle is here " in shown
    assert left_out == '[row 4 is cut: recall(rows="4")]'


def test_hits_that_do_not_fit_are_named_best_first() -> None:
    rows = [_row(3 * n, f"needle {n} " + "word " * 60) for n in range(1, 21)]
    found = recall_text(Rows(rows), query="needle", budget_tokens=800)
    shown = [int(seq) for seq in re.findall(r"^#(\d+) ", found, re.MULTILINE)]
    hits = [3 * n for n in range(20, 0, -1)]
    assert shown[::-1] == hits[: len(shown)]
    others = hits[len(shown) :]
    listed = ", ".join(str(seq) for seq in others[:6])
    assert found.endswith(
        f'[more hits in rows {listed} and {len(others) - 6} others: recall(rows="{others[0]}")]'
    )


def test_a_search_without_hits_says_so() -> None:
    assert recall_text(Rows([_row(1, "a")]), query="zebra") == (
        "[no row holds a word of 'zebra'; try others]"
    )
    assert recall_rows(Rows([_row(1, "a")]), query="zebra") == []


_OPEN = "no row says half of this; also shown, as it left the view: the user's words, rare names"


def test_a_question_that_no_row_answers_gets_what_left_the_view() -> None:
    rows = [_row(n, f"filler {n}") for n in range(1, 30)]
    rows[3]["content"] = "keep it short, I read on my phone"
    log = "".join(f"{n:05} ok\n" for n in range(2_000))
    rows[20] = _row(21, f"{log}job gave up: 7f3c-91\n{log}", "tool")
    reader = Rows(rows, [(4, ""), (21, "7f3c-91")])
    found = recall(reader, "answer length", None, 0, 2_000)
    assert [int(piece.row["_seq"]) for piece in found.slices] == [4, 21]
    assert found.slices[0].text == rows[3]["content"]
    assert "job gave up: 7f3c-91\n" in found.slices[1].text
    assert found.left_out == f'{_OPEN}; row 21 is cut: recall(rows="21")'


@pytest.mark.parametrize("query", ["filler", '"answer length"', "OPS-4711", "src/a.py:12"])
def test_what_is_found_and_what_is_there_or_not_gets_nothing_else(query: str) -> None:
    rows = [_row(1, "keep it short"), _row(5, "filler")]
    shown = [f"#5 user {DATE}\nfiller"] if query == "filler" else [
        f"[no row holds a word of {query!r}; try others]"
    ]  # fmt: skip
    assert recall_text(Rows(rows, [(1, "")]), query=query) == shown[0]


@given(
    contents=st.lists(texts, min_size=1, max_size=25),
    query=st.sampled_from(["a", "9", "漢", "b 9", "zebra"]),
    budget=st.integers(400, 3_000),
)
def test_a_search_stays_in_its_budget_and_shows_true_text(
    contents: list[str], query: str, budget: int
) -> None:
    rows = [_row(n, content) for n, content in enumerate(contents, 1)]
    reader = Rows(rows, [(n, content[-9:]) for n, content in enumerate(contents, 1)])
    assert estimate_text(recall_text(reader, query=query, budget_tokens=budget)) <= budget
    found = recall(reader, query, None, 0, budget)
    seqs = [int(piece.row["_seq"]) for piece in found.slices]
    assert seqs == sorted(set(seqs))
    for piece in found.slices:
        content = contents[int(piece.row["_seq"]) - 1]
        assert piece.text == content[piece.start : piece.start + len(piece.text)]
        assert piece.total == len(content)


def test_a_call_is_described_for_people() -> None:
    assert [RECALL.describe({"rows": "1-2"}), RECALL.describe({"query": "q"})] == [
        "recall 1-2",
        "recall q",
    ]
