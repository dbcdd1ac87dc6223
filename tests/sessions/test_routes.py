"""What the store keeps of routes to models: learned sizes, and rests that survive a restart."""

from __future__ import annotations

from pathlib import Path

from agent.sessions.routes import FRESH_STRIKES_S, RouteKey, RouteRecord
from agent.testing.clock import FakeClock
from hermes_state import SessionDB

KEY = RouteKey("chat_completions", "https://h/v1", "m")
OTHER = RouteKey("chat_completions", "https://h/v1", "n")


def doubling(strikes: int) -> float:
    return 30.0 * 2.0 ** (strikes - 1)


def test_nothing_is_known_of_a_route_that_was_never_asked(store: SessionDB) -> None:
    assert store.routes.read(KEY) == RouteRecord()


def test_what_is_learned_is_kept_apart_for_each_route_and_across_restarts(
    tmp_path: Path, clock: FakeClock
) -> None:
    store = SessionDB(tmp_path / "a.db", clock=clock)
    at = clock.now()
    store.routes.learn(KEY, window_tokens=8_192, learned_from="listing")
    clock.advance(5)
    store.routes.learn(KEY, takes_images=False)
    learned = store.routes.learn(KEY, output_tokens=1_024)
    assert learned == RouteRecord(8_192, 1_024, False, "listing", at)
    store.close()
    store = SessionDB(tmp_path / "a.db", clock=clock)
    assert (store.routes.read(KEY), store.routes.read(OTHER)) == (learned, RouteRecord())
    newer = store.routes.learn(KEY, window_tokens=4_096, learned_from="overflow")
    assert newer == RouteRecord(4_096, 1_024, False, "overflow", at + 5)
    store.close()


def test_rests_grow_with_each_failure_and_end_with_an_answer(
    store: SessionDB, clock: FakeClock
) -> None:
    rests = []
    for _ in range(3):
        began = clock.now()
        record = store.routes.rest(KEY, "network", began_at=began, seconds=doubling)
        rests.append(record.rested_until - clock.now())
        clock.advance(rests[-1] + 1)
    assert rests == [30, 60, 120]
    store.routes.end_rest(KEY, began_at=clock.now())
    assert store.routes.read(KEY) == RouteRecord(rested_at=began)
    again = store.routes.rest(KEY, "rate", began_at=clock.now(), seconds=doubling)
    assert again == RouteRecord(
        rested_until=clock.now() + 30, rested_at=clock.now(), failure_class="rate", strikes=1
    )


def test_calls_that_fail_together_are_one_failure(store: SessionDB, clock: FakeClock) -> None:
    began = clock.now()
    clock.advance(2)
    first = store.routes.rest(KEY, "network", began_at=began, seconds=doubling)
    clock.advance(2)
    assert store.routes.rest(KEY, "auth", began_at=began, seconds=doubling) == first
    clock.advance(1)
    later = store.routes.rest(KEY, "auth", began_at=clock.now(), seconds=doubling)
    assert (later.strikes, later.failure_class) == (2, "auth")


def test_a_late_answer_does_not_end_a_newer_rest(store: SessionDB, clock: FakeClock) -> None:
    began = clock.now()
    clock.advance(2)
    rested = store.routes.rest(KEY, "network", began_at=began, seconds=doubling)
    store.routes.end_rest(KEY, began_at=began)
    assert store.routes.read(KEY) == rested


def test_a_rest_never_shortens_and_old_failures_are_forgotten(
    store: SessionDB, clock: FakeClock
) -> None:
    store.routes.rest(KEY, "auth", began_at=clock.now(), seconds=lambda _strikes: 1_800)
    until = clock.now() + 1_800
    clock.advance(1)
    rested = store.routes.rest(KEY, "network", began_at=clock.now(), seconds=doubling)
    assert (rested.rested_until, rested.strikes) == (until, 2)
    clock.advance(1_800 + FRESH_STRIKES_S)
    fresh = store.routes.rest(KEY, "network", began_at=clock.now(), seconds=doubling)
    assert (fresh.rested_until - clock.now(), fresh.strikes) == (30, 1)
