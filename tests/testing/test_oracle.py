"""The oracle finds what it is there to find; each fault is made in the log or in the file."""

from __future__ import annotations

import contextlib
from pathlib import Path

import pytest

from agent.base.messages import wire_message
from agent.sessions.records import NewRow, PassCommit, PassKind, PassOpening
from agent.testing.builders import assistant, call, conversation, result, user
from agent.testing.oracle import Oracle
from agent.testing.stub_reply import RecordedRequest
from agent.testing.transcripts import transcript
from hermes_state import SessionDB

SESSION = "s1"


@pytest.fixture
def oracle(store: SessionDB) -> Oracle:
    store.create_session(SESSION, "test")
    return Oracle(SESSION)


def _compact(store: SessionDB, cover: list[int]) -> None:
    lease = store.acquire_lease(SESSION)
    assert lease is not None
    head = store.head(SESSION)
    store.open_pass(
        PassOpening("p1", SESSION, PassKind.SUMMARY, "manual", head.watermark, lease.token)
    )
    made = NewRow({**user("what happened before"), "_kind": "summary"}, PassKind.SUMMARY)
    store.commit_pass(
        PassCommit(
            "p1",
            lease,
            PassKind.SUMMARY,
            "summarise",
            head.watermark,
            cover=tuple(cover),
            new_row=made,
        ),
        lambda: True,
    )
    store.release_lease(lease)


def test_a_sound_store_passes_before_and_after_a_pass(store: SessionDB, oracle: Oracle) -> None:
    stored = oracle.append(store, transcript(1, messages=40))
    oracle.check_store(store)
    _compact(store, [message["_row_id"] for message in stored[:-1]])
    oracle.append(store, conversation(1))
    oracle.check_store(store)
    oracle.check_union(store)


def test_text_is_expected_as_it_is_after_acceptance(store: SessionDB, oracle: Oracle) -> None:
    oracle.append(store, [user("half \ud83d and \x00"), assistant("ok")])
    oracle.check_store(store)
    assert oracle.accepted[0] == user("half \ufffd and \ufffd")


def test_a_result_in_a_blob_is_compared_whole(store: SessionDB, oracle: Oracle) -> None:
    made = call("read_file", {"path": "big"})
    oracle.append(store, [user("a"), assistant(None, made), result(made, "x日" * 60_000)])
    oracle.check_store(store)


def test_noted_messages_are_compared_by_the_fields_that_are_given(
    store: SessionDB, oracle: Oracle
) -> None:
    store.append_message(SESSION, "user", "hello", name="ann")
    oracle.note(user("hello"))
    oracle.check_store(store)


def test_a_lost_an_invented_and_a_changed_message_are_found(
    store: SessionDB, oracle: Oracle
) -> None:
    oracle.note(user("a"), assistant("b"))
    with pytest.raises(AssertionError, match=r"^number of accepted rows: 0 is not 2"):
        oracle.check_store(store)
    store.append(SESSION, [user("a"), assistant("c")])
    with pytest.raises(AssertionError, match=r"^accepted row 1: .*'c'.* is not .*'b'"):
        oracle.check_store(store)
    with pytest.raises(AssertionError, match=r"^rows that nobody wrote: .*\"c\""):
        oracle.check_union(store)


def test_the_union_ignores_the_order(store: SessionDB, oracle: Oracle) -> None:
    store.append(SESSION, [user("a"), assistant("b")])
    oracle.note(assistant("b"), user("a"))
    oracle.check_union(store)
    oracle.note(user("a"))
    with pytest.raises(AssertionError, match=r"^rows that are lost: "):
        oracle.check_union(store)


def test_a_call_without_result_in_the_view_is_found(store: SessionDB, oracle: Oracle) -> None:
    oracle.append(store, [user("a"), assistant(None, call("f", {}, call_id="t1"))])
    with pytest.raises(AssertionError, match=r"^tool results of the view against its calls"):
        oracle.check_view(store)


def test_rows_that_are_not_the_ones_seen_before_are_found(
    store: SessionDB, oracle: Oracle, tmp_path: Path
) -> None:
    stored = oracle.append(store, conversation(2))
    oracle.check_store(store)
    with contextlib.closing(SessionDB(db_path=tmp_path / "other.db")) as other:
        other.create_session(SESSION, "test")
        other.append(SESSION, [wire_message(message) for message in stored])
        with pytest.raises(AssertionError, match=r"^row ids, seqs and times seen before"):
            oracle.check_store(other)


def _request(*messages: dict[str, object]) -> RecordedRequest:
    return RecordedRequest("POST", "/", {}, b"", 0.0, {"messages": list(messages)})


def test_a_request_is_checked_for_validity_and_the_last_word() -> None:
    oracle = Oracle(SESSION)
    request = _request(user("earlier: a\n\nnow do b"))
    oracle.check_request(request, newest="now do b")
    with pytest.raises(AssertionError, match=r"^the newest request 'a' does not end"):
        oracle.check_request(request, newest="a")
    with pytest.raises(AssertionError, match=r"roles must alternate"):
        oracle.check_request(_request(user("a"), user("b")))


def test_a_rewind_and_its_undo_are_expected_once_they_are_noted(
    store: SessionDB, oracle: Oracle
) -> None:
    stored = oracle.append(store, transcript(1, messages=40))
    _compact(store, [message["_row_id"] for message in stored[:10]])
    [record] = store.rewind(SESSION, 21).ledger
    with pytest.raises(AssertionError, match="seqs of hidden rows against what was taken back"):
        oracle.check_store(store)
    oracle.note_rewind(record.id, 21)
    oracle.check_store(store)
    oracle.check_union(store)
    store.undo_pass(SESSION, record.id)
    with pytest.raises(AssertionError, match="seqs of hidden rows"):
        oracle.check_store(store)
    oracle.note_undo(record.id)
    oracle.check_store(store)


def test_rewinds_hide_what_was_there_when_they_were_made(store: SessionDB, oracle: Oracle) -> None:
    oracle.append(store, [user("a"), assistant("b"), user("c"), assistant("d")])
    for seq in (3, 2):
        oracle.note_rewind(store.rewind(SESSION, seq).ledger[-1].id, seq)
        oracle.append(store, [user(f"instead of {seq}")])
        oracle.check_store(store)
    assert [row["content"] for row in store.view(SESSION).messages] == ["a", "instead of 2"]


def test_a_pass_noted_as_undone_may_cover_nothing(store: SessionDB, oracle: Oracle) -> None:
    stored = oracle.append(store, transcript(1, messages=40))
    _compact(store, [message["_row_id"] for message in stored[:10]])
    oracle.note_undo("p1")
    with pytest.raises(AssertionError, match="rows whose state does not name one pass in force"):
        oracle.check_store(store)
    store.undo_pass(SESSION, "p1")
    oracle.check_store(store)
