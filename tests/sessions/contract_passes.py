"""What any store must do when a pass commits."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from agent.base.errors import (
    PassRefused,
    PassSuperseded,
    UsageError,
)
from agent.base.tokens import estimate_message
from agent.sessions.protocol import SessionStore
from agent.sessions.records import (
    Guards,
    MaskedPlace,
    PassClosing,
    PassCommit,
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
    run_pass,
    summary,
    take_lease,
    talk,
)

OpenStore = Callable[[], SessionStore]


class PassesContract:
    def test_a_summary_stands_at_the_last_place_it_covers(
        self, store: SessionStore, clock: FakeClock
    ) -> None:
        rows = begin(store, 6)
        clock.advance(1)
        pass_id, view = cover(store, [rows[0], rows[1], rows[3]])
        made = view.messages[1]
        text = {"role": "user", "content": "what happened"}
        assert view.messages == [rows[2], made, rows[4], rows[5]]
        assert made == {
            **text,
            "_kind": "summary",
            "_row_id": made["_row_id"],
            "_seq": 4,
            "_tokens": estimate_message(text),
            "_at": clock.now(),
        }
        assert view == store.view(SESSION)
        assert (view.generation, view.watermark) == (1, 6)
        assert view.tokens == sum(message["_tokens"] for message in view.messages)
        assert store.pass_rows(pass_id) == ([rows[0], rows[1], rows[3]], [made])

    def test_a_later_summary_covers_an_earlier_one(self, store: SessionStore) -> None:
        rows = begin(store, 4)
        first, view = cover(store, rows[:2], "one")
        second, view = cover(store, [view.messages[0], rows[2]], "two")
        assert contents(view.messages) == ["two", "message 4"]
        assert contents(store.pass_rows(second)[0]) == ["one", "message 3"]
        assert contents(store.pass_rows(first)[0]) == ["message 1", "message 2"]

    def test_a_summary_may_replace_a_summary_alone(self, store: SessionStore) -> None:
        rows = begin(store, 2)
        _pass_id, view = cover(store, rows, "one")
        _pass_id, view = cover(store, view.messages, "two")
        assert [(row["content"], row["_seq"]) for row in view.messages] == [("two", 2)]
        assert [place.message["content"] for place in store.history(SESSION)] == [
            "message 1",
            "message 2",
            "one",
            "two",
        ]

    def test_rows_after_the_watermark_follow_the_summary(
        self, store: SessionStore, open_store: OpenStore
    ) -> None:
        rows = begin(store, 2)
        lease = take_lease(store)
        pass_id = open_pass(store, lease)
        row_ids = tuple(row["_row_id"] for row in rows)
        commit = draft(store, lease, pass_id, cover=row_ids, new_row=summary())
        late = open_store().append(SESSION, talk(1, first=3))
        view = store.commit_pass(commit, lambda: True)
        assert contents(view.messages) == ["what happened", "message 3"]
        assert view.messages[1:] == late

    def test_a_masked_row_shows_its_stub_and_keeps_its_bytes(self, store: SessionStore) -> None:
        rows = begin(store, 3)
        pass_id, view = mask(store, rows[1], "[left out]", tokens=3)
        shown = {
            **rows[1],
            "content": "[left out]",
            "_tokens": 3,
            "_stub": {"content": "[left out]"},
            "_masked_by": pass_id,
        }
        assert view.messages == [rows[0], shown, rows[2]]
        assert view.tokens == rows[0]["_tokens"] + 3 + rows[2]["_tokens"]
        assert store.view(SESSION) == view
        assert store.accepted_rows(SESSION, 1, 3) == rows

    def test_a_row_is_masked_once(self, store: SessionStore) -> None:
        rows = begin(store, 2)
        mask(store, rows[0])
        with pytest.raises(PassSuperseded, match="masked meanwhile"):
            mask(store, rows[0])

    def test_covering_a_masked_row_asks_for_the_mask_that_was_seen(
        self, store: SessionStore
    ) -> None:
        rows = begin(store, 2)
        mask_id, _view = mask(store, rows[0])
        lease = take_lease(store)
        pass_id = open_pass(store, lease)
        row_id = rows[0]["_row_id"]
        blind = draft(store, lease, pass_id, cover=(row_id,), new_row=summary())
        for commit in (blind, replace(blind, seen_masks={row_id: "another"})):
            with pytest.raises(PassSuperseded, match="masked meanwhile"):
                store.commit_pass(commit, lambda: True)
        view = store.commit_pass(replace(blind, seen_masks={row_id: mask_id}), lambda: True)
        assert contents(view.messages) == ["what happened", "message 2"]
        assert view.tokens == sum(message["_tokens"] for message in view.messages)

    def test_one_pass_masks_and_covers_different_rows(self, store: SessionStore) -> None:
        rows = begin(store, 3)
        place = MaskedPlace(rows[2]["_row_id"], {"content": "[gone]"}, 2)
        _pass_id, view = run_pass(
            store, cover=(rows[0]["_row_id"],), mask=(place,), new_row=summary()
        )
        assert contents(view.messages) == ["what happened", "message 2", "[gone]"]
        assert view.tokens == sum(message["_tokens"] for message in view.messages)

    def test_a_pass_that_touches_nothing_still_is_a_generation(self, store: SessionStore) -> None:
        rows = begin(store, 1)
        _pass_id, view = run_pass(store, kind=PassKind.MASK)
        assert (view.generation, view.messages) == (1, rows)

    def test_pending_rows_are_accepted_by_the_commit(self, store: SessionStore) -> None:
        rows = begin(store, 2)
        pending = tuple(talk(3, first=3))
        _pass_id, view = run_pass(
            store,
            cover=tuple(row["_row_id"] for row in rows),
            pending=pending,
            cover_pending=(0,),
            new_row=summary(),
        )
        assert contents(view.messages) == ["what happened", "message 4", "message 5"]
        assert [row["_seq"] for row in view.messages] == [3, 4, 5]
        assert contents(store.accepted_rows(SESSION, 1, 9)) == [f"message {n}" for n in range(1, 6)]
        assert pending == tuple(talk(3, first=3))
        assert view.tokens == sum(message["_tokens"] for message in view.messages)
        assert store.session(SESSION).message_count == 5

    def test_pending_rows_can_be_covered_all(self, store: SessionStore) -> None:
        begin(store)
        _pass_id, view = run_pass(
            store, pending=tuple(talk(2)), cover_pending=(0, 1), new_row=summary()
        )
        assert [(row["content"], row["_seq"]) for row in view.messages] == [("what happened", 2)]

    def test_pending_rows_are_refused_once_other_rows_were_accepted(
        self, store: SessionStore
    ) -> None:
        rows = begin(store, 2)
        lease = take_lease(store)
        pass_id = open_pass(store, lease)
        commit = draft(
            store,
            lease,
            pass_id,
            cover=(rows[0]["_row_id"],),
            pending=tuple(talk(1, first=3)),
            new_row=summary(),
        )
        store.append_message(SESSION, "user", "meanwhile")
        before = store.view(SESSION)
        with pytest.raises(PassSuperseded, match="3 were accepted"):
            store.commit_pass(commit, lambda: True)
        assert store.view(SESSION) == before

    def test_a_closed_fence_is_asked_first_and_leaves_no_trace(self, store: SessionStore) -> None:
        rows = begin(store, 2)
        lease = take_lease(store)
        pass_id = open_pass(store, lease)
        commit = draft(
            store,
            replace(lease, token=lease.token + 1),
            pass_id,
            cover=(rows[0]["_row_id"],),
            pending=tuple(talk(1)),
            new_row=summary(),
            guards=Guards(cooldown_until=9e9),
        )
        before = store.view(SESSION)
        with pytest.raises(PassRefused):
            store.commit_pass(commit, lambda: False)
        assert store.view(SESSION) == before
        assert store.pass_record(pass_id).status == PassStatus.PLANNED
        assert store.get_compression_failure_cooldown(SESSION) is None

    def test_a_row_that_is_not_live_any_more_supersedes_the_pass(self, store: SessionStore) -> None:
        rows = begin(store, 3)
        cover(store, rows[:1])
        before = store.view(SESSION)
        ledger = store.passes(SESSION)
        for commit_fields in (
            {"cover": (rows[0]["_row_id"], rows[1]["_row_id"]), "new_row": summary()},
            {"mask": (MaskedPlace(rows[0]["_row_id"], {"content": "x"}, 1),)},
            {"cover": (12_345,), "new_row": summary()},
        ):
            lease = take_lease(store)
            pass_id = open_pass(store, lease)
            with pytest.raises(PassSuperseded, match="not live any more"):
                store.commit_pass(draft(store, lease, pass_id, **commit_fields), lambda: True)
            store.close_pass(PassClosing(pass_id, PassStatus.SUPERSEDED, "attempt_superseded"))
            store.release_lease(lease)
        assert store.view(SESSION) == before
        assert store.passes(SESSION)[: len(ledger)] == ledger

    def test_contradictory_commits_are_refused(self, store: SessionStore) -> None:
        rows = begin(store, 2)
        row_id = rows[0]["_row_id"]
        lease = take_lease(store)
        pass_id = open_pass(store, lease)
        place = MaskedPlace(row_id, {"content": "x"}, 1)
        for commit_fields, fault in (
            ({"new_row": summary()}, "covers none"),
            ({"cover": (row_id,), "mask": (place,), "new_row": summary()}, "twice"),
            ({"mask": (place, place)}, "twice"),
            ({"pending": tuple(talk(1)), "cover_pending": (1,), "new_row": summary()}, "pending"),
        ):
            with pytest.raises(UsageError, match=fault):
                store.commit_pass(draft(store, lease, pass_id, **commit_fields), lambda: True)

    def test_a_pass_commits_once(self, store: SessionStore) -> None:
        rows = begin(store, 2)
        lease = take_lease(store)
        pass_id = open_pass(store, lease)
        commit = draft(store, lease, pass_id, cover=(rows[0]["_row_id"],), new_row=summary())
        store.commit_pass(commit, lambda: True)
        with pytest.raises(PassSuperseded, match="already committed"):
            store.commit_pass(commit, lambda: True)

    def test_a_commit_writes_its_guards_and_its_ledger_row(
        self, store: SessionStore, clock: FakeClock
    ) -> None:
        rows = begin(store, 2)
        store.record_compression_failure_cooldown(SESSION, clock.now() + 900, "old")
        lease = take_lease(store)
        created_at = clock.now()
        pass_id = open_pass(store, lease, tokens_before=30, messages_before=2, model="m", route="r")
        clock.advance(2)
        commit = PassCommit(
            pass_id,
            lease,
            PassKind.MECHANICAL,
            "mask,mechanical",
            watermark=2,
            cover=tuple(row["_row_id"] for row in rows),
            new_row=replace(summary(), kind=PassKind.MECHANICAL),
            guards=Guards(clear_cooldown=True, health={"strikes": 0}),
            receipt={"covered": [1, 2]},
            tokens_after=10,
            messages_after=1,
            cost=0.25,
            durations={"total": 2_000},
            failure_class="summary_empty_content_failure",
        )
        view = store.commit_pass(commit, lambda: True)
        assert view.messages[0]["_kind"] == "mechanical"
        assert store.get_compression_failure_cooldown(SESSION) is None
        assert store.health(SESSION) == {"strikes": 0}
        assert store.passes(SESSION) == [
            PassRecord(
                id=pass_id,
                conversation_id=lease.conversation_id,
                session_id=SESSION,
                generation=1,
                status=PassStatus.COMMITTED,
                kind=PassKind.MECHANICAL,
                trigger="manual",
                strategy="mask,mechanical",
                failure_class="summary_empty_content_failure",
                detail="",
                count=1,
                watermark=2,
                plan={},
                lease_token=lease.token,
                tokens_before=30,
                tokens_after=10,
                messages_before=2,
                messages_after=1,
                model="m",
                route="r",
                cost=0.25,
                durations={"total": 2_000},
                receipt={"covered": [1, 2]},
                target_pass=None,
                child_session_id=None,
                created_at=created_at,
                finished_at=clock.now(),
            )
        ]

    def test_states_of_rows_are_those_of_the_view(self, store: SessionStore) -> None:
        rows = begin(store, 5)
        mask(store, rows[4])
        cover(store, rows[:3])
        shown = (RowState.LIVE, RowState.MASKED)
        live = [
            place.message["_row_id"] for place in store.history(SESSION) if place.state in shown
        ]
        assert live == [message["_row_id"] for message in store.view(SESSION).messages]
        assert list(store.check().problems) == []
