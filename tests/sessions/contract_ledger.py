"""What any store must do with the ledger: open, prepare, adopt, close, count, find."""

from __future__ import annotations

import pytest

from agent.base.errors import PassSuperseded, StoreError, UnknownPass, UsageError
from agent.sessions.protocol import SessionStore
from agent.sessions.records import Guards, PassClosing, PassKind, PassStatus
from agent.testing.clock import FakeClock
from tests.sessions.steps import (
    SESSION,
    begin,
    cover,
    draft,
    open_pass,
    run_pass,
    summary,
    take_lease,
)


class LedgerContract:
    def test_only_one_attempt_is_open_at_a_time(self, store: SessionStore) -> None:
        begin(store, 1)
        lease = take_lease(store)
        first = open_pass(store, lease)
        with pytest.raises(StoreError, match=f"'{first}'.*planned"):
            open_pass(store, lease)
        store.prepare_pass(first, {})
        with pytest.raises(StoreError, match=f"'{first}'.*prepared"):
            open_pass(store, lease)
        store.close_pass(PassClosing(first, PassStatus.FAILED, "exception"))
        open_pass(store, lease)

    def test_a_prepared_pass_is_adopted_and_committed_later(self, store: SessionStore) -> None:
        rows = begin(store, 2)
        assert store.prepared_pass(SESSION) is None
        lease = take_lease(store)
        pass_id = open_pass(store, lease)
        store.prepare_pass(pass_id, {"text": "what happened", "cover": [1, 2]})
        store.release_lease(lease)
        prepared = store.prepared_pass(SESSION)
        assert prepared is not None
        assert (prepared.id, prepared.plan) == (
            pass_id,
            {"text": "what happened", "cover": [1, 2]},
        )
        lease = take_lease(store)
        commit = draft(store, lease, pass_id, cover=(rows[0]["_row_id"],), new_row=summary())
        with pytest.raises(PassSuperseded, match="another lease"):
            store.commit_pass(commit, lambda: True)
        store.adopt_pass(pass_id, lease, "turn_start_threshold")
        store.commit_pass(commit, lambda: True)
        record = store.pass_record(pass_id)
        assert (record.status, record.trigger, record.lease_token) == (
            PassStatus.COMMITTED,
            "turn_start_threshold",
            lease.token,
        )
        assert store.prepared_pass(SESSION) is None

    def test_steps_out_of_order_are_refused(self, store: SessionStore) -> None:
        begin(store, 1)
        lease = take_lease(store)
        pass_id = open_pass(store, lease)
        with pytest.raises(PassSuperseded, match="already planned"):
            store.adopt_pass(pass_id, lease, "manual")
        store.close_pass(PassClosing(pass_id, PassStatus.ABORTED, "explicit_interrupt"))
        with pytest.raises(PassSuperseded, match="already aborted"):
            store.prepare_pass(pass_id, {})

    def test_closing_writes_guards_in_the_same_step(
        self, store: SessionStore, clock: FakeClock
    ) -> None:
        begin(store, 1)
        pass_id = open_pass(store, take_lease(store))
        clock.advance(3)
        until = clock.now() + 60
        store.close_pass(
            PassClosing(
                pass_id,
                PassStatus.FAILED,
                "summary_network_failure",
                "connection refused",
                Guards(cooldown_until=until, cooldown_error="network", failure_class="network"),
                cost=0.5,
                durations={"total": 3_000},
            )
        )
        record = store.pass_record(pass_id)
        assert (record.status, record.failure_class, record.detail) == (
            PassStatus.FAILED,
            "summary_network_failure",
            "connection refused",
        )
        assert (record.cost, record.durations, record.finished_at) == (
            0.5,
            {"total": 3_000},
            clock.now(),
        )
        running = store.get_compression_failure_cooldown(SESSION)
        assert running is not None
        assert (running["cooldown_until"], running["failure_class"]) == (until, "network")

    def test_closing_what_is_closed_changes_nothing(
        self, store: SessionStore, clock: FakeClock
    ) -> None:
        begin(store, 1)
        pass_id = open_pass(store, take_lease(store, ttl_s=30.0))
        clock.advance(31)
        take_lease(store)
        crashed = store.pass_record(pass_id)
        guards = Guards(cooldown_until=clock.now() + 60)
        store.close_pass(PassClosing(pass_id, PassStatus.FAILED, "exception", guards=guards))
        assert store.pass_record(pass_id) == crashed
        assert store.get_compression_failure_cooldown(SESSION) is None

    def test_a_pass_cannot_be_closed_as_committed(self, store: SessionStore) -> None:
        begin(store, 1)
        pass_id = open_pass(store, take_lease(store))
        with pytest.raises(UsageError, match="'committed'"):
            store.close_pass(PassClosing(pass_id, PassStatus.COMMITTED, ""))

    def test_attempts_that_never_began_are_counted_by_class(
        self, store: SessionStore, clock: FakeClock
    ) -> None:
        rows = begin(store, 2)
        steps = [("blocked", "blocked:cooldown"), ("skipped", "lock_contended")] * 3
        for number, (status, failure_class) in enumerate(steps):
            clock.advance(1)
            record = store.note_unstarted(
                SESSION,
                status=status,
                failure_class=failure_class,
                trigger="turn_start_threshold",
                detail=f"try {number}",
            )
            assert record == store.pass_record(record.id)
        ledger = [(p.status, p.failure_class, p.count, p.detail) for p in store.passes(SESSION)]
        assert ledger == [
            ("blocked", "blocked:cooldown", 3, "try 4"),
            ("skipped", "lock_contended", 3, "try 5"),
        ]
        cover(store, rows[:1])
        store.note_unstarted(
            SESSION, status="blocked", failure_class="blocked:cooldown", trigger="manual"
        )
        assert [(p.status, p.count) for p in store.passes(SESSION)] == [
            ("blocked", 3),
            ("skipped", 3),
            ("committed", 1),
            ("blocked", 1),
        ]
        with pytest.raises(UsageError, match="'failed'"):
            store.note_unstarted(SESSION, status="failed", failure_class="x", trigger="manual")

    def test_a_failed_attempt_begins_a_new_count(self, store: SessionStore) -> None:
        begin(store, 1)
        for _round in range(2):
            store.note_unstarted(
                SESSION, status="blocked", failure_class="blocked:cooldown", trigger="pre_api"
            )
            lease = take_lease(store)
            pass_id = open_pass(store, lease)
            store.close_pass(PassClosing(pass_id, PassStatus.FAILED, "exception"))
            store.release_lease(lease)
        assert [(p.status, p.count) for p in store.passes(SESSION)] == [
            ("blocked", 1),
            ("failed", 1),
        ] * 2

    def test_a_pass_is_found_by_id_or_unique_prefix(self, store: SessionStore) -> None:
        begin(store, 1)
        ids = [run_pass(store, kind=PassKind.MASK)[0] for _round in range(17)]
        assert store.pass_record(ids[0]).id == store.pass_record(ids[0][:31]).id == ids[0]
        shared = next(c for c in "0123456789abcdef" if sum(i.startswith(c) for i in ids) > 1)
        with pytest.raises(UnknownPass, match=f"'{shared}'"):
            store.pass_record(shared)
        for name in ("", "no-such"):
            with pytest.raises(UnknownPass, match=f"'{name}'"):
                store.pass_record(name)
        for call in (
            lambda: store.prepare_pass("no-such", {}),
            lambda: store.pass_rows("no-such"),
            lambda: store.close_pass(PassClosing("no-such", PassStatus.FAILED, "x")),
        ):
            with pytest.raises(UnknownPass, match="'no-such'"):
                call()

    def test_odd_characters_in_texts_of_the_ledger_do_no_harm(
        self, store: SessionStore, clock: FakeClock
    ) -> None:
        begin(store, 1)
        odd, kept = "a\ud800b\x00c", "a\ufffdb\ufffdc"
        lease = take_lease(store)
        pass_id = open_pass(store, lease)
        store.prepare_pass(pass_id, {"text": odd})
        guards = Guards(cooldown_until=clock.now() + 60, cooldown_error=odd, health={"last": odd})
        store.close_pass(PassClosing(pass_id, PassStatus.FAILED, "exception", odd, guards))
        record = store.pass_record(pass_id)
        assert (record.plan, record.detail) == ({"text": kept}, kept)
        running = store.get_compression_failure_cooldown(SESSION)
        assert running is not None
        assert (running["error"], store.health(SESSION)) == (kept, {"last": kept})
        noted = store.note_unstarted(
            SESSION, status="skipped", failure_class="x", trigger="manual", detail=odd
        )
        assert noted.detail == kept
        store.end_session(SESSION, odd)
        assert store.session(SESSION).end_reason == kept
