"""What any store must do with rows: accept, keep whole, read back."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from agent.base.errors import StoreError, UsageError
from agent.base.tokens import estimate_message
from agent.sessions.live import LiveView
from agent.sessions.protocol import SessionStore
from agent.sessions.records import Head, RowState, View
from agent.testing.clock import FakeClock
from tests.sessions.steps import LARGE, SESSION, begin, contents, cover, mask, talk

OpenStore = Callable[[], SessionStore]


class RowsContract:
    def test_accepted_messages_come_back_with_their_identity(
        self, store: SessionStore, clock: FakeClock
    ) -> None:
        begin(store)
        given = talk(3)
        stored = store.append(SESSION, given)
        assert [row["_seq"] for row in stored] == [1, 2, 3]
        assert len({row["_row_id"] for row in stored}) == 3
        assert [row["_tokens"] for row in stored] == [estimate_message(m) for m in given]
        assert {row["_at"] for row in stored} == {clock.now()}
        assert store.view(SESSION).messages == stored
        assert given == talk(3)

    def test_seqs_go_on_and_each_conversation_has_its_own(self, store: SessionStore) -> None:
        begin(store, 2, "a")
        begin(store, 1, "b")
        store.append_message("a", "user", "x")
        assert [row["_seq"] for row in store.view("a").messages] == [1, 2, 3]
        assert [row["_seq"] for row in store.view("b").messages] == [1]

    def test_appending_nothing_changes_nothing(self, store: SessionStore) -> None:
        begin(store, 1)
        assert store.append(SESSION, []) == []
        assert store.head(SESSION) == Head(0, 1)

    def test_one_bad_message_keeps_the_whole_batch_out(self, store: SessionStore) -> None:
        begin(store)
        with pytest.raises(UsageError, match="role"):
            store.append(SESSION, [*talk(2), {"content": "no role"}])
        assert store.view(SESSION).messages == []

    def test_a_single_message_may_carry_further_fields(self, store: SessionStore) -> None:
        begin(store)
        row_id = store.append_message(SESSION, "tool", "done", tool_call_id="c1", name="shell")
        row = store.view(SESSION).messages[0]
        assert row["_row_id"] == row_id
        assert (row["role"], row["tool_call_id"], row["name"]) == ("tool", "c1", "shell")

    def test_keys_of_the_store_are_not_taken_from_the_caller(self, store: SessionStore) -> None:
        begin(store)
        message = {
            "role": "user",
            "content": "x",
            "_row_id": 99,
            "_seq": 7,
            "_tokens": 1_000_000,
            "_at": 1.0,
            "_kind": "summary",
            "_ref": 3,
        }
        (row,) = store.append(SESSION, [message])
        assert row == store.view(SESSION).messages[0]
        assert (row["_seq"], row["_tokens"]) == (1, estimate_message(message))
        assert "_kind" not in row

    def test_lone_surrogates_and_nul_become_the_replacement_character(
        self, store: SessionStore
    ) -> None:
        begin(store)
        store.append_message(SESSION, "user", "a\ud800b\x00c", name="n\udfff")
        row = store.view(SESSION).messages[0]
        assert (row["content"], row["name"]) == ("a\ufffdb\ufffdc", "n\ufffd")

    def test_the_view_knows_its_head_and_total(self, store: SessionStore) -> None:
        rows = begin(store, 3)
        conversation_id = store.session(SESSION).conversation_id
        tokens = sum(row["_tokens"] for row in rows)
        assert store.view(SESSION) == View(conversation_id, 0, 3, rows, tokens)
        assert store.view(SESSION).head == store.head(SESSION) == Head(0, 3)

    def test_rows_after_a_seq_are_the_newer_live_ones(self, store: SessionStore) -> None:
        rows = begin(store, 4)
        assert store.rows_after(SESSION, 2) == rows[2:]
        assert store.rows_after(SESSION, 4) == []

    def test_another_store_on_the_same_data_reads_the_same(
        self, store: SessionStore, open_store: OpenStore
    ) -> None:
        rows = begin(store, 3)
        other = open_store()
        assert other.view(SESSION).messages == rows
        other.append_message(SESSION, "user", "from there")
        assert contents(store.rows_after(SESSION, 3)) == ["from there"]

    def test_history_shows_every_place_and_its_state(self, store: SessionStore) -> None:
        rows = begin(store, 4)
        mask_id, _view = mask(store, rows[3])
        pass_id, view = cover(store, rows[:2])
        made = view.messages[0]
        places = [
            (place.message["_row_id"], place.state, place.compacted_by, place.made_by)
            for place in store.history(SESSION)
        ]
        assert places == [
            (rows[0]["_row_id"], RowState.COMPACTED, pass_id, None),
            (rows[1]["_row_id"], RowState.COMPACTED, pass_id, None),
            (made["_row_id"], RowState.LIVE, None, pass_id),
            (rows[2]["_row_id"], RowState.LIVE, None, None),
            (rows[3]["_row_id"], RowState.MASKED, None, None),
        ]
        assert view.messages[2]["_masked_by"] == mask_id
        assert contents([place.message for place in store.history(SESSION)])[-1] == "message 4"
        seqs = [p.message["_seq"] for p in store.history(SESSION, first_seq=2, last_seq=3)]
        assert seqs == [2, 2, 3]

    def test_accepted_rows_leave_out_what_passes_made(self, store: SessionStore) -> None:
        rows = begin(store, 4)
        cover(store, rows[:2])
        assert store.accepted_rows(SESSION, 1, 99) == rows
        assert store.accepted_rows(SESSION, 2, 3) == rows[1:3]

    def test_a_live_view_follows_appends_and_passes_of_others(
        self, store: SessionStore, open_store: OpenStore
    ) -> None:
        rows = begin(store, 3)
        live = LiveView(store, SESSION)
        other = open_store()
        other.append(SESSION, talk(2, first=4))
        store.append(SESSION, talk(1, first=6))
        live.refresh()
        assert contents(live.messages) == [f"message {number}" for number in range(1, 7)]
        cover(other, rows)
        store.append(SESSION, talk(1, first=7))
        live.refresh()
        view = store.view(SESSION)
        assert (live.messages, live.tokens, live.head) == (view.messages, view.tokens, view.head)

    def test_what_a_live_view_hands_out_stays_as_it_was(self, store: SessionStore) -> None:
        rows = begin(store, 2)
        live = LiveView(store, SESSION)
        seen = live.view()
        seen.messages.clear()
        later = store.append(SESSION, talk(1, first=3))
        assert live.messages == rows
        assert live.view() == store.view(SESSION)
        assert live.messages == [*rows, *later]

    def test_a_live_view_adopts_what_a_commit_returns(self, store: SessionStore) -> None:
        rows = begin(store, 3)
        live = LiveView(store, SESSION)
        _pass_id, view = cover(store, rows[:2])
        live.adopt(view)
        store.append(SESSION, talk(1, first=4))
        live.refresh()
        assert live.messages == store.view(SESSION).messages
        assert live.tokens == store.view(SESSION).tokens


class BlobsContract:
    def test_a_large_tool_result_is_shown_as_an_excerpt_and_kept_whole(
        self, store: SessionStore
    ) -> None:
        begin(store, 1)
        given = {"role": "tool", "tool_call_id": "c", "content": LARGE}
        (row,) = store.append(SESSION, [given])
        offset = int(row["content"].partition('recall(rows="2", offset=')[2].partition(")")[0])
        assert 5_900 < offset <= 6_000
        assert row["content"].startswith(LARGE[:offset])
        assert row["content"].endswith(LARGE[-1_900:])
        assert len(row["content"]) < 8_300
        assert row["_tokens"] == estimate_message(row)
        assert store.view(SESSION).messages[1] == row
        assert store.view(SESSION).tokens == sum(
            message["_tokens"] for message in store.view(SESSION).messages
        )
        assert contents(store.accepted_rows(SESSION, 2, 2)) == [LARGE]
        assert store.history(SESSION)[1].message["content"] == LARGE
        assert "_blob" not in store.accepted_rows(SESSION, 2, 2)[0]

    def test_a_blob_is_read_in_slices_of_bytes(self, store: SessionStore) -> None:
        begin(store)
        text = LARGE + "ü" * 10
        (row,) = store.append(SESSION, [{"role": "tool", "tool_call_id": "c", "content": text}])
        data = text.encode()
        assert store.blob(row["_blob"]) == data
        assert store.blob(row["_blob"], 100, 50) == data[100:150]
        assert store.blob(row["_blob"], len(data) - 3) == data[-3:]
        with pytest.raises(StoreError, match="'no-such'"):
            store.blob("no-such")

    @pytest.mark.parametrize(
        ("role", "content", "is_excerpt"),
        [
            ("tool", "x" * 65_536, False),
            ("tool", "x" * 65_537, True),
            ("tool", "ü" * 32_768, False),
            ("tool", "ü" * 32_769, True),
            ("user", "x" * 100_000, False),
            ("assistant", "x" * 100_000, False),
        ],
        ids=["at-limit", "over-limit", "two-byte-at", "two-byte-over", "user", "assistant"],
    )
    def test_only_tool_results_over_64_kib_become_blobs(
        self, store: SessionStore, role: str, content: str, is_excerpt: bool
    ) -> None:
        begin(store)
        store.append(SESSION, [{"role": role, "content": content}])
        (row,) = store.view(SESSION).messages
        assert ("_blob" in row) is is_excerpt
        assert (row["content"] == content) is not is_excerpt
        assert contents(store.accepted_rows(SESSION, 1, 1)) == [content]

    def test_a_pass_reads_what_it_covered_whole(self, store: SessionStore) -> None:
        begin(store)
        rows = store.append(SESSION, [{"role": "tool", "tool_call_id": "c", "content": LARGE}])
        pass_id, view = cover(store, rows)
        covered, made = store.pass_rows(pass_id)
        assert contents(covered) == [LARGE]
        assert made == view.messages
