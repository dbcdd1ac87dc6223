"""Recall over the real store: what was put into a blob is read back byte for byte."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from agent.tools.recall import recall, recall_text
from agent.turn.reader import StoredRows
from tests.sessions.steps import cover

if TYPE_CHECKING:
    from hermes_state import SessionDB


def test_d17_a_large_result_is_read_back_in_slices_byte_exact(store: SessionDB) -> None:
    """Field report D17: the excerpt names a call that works, and so does each further one."""
    log = "".join(f"{n:06} Zeile mit ü und 漢字\r\n" for n in range(6_000))
    call = {"id": "t1", "type": "function", "function": {"name": "shell", "arguments": "{}"}}
    store.create_session("s1", "test")
    *_, shown = store.append(
        "s1",
        [
            {"role": "user", "content": "run it"},
            {"role": "assistant", "content": None, "tool_calls": [call]},
            {"role": "tool", "tool_call_id": "t1", "name": "shell", "content": log},
        ],
    )
    reference = re.search(r'recall\(rows="(\d+)", offset=(\d+)\)', shown["content"])
    assert reference is not None
    rows, offset = reference[1], int(reference[2])
    assert (rows, log[:offset]) == (str(shown["_seq"]), shown["content"][:offset])
    reader = StoredRows(store, "s1")
    read = log[:offset]
    while offset:
        found = recall(reader, None, rows, offset, 20_000)
        read += found.slices[0].text
        more = re.search(r"offset=(\d+)", found.left_out)
        offset = int(more[1]) if more else 0
    assert read == log


def test_a_search_finds_inside_a_large_result(store: SessionDB) -> None:
    store.create_session("s1", "test")
    text = "filler words here\n" * 6_000 + "the trace id is zq-4711\n" + "more filler\n" * 6_000
    store.append(
        "s1",
        [
            {"role": "user", "content": "before"},
            {"role": "tool", "tool_call_id": "t1", "content": text},
            {"role": "user", "content": "after"},
        ],
    )
    found = recall_text(StoredRows(store, "s1"), query="zq-4711")
    assert re.findall(r"^#(\d+) (\w+)", found, re.MULTILINE) == [
        ("1", "user"),
        ("2", "tool"),
        ("3", "user"),
    ]
    assert "the trace id is zq-4711\n" in found


def _recalled(store: SessionDB, query: str) -> str:
    return recall_text(StoredRows(store, "s1"), query=query)


def test_a_question_finds_what_was_said_in_other_words_whether_indexed_or_not(
    store: SessionDB,
) -> None:
    store.create_session("s1", "test")
    filler = [{"role": "assistant", "content": f"step {n} of the plan is done"} for n in range(60)]
    for indexed in (False, True):
        if indexed:
            store.index_pending()
        else:
            told = {"role": "user", "content": "The staging box has moved to amber7.corp.test."}
            store.append("s1", [*filler, told, *filler])
        assert "amber7.corp.test" in _recalled(store, "where is staging now, after it moved?")
    assert _recalled(store, "unicorn") == "[no row holds a word of 'unicorn'; try others]"


def test_a_question_in_other_words_gets_what_left_the_view(store: SessionDB) -> None:
    store.create_session("s1", "test")
    rows = store.append(
        "s1",
        [
            {"role": "user", "content": "three sentences tops, I read on my phone"},
            {"role": "tool", "tool_call_id": "t1", "content": "login refused for 7f3c91-ab"},
            {"role": "assistant", "content": "Someone could not get in."},
        ],
    )
    store.extract_pending()
    cover(store, rows)
    found = _recalled(store, "currency")
    assert re.findall(r"^#(\d+) ", found, re.MULTILINE) == ["1", "2"]
    assert "three sentences tops" in found
    assert "7f3c91-ab" in found


def test_of_two_answers_the_newer_comes_first_and_what_was_taken_back_never(
    store: SessionDB,
) -> None:
    store.create_session("s1", "test")
    said = [f"The upload limit is {size} MB." for size in (10, 20, 30)]
    seqs = [store.append("s1", [{"role": "user", "content": text}])[0]["_seq"] for text in said]
    assert [hit.message["_seq"] for hit in store.relevant("upload limit", "s1")] == seqs[::-1]
    store.rewind("s1", seqs[2])
    assert [hit.message["_seq"] for hit in store.relevant("upload limit", "s1")] == seqs[1::-1]
    assert [hit.message["_seq"] for hit in store.relevant('"limit is 10"', "s1")] == [seqs[0]]
