"""Recall over the real store: what was put into a blob is read back byte for byte."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from agent.tools.recall import recall, recall_text
from agent.turn.reader import StoredRows

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
