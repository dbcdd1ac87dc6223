"""What any store must do with guards and leases."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from agent.base.errors import LeaseLost
from agent.sessions.protocol import SessionStore
from agent.sessions.records import Guards, PassStatus
from agent.testing.clock import FakeClock
from tests.sessions.steps import SESSION, begin, cover, draft, open_pass, summary, take_lease

OpenStore = Callable[[], SessionStore]


class GuardsContract:
    def test_a_cooldown_ends_by_itself(self, store: SessionStore, clock: FakeClock) -> None:
        begin(store)
        assert store.get_compression_failure_cooldown(SESSION) is None
        until = clock.now() + 60
        store.record_compression_failure_cooldown(SESSION, until, "timeout")
        clock.advance(20)
        assert store.get_compression_failure_cooldown(SESSION) == {
            "cooldown_until": until,
            "remaining_seconds": 40.0,
            "error": "timeout",
            "failure_class": "",
        }
        clock.advance(40)
        assert store.get_compression_failure_cooldown(SESSION) is None

    def test_the_longer_deadline_and_the_newest_error_win(
        self, store: SessionStore, clock: FakeClock
    ) -> None:
        begin(store)
        later, sooner = clock.now() + 900, clock.now() + 60
        store.record_compression_failure_cooldown(SESSION, later, "first")
        store.record_compression_failure_cooldown(SESSION, sooner, "second")
        running = store.get_compression_failure_cooldown(SESSION)
        assert running is not None
        assert (running["cooldown_until"], running["error"]) == (later, "second")

    def test_a_cleared_cooldown_is_gone(self, store: SessionStore, clock: FakeClock) -> None:
        begin(store)
        store.record_compression_failure_cooldown(SESSION, clock.now() + 60)
        store.clear_compression_failure_cooldown(SESSION)
        assert store.get_compression_failure_cooldown(SESSION) is None

    def test_settling_clears_first_then_arms_and_replaces_health(
        self, store: SessionStore, clock: FakeClock
    ) -> None:
        begin(store)
        store.record_compression_failure_cooldown(SESSION, clock.now() + 900, "old")
        until = clock.now() + 30
        store.settle(
            SESSION,
            Guards(
                clear_cooldown=True,
                cooldown_until=until,
                cooldown_error="quota",
                failure_class="quota",
                health={"strikes": 1},
            ),
        )
        running = store.get_compression_failure_cooldown(SESSION)
        assert running == {
            "cooldown_until": until,
            "remaining_seconds": 30.0,
            "error": "quota",
            "failure_class": "quota",
        }
        assert store.health(SESSION) == {"strikes": 1}
        store.settle(SESSION, Guards(clear_cooldown=True))
        assert store.get_compression_failure_cooldown(SESSION) is None
        assert store.health(SESSION) == {"strikes": 1}
        store.settle(SESSION, Guards(health={}))
        assert store.health(SESSION) == {}

    def test_a_commit_forgets_the_usage_anchor_but_its_ratio(self, store: SessionStore) -> None:
        rows = begin(store, 2)
        assert store.usage_anchor(SESSION) == {}
        store.set_usage_anchor(SESSION, {"prompt": 10, "ratio": 1.25})
        assert store.usage_anchor(SESSION) == {"prompt": 10, "ratio": 1.25}
        cover(store, rows)
        assert store.usage_anchor(SESSION) == {"ratio": 1.25}


class LeasesContract:
    def test_one_holder_at_a_time(self, store: SessionStore, open_store: OpenStore) -> None:
        begin(store)
        assert store.get_compression_lock_holder(SESSION) is None
        lease = take_lease(store)
        assert store.get_compression_lock_holder(SESSION) == lease.holder
        assert store.acquire_lease(SESSION) is None
        assert open_store().acquire_lease(SESSION) is None
        store.release_lease(lease)
        store.release_lease(lease)
        assert store.get_compression_lock_holder(SESSION) is None

    def test_the_token_grows_at_each_acquisition_and_survives_release(
        self, store: SessionStore
    ) -> None:
        begin(store)
        tokens = []
        for _round in range(3):
            lease = take_lease(store)
            tokens.append(lease.token)
            store.release_lease(lease)
        assert tokens == [1, 2, 3]

    def test_conversations_have_leases_of_their_own(self, store: SessionStore) -> None:
        begin(store, 0, "a")
        begin(store, 0, "b")
        assert take_lease(store, "a").conversation_id != take_lease(store, "b").conversation_id

    def test_an_expired_lease_is_replaced(self, store: SessionStore, clock: FakeClock) -> None:
        begin(store)
        first = take_lease(store, ttl_s=30.0)
        clock.advance(29)
        assert store.acquire_lease(SESSION) is None
        clock.advance(1)
        assert store.get_compression_lock_holder(SESSION) is None
        second = take_lease(store)
        assert second.token == first.token + 1
        assert not store.refresh_lease(first)
        store.release_lease(first)
        assert store.get_compression_lock_holder(SESSION) == second.holder

    def test_a_refresh_prolongs_by_the_ttl_up_to_the_ceiling(
        self, store: SessionStore, clock: FakeClock
    ) -> None:
        begin(store)
        lease = take_lease(store, ttl_s=30.0, ceiling_s=100.0)
        for _round in range(4):
            clock.advance(24)
            assert store.refresh_lease(lease)
        clock.advance(3.9)
        assert store.get_compression_lock_holder(SESSION) == lease.holder
        clock.advance(0.1)
        assert not store.refresh_lease(lease)
        assert store.get_compression_lock_holder(SESSION) is None

    def test_an_expired_lease_that_nobody_took_still_counts(
        self, store: SessionStore, clock: FakeClock
    ) -> None:
        rows = begin(store, 2)
        lease = take_lease(store, ttl_s=30.0)
        pass_id = open_pass(store, lease)
        clock.advance(31)
        assert store.refresh_lease(lease)
        clock.advance(31)
        commit = draft(store, lease, pass_id, cover=(rows[0]["_row_id"],), new_row=summary())
        assert store.commit_pass(commit, lambda: True).generation == 1

    def test_a_lease_never_guards_appends(self, store: SessionStore, open_store: OpenStore) -> None:
        begin(store)
        take_lease(store)
        open_store().append_message(SESSION, "user", "still here")
        assert store.head(SESSION).watermark == 1

    def test_a_lost_lease_publishes_nothing(self, store: SessionStore, clock: FakeClock) -> None:
        rows = begin(store, 2)
        lease = take_lease(store, ttl_s=30.0)
        pass_id = open_pass(store, lease)
        clock.advance(31)
        take_lease(store)
        before = store.view(SESSION)
        commit = draft(store, lease, pass_id, cover=(rows[0]["_row_id"],), new_row=summary())
        with pytest.raises(LeaseLost):
            store.commit_pass(commit, lambda: True)
        assert store.view(SESSION) == before

    def test_a_released_lease_publishes_and_opens_nothing(self, store: SessionStore) -> None:
        rows = begin(store, 2)
        lease = take_lease(store)
        pass_id = open_pass(store, lease)
        store.release_lease(lease)
        commit = draft(store, lease, pass_id, cover=(rows[0]["_row_id"],), new_row=summary())
        with pytest.raises(LeaseLost):
            store.commit_pass(commit, lambda: True)
        with pytest.raises(LeaseLost):
            open_pass(store, lease)

    def test_taking_a_lease_closes_attempts_that_were_left_planned(
        self, store: SessionStore, clock: FakeClock
    ) -> None:
        begin(store, 2)
        left = open_pass(store, take_lease(store, ttl_s=30.0))
        clock.advance(31)
        lease = take_lease(store)
        record = store.pass_record(left)
        assert (record.status, record.failure_class) == (PassStatus.ABORTED, "crashed")
        assert record.finished_at == clock.now()
        prepared = open_pass(store, lease)
        store.prepare_pass(prepared, {"text": "paid for"})
        store.release_lease(lease)
        take_lease(store)
        assert store.pass_record(prepared).status == PassStatus.PREPARED
