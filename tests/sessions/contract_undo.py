"""What any store must do when a pass is undone and when messages are taken back."""

from __future__ import annotations

import pytest

from agent.base.errors import LeaseLost, PassSuperseded, UndoRefused, UnknownPass, UsageError
from agent.sessions.protocol import SessionStore
from agent.sessions.records import (
    Guards,
    PassClosing,
    PassKind,
    PassRecord,
    PassStatus,
    RowState,
)
from agent.testing.clock import FakeClock
from tests.sessions.steps import (
    SESSION,
    begin,
    contents,
    cover,
    draft,
    mask,
    open_pass,
    summary,
    take_lease,
    talk,
)


def _states(store: SessionStore) -> dict[int, RowState]:
    return {place.message["_row_id"]: place.state for place in store.history(SESSION)}


class UndoContract:
    def test_undo_gives_back_the_exact_view_and_what_came_after(self, store: SessionStore) -> None:
        rows = begin(store, 4)
        mask(store, rows[3])
        before = store.view(SESSION).messages
        cover(store, rows[:2])
        later = store.append(SESSION, talk(2, first=5))
        result = store.undo_pass(SESSION)
        assert result.view == store.view(SESSION)
        assert result.view.messages == [*before, *later]
        assert list(store.check().problems) == []

    def test_undo_of_a_mask_shows_the_whole_row_again(self, store: SessionStore) -> None:
        rows = begin(store, 3)
        before = store.view(SESSION)
        mask(store, rows[1])
        assert store.undo_pass(SESSION).view.messages == before.messages
        assert store.view(SESSION).tokens == before.tokens

    def test_undo_of_an_older_pass_takes_those_that_stand_on_it_first(
        self, store: SessionStore
    ) -> None:
        rows = begin(store, 6)
        first, view = cover(store, rows[:2], "one")
        second, view = cover(store, [view.messages[0], rows[2]], "two")
        beside, _view = mask(store, rows[5])
        result = store.undo_pass(SESSION, first)
        assert [record.target_pass for record in result.ledger] == [second, first]
        assert contents(result.view.messages) == [*contents(rows[:5]), "[left out]"]
        status = {record.id: record.status for record in store.passes(SESSION)}
        undone = PassStatus.UNDONE
        assert (status[first], status[second]) == (undone, undone)
        assert status[beside] is PassStatus.COMMITTED

    def test_passes_that_touch_different_rows_commute(self, store: SessionStore) -> None:
        rows = begin(store, 6)
        first, _view = cover(store, rows[:2], "one")
        _second, _view = cover(store, rows[3:5], "two")
        view = store.undo_pass(SESSION, first).view
        assert contents(view.messages) == [*contents(rows[:3]), "two", "message 6"]

    def test_a_row_masked_and_then_covered_comes_back_in_any_order(
        self, store: SessionStore
    ) -> None:
        rows = begin(store, 3)
        masking, _view = mask(store, rows[0])
        covering, _view = cover(store, rows[:2], seen_masks={rows[0]["_row_id"]: masking})
        store.undo_pass(SESSION, masking)
        assert contents(store.view(SESSION).messages) == ["what happened", "message 3"]
        assert store.undo_pass(SESSION, covering).view.messages == rows

    def test_an_undo_is_one_row_of_the_ledger(self, store: SessionStore, clock: FakeClock) -> None:
        rows = begin(store, 4)
        pass_id, _view = cover(store, rows[:3])
        small = store.view(SESSION)
        clock.advance(7)
        [record] = store.undo_pass(SESSION, pass_id[:12]).ledger
        whole = store.view(SESSION)
        assert record == PassRecord(
            id=record.id,
            conversation_id=store.session(SESSION).conversation_id,
            session_id=SESSION,
            generation=2,
            status=PassStatus.COMMITTED,
            kind=PassKind.UNDO,
            trigger="manual",
            strategy="undo",
            failure_class="",
            detail="",
            count=1,
            watermark=4,
            plan={},
            lease_token=None,
            tokens_before=small.tokens,
            tokens_after=whole.tokens,
            messages_before=2,
            messages_after=4,
            model="",
            route="",
            cost=None,
            durations={},
            receipt={"hidden": "3", "freed": "1-3", "unmasked": ""},
            target_pass=pass_id,
            child_session_id=None,
            created_at=clock.now(),
            finished_at=clock.now(),
        )
        assert store.passes(SESSION)[-1] == record
        assert store.head(SESSION).generation == 2
        assert store.session(SESSION).pass_count == 0

    def test_rows_of_an_undone_pass_stay_in_the_history_and_cover_nothing(
        self, store: SessionStore
    ) -> None:
        rows = begin(store, 2)
        pass_id, view = cover(store, rows)
        store.undo_pass(SESSION)
        assert store.pass_rows(pass_id) == ([], [view.messages[0]])
        assert _states(store)[view.messages[0]["_row_id"]] is RowState.HIDDEN

    def test_what_cannot_be_undone_is_refused_with_the_reason(self, store: SessionStore) -> None:
        rows = begin(store, 2)
        with pytest.raises(UndoRefused, match="'s1' has no compaction in force"):
            store.undo_pass(SESSION)
        pass_id, _view = cover(store, rows)
        lease = take_lease(store)
        failed = open_pass(store, lease)
        store.close_pass(PassClosing(failed, PassStatus.FAILED, "network"))
        [undo] = store.undo_pass(SESSION).ledger
        before = store.view(SESSION), store.passes(SESSION)
        for name, reason in (
            (pass_id, f"was undone already, by pass '{undo.id}'"),
            (undo.id, "is an undo"),
            (failed, "is failed and changed nothing"),
        ):
            with pytest.raises(UndoRefused, match=reason):
                store.undo_pass(SESSION, name)
        with pytest.raises(UnknownPass, match="no compaction pass 'nothing'"):
            store.undo_pass(SESSION, "nothing")
        assert (store.view(SESSION), store.passes(SESSION)) == before

    def test_a_pass_of_another_conversation_is_unknown(self, store: SessionStore) -> None:
        rows = begin(store, 2)
        pass_id, _view = cover(store, rows)
        begin(store, 2, "other")
        with pytest.raises(UnknownPass):
            store.undo_pass("other", pass_id)

    def test_an_undo_takes_the_lease_from_a_running_pass(self, store: SessionStore) -> None:
        rows = begin(store, 4)
        cover(store, rows[:2])
        lease = take_lease(store)
        running = open_pass(store, lease)
        commit = draft(store, lease, running, cover=(rows[2]["_row_id"],), new_row=summary())
        view = store.undo_pass(SESSION).view
        assert store.get_compression_lock_holder(SESSION) is None
        assert not store.refresh_lease(lease)
        with pytest.raises(LeaseLost):
            store.commit_pass(commit, lambda: True)
        with pytest.raises(PassSuperseded, match="already superseded"):
            store.prepare_pass(running, {})
        closing = PassClosing(
            running, PassStatus.ABORTED, "explicit_interrupt", guards=Guards(cooldown_until=9e9)
        )
        store.close_pass(closing)
        assert store.view(SESSION) == view
        assert store.get_compression_failure_cooldown(SESSION) is None
        assert store.pass_record(running).failure_class == "attempt_superseded"

    def test_an_undo_supersedes_a_prepared_pass(self, store: SessionStore) -> None:
        rows = begin(store, 4)
        cover(store, rows[:2])
        lease = take_lease(store)
        prepared = open_pass(store, lease)
        store.prepare_pass(prepared, {"cover": []})
        store.release_lease(lease)
        store.undo_pass(SESSION)
        assert store.prepared_pass(SESSION) is None
        assert store.pass_record(prepared).status is PassStatus.SUPERSEDED

    def test_an_undo_writes_its_guards_and_clears_the_anchor(self, store: SessionStore) -> None:
        rows = begin(store, 2)
        cover(store, rows)
        store.set_usage_anchor(SESSION, {"ratio": 1.25, "prompt": 900})
        store.undo_pass(SESSION, guards=Guards(health={"strikes": 1}))
        assert store.usage_anchor(SESSION) == {"ratio": 1.25}
        assert store.health(SESSION) == {"strikes": 1}


class RewindContract:
    def test_a_rewind_hides_every_row_from_one_on_and_keeps_them(self, store: SessionStore) -> None:
        rows = begin(store, 5)
        result = store.rewind(SESSION, 3)
        assert result.view.messages == rows[:2]
        assert store.accepted_rows(SESSION, 1, 9) == rows[:2]
        [record] = result.ledger
        assert (record.kind, record.status, record.watermark) == (
            PassKind.REWIND,
            PassStatus.COMMITTED,
            5,
        )
        assert record.receipt == {"from_seq": 3, "hidden": "3-5"}
        assert (record.messages_before, record.messages_after) == (5, 2)
        assert store.session(SESSION).pass_count == 0
        hidden = [place.message for place in store.history(SESSION, first_seq=3)]
        assert hidden == rows[2:]
        assert list(store.check().problems) == []

    def test_rows_accepted_after_a_rewind_get_new_seqs(self, store: SessionStore) -> None:
        begin(store, 3)
        store.rewind(SESSION, 2)
        [row] = store.append(SESSION, talk(1, first=9))
        assert row["_seq"] == 4
        assert contents(store.view(SESSION).messages) == ["message 1", "message 9"]

    def test_hidden_rows_are_not_found(self, store: SessionStore) -> None:
        begin(store)
        store.append_message(SESSION, "user", "a walnut")
        store.index_pending()
        store.rewind(SESSION, 1)
        assert store.search("walnut") == []
        assert store.search("walnut", session_id=SESSION) == []

    def test_passes_behind_the_row_are_hidden_with_it_and_come_back(
        self, store: SessionStore
    ) -> None:
        rows = begin(store, 6)
        pass_id, _view = cover(store, rows[3:5])
        before = store.view(SESSION)
        result = store.rewind(SESSION, 3)
        assert contents(result.view.messages) == contents(rows[:2])
        assert store.pass_record(pass_id).status is PassStatus.COMMITTED
        with pytest.raises(UndoRefused, match="no compaction in force"):
            store.undo_pass(SESSION)
        assert store.undo_pass(SESSION, result.ledger[-1].id).view.messages == before.messages

    def test_passes_that_reach_across_the_row_are_undone_first(self, store: SessionStore) -> None:
        rows = begin(store, 6)
        below, _view = cover(store, rows[:2], "below")
        across, view = cover(store, rows[2:4], "across")
        upon, _view = cover(store, [view.messages[1], rows[4]], "upon")
        result = store.rewind(SESSION, 4)
        assert [record.target_pass for record in result.ledger] == [upon, across, None]
        assert contents(result.view.messages) == ["below", "message 3"]
        view = store.undo_pass(SESSION, result.ledger[-1].id).view
        assert contents(view.messages) == ["below", *contents(rows[2:])]
        assert store.pass_record(below).status is PassStatus.COMMITTED

    def test_a_rewind_cannot_be_undone_once_a_row_was_accepted(self, store: SessionStore) -> None:
        begin(store, 4)
        [record] = store.rewind(SESSION, 3).ledger
        store.append(SESSION, talk(1, first=5))
        with pytest.raises(UndoRefused, match="row 5 was accepted since; fork .* up to row 4"):
            store.undo_pass(SESSION, record.id)
        store.fork_session(SESSION, "fork", up_to_seq=4)
        view = store.undo_pass("fork", record.id).view
        assert contents(view.messages) == [f"message {number}" for number in range(1, 5)]
        assert list(store.check().problems) == []

    def test_a_later_rewind_keeps_hidden_what_it_reaches(self, store: SessionStore) -> None:
        rows = begin(store, 6)
        [first] = store.rewind(SESSION, 5).ledger
        [second] = store.rewind(SESSION, 3).ledger
        assert store.undo_pass(SESSION, first.id).view.messages == rows[:2]
        assert store.undo_pass(SESSION, second.id).view.messages == rows

    @pytest.mark.parametrize("seq", [5, 0, -1], ids=["behind the end", "zero", "negative"])
    def test_a_row_that_is_not_there_is_no_row_to_rewind_to(
        self, store: SessionStore, seq: int
    ) -> None:
        begin(store, 4)
        with pytest.raises(UsageError, match=f"from row {seq} on; its rows are 1 to 4"):
            store.rewind(SESSION, seq)

    def test_a_rewind_of_what_is_hidden_already_is_refused(self, store: SessionStore) -> None:
        begin(store, 4)
        store.rewind(SESSION, 2)
        with pytest.raises(UsageError, match="nothing to take back"):
            store.rewind(SESSION, 3)
