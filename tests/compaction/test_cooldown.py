"""The policy of failures, pair by pair."""

from __future__ import annotations

import dataclasses
import itertools

import pytest

from agent.compaction.cooldown import (
    BACKOFFS,
    STALL_INTERRUPTED_FAILURE_CLASS,
    Admission,
    Ending,
    Gate,
    Health,
    Outcome,
    fingerprint,
    gate,
    ledger_class,
    next_health,
)
from agent.sessions.records import Guards

AT = 1_800_000_000.0
PRINT = "msgs=20:tokens=900:model=m"

CLEAN = Health()
STRUCK = Health(strikes=1)
AWAITING = Health(awaiting_verdict=True)
STRUCK_AWAITING = Health(strikes=1, awaiting_verdict=True)
LADDERED = Health(timeouts=2, truncations=1)
HEALTHS = [CLEAN, STRUCK, AWAITING, STRUCK_AWAITING, LADDERED]


def braked(health: Health, failure_class: str, seconds: float) -> tuple[Health, Guards]:
    return health, Guards(
        cooldown_until=AT + seconds,
        cooldown_error=f"{failure_class}:{PRINT}",
        failure_class=failure_class,
        health=health.to_dict(),
    )


def written(health: Health) -> tuple[Health, Guards]:
    return health, Guards(health=health.to_dict())


def committed(health: Health) -> tuple[Health, Guards]:
    return health, Guards(clear_cooldown=True, health=health.to_dict())


def unchanged(health: Health) -> tuple[Health, Guards]:
    return health, Guards()


FORGOTTEN = (CLEAN, Guards(clear_cooldown=True, health={}))

EXPECTED = {
    (CLEAN, Ending.COMMITTED): committed(AWAITING),
    (STRUCK, Ending.COMMITTED): committed(STRUCK_AWAITING),
    (AWAITING, Ending.COMMITTED): committed(AWAITING),
    (STRUCK_AWAITING, Ending.COMMITTED): committed(STRUCK_AWAITING),
    (LADDERED, Ending.COMMITTED): committed(AWAITING),
    (CLEAN, Ending.FAILED): braked(Health(timeouts=1), "summary_network_failure", 60),
    (STRUCK, Ending.FAILED): braked(Health(timeouts=1, strikes=1), "summary_network_failure", 60),
    (AWAITING, Ending.FAILED): braked(
        Health(timeouts=1, awaiting_verdict=True), "summary_network_failure", 60
    ),
    (STRUCK_AWAITING, Ending.FAILED): braked(
        Health(timeouts=1, strikes=1, awaiting_verdict=True), "summary_network_failure", 60
    ),
    (LADDERED, Ending.FAILED): braked(
        Health(timeouts=3, truncations=1), "summary_network_failure", 900
    ),
    (CLEAN, Ending.NO_PROGRESS): written(STRUCK),
    (STRUCK, Ending.NO_PROGRESS): braked(STRUCK, "ineffective", 300),
    (AWAITING, Ending.NO_PROGRESS): written(STRUCK_AWAITING),
    (STRUCK_AWAITING, Ending.NO_PROGRESS): braked(STRUCK_AWAITING, "ineffective", 300),
    (LADDERED, Ending.NO_PROGRESS): written(Health(timeouts=2, truncations=1, strikes=1)),
    (CLEAN, Ending.INEFFECTIVE): unchanged(CLEAN),
    (STRUCK, Ending.INEFFECTIVE): unchanged(STRUCK),
    (AWAITING, Ending.INEFFECTIVE): written(STRUCK),
    (STRUCK_AWAITING, Ending.INEFFECTIVE): braked(STRUCK, "ineffective", 300),
    (LADDERED, Ending.INEFFECTIVE): unchanged(LADDERED),
    (CLEAN, Ending.EFFECTIVE): unchanged(CLEAN),
    (STRUCK, Ending.EFFECTIVE): unchanged(STRUCK),
    (AWAITING, Ending.EFFECTIVE): written(CLEAN),
    (STRUCK_AWAITING, Ending.EFFECTIVE): written(CLEAN),
    (LADDERED, Ending.EFFECTIVE): unchanged(LADDERED),
    (CLEAN, Ending.UNDONE): unchanged(CLEAN),
    (STRUCK, Ending.UNDONE): unchanged(STRUCK),
    (AWAITING, Ending.UNDONE): written(CLEAN),
    (STRUCK_AWAITING, Ending.UNDONE): written(STRUCK),
    (LADDERED, Ending.UNDONE): unchanged(LADDERED),
    **{(health, Ending.CANCELLED): unchanged(health) for health in HEALTHS},
    **{(health, Ending.SUPERSEDED): unchanged(health) for health in HEALTHS},
    **{(health, Ending.REMEMBERED): unchanged(health) for health in HEALTHS},
    **{(health, Ending.MODEL_SWITCHED): FORGOTTEN for health in HEALTHS},
}


def outcome(ending: Ending, failure_class: str = "", **fields) -> Outcome:
    return Outcome(ending, AT, failure_class, PRINT, **fields)


@pytest.mark.parametrize(
    ("health", "ending"),
    list(itertools.product(HEALTHS, Ending)),
    ids=lambda value: value.value if isinstance(value, Ending) else str(value.to_dict()),
)
def test_every_pair_of_health_and_ending(health, ending):
    failure_class = "timeout" if ending is Ending.FAILED else ""
    assert next_health(health, outcome(ending, failure_class)) == EXPECTED[health, ending]


def test_a_first_count_that_is_still_near_the_trigger_is_kept_until_the_next_verdict():
    health, guards = next_health(AWAITING, outcome(Ending.EFFECTIVE, floor_tokens=5_000))
    assert (health, guards) == written(Health(floor_tokens=5_000))
    health = dataclasses.replace(health, awaiting_verdict=True)
    assert next_health(health, outcome(Ending.EFFECTIVE)) == written(CLEAN)


@pytest.mark.parametrize(
    ("failure_class", "seconds"),
    [
        ("timeout", [60, 300, 900, 900]),
        ("rate", [60, 300, 900, 900]),
        ("overload", [60, 300, 900, 900]),
        ("stalled", [60, 300, 900, 900]),
        ("stall_interrupted", [60, 300, 900, 900]),
        ("summary_overload_failure", [60, 300, 900, 900]),
        ("summary_truncated_failure", [60, 300, 900, 900]),
        ("summary_empty_content_failure", [30, 30, 30, 30]),
        ("model_unavailable", [600, 600, 600, 600]),
        ("auth", [60, 60, 60, 60]),
        ("session_split_failed", [60, 60, 60, 60]),
        ("exception:ValueError", [60, 60, 60, 60]),
    ],
)
def test_how_long_a_failure_brakes_the_first_second_third_and_fourth_time(failure_class, seconds):
    health, seen = CLEAN, []
    for _ in range(4):
        health, guards = next_health(health, outcome(Ending.FAILED, failure_class))
        assert guards.cooldown_until is not None
        seen.append(guards.cooldown_until - AT)
    assert seen == seconds


def test_every_listed_failure_class_was_tried_above():
    assert set(BACKOFFS) == {
        "timeout",
        "rate",
        "overload",
        "stalled",
        "stall_interrupted",
        "summary_overload_failure",
        "summary_truncated_failure",
        "summary_empty_content_failure",
        "model_unavailable",
    }


def test_timeouts_and_truncations_climb_ladders_of_their_own():
    health, _ = next_health(CLEAN, outcome(Ending.FAILED, "timeout"))
    health, _ = next_health(health, outcome(Ending.FAILED, "summary_truncated_failure"))
    assert health == Health(timeouts=1, truncations=1)


@pytest.mark.parametrize(("idle_s", "seconds"), [(120, 120), (1, 60), (0, 60)])
def test_a_stall_brakes_at_least_as_long_as_the_silence_that_was_allowed(idle_s, seconds):
    stall = outcome(Ending.FAILED, STALL_INTERRUPTED_FAILURE_CLASS, idle_s=idle_s)
    health, guards = next_health(CLEAN, stall)
    assert (health, guards) == braked(Health(timeouts=1), "stall_interrupted", seconds)


def test_a_digest_that_stood_in_for_a_failure_leaves_the_ladders_where_they_are():
    health, guards = next_health(LADDERED, outcome(Ending.COMMITTED, "summary_auth_failure"))
    assert health == Health(timeouts=2, truncations=1, awaiting_verdict=True)
    assert guards.clear_cooldown is True


def test_a_persons_own_pass_that_did_nothing_is_no_strike():
    assert next_health(STRUCK, outcome(Ending.NO_PROGRESS, manual=True)) == unchanged(STRUCK)


def test_after_the_brake_one_probe_is_enough_to_brake_again():
    health, guards = next_health(STRUCK_AWAITING, outcome(Ending.INEFFECTIVE))
    assert guards.cooldown_until == AT + 300
    health, _ = next_health(health, outcome(Ending.COMMITTED))
    health, guards = next_health(health, outcome(Ending.INEFFECTIVE))
    assert guards.cooldown_until == AT + 300


@pytest.mark.parametrize("health", [*HEALTHS, Health(3, 2, 1, True)], ids=str)
def test_a_health_record_survives_the_store(health):
    assert Health.from_dict(health.to_dict()) == health


def test_a_clean_record_is_empty_and_unknown_keys_do_not_matter():
    assert Health().to_dict() == {}
    assert Health.from_dict(None) == Health.from_dict({}) == CLEAN
    assert Health.from_dict({"strikes": 1, "spend": 3.5}) == STRUCK


def test_the_error_text_names_class_and_size_of_what_was_compacted():
    _, guards = next_health(
        CLEAN,
        Outcome(Ending.FAILED, AT, "overload", fingerprint(20, None, "m")),
    )
    assert guards.cooldown_error == "summary_overload_failure:msgs=20:tokens=unknown:model=m"
    assert fingerprint(3, 90, "m") == "msgs=3:tokens=90:model=m"


@pytest.mark.parametrize(
    ("failure_class", "word"),
    [
        ("auth", "summary_auth_failure"),
        ("quota", "summary_auth_failure"),
        ("network", "summary_network_failure"),
        ("stall_interrupted", "stall_interrupted"),
        ("summary_truncated_failure", "summary_truncated_failure"),
    ],
)
def test_errors_get_the_words_of_the_ledger(failure_class, word):
    assert ledger_class(failure_class) == word


COOLDOWN = {"cooldown_until": AT + 40, "failure_class": "stall_interrupted", "error": "x"}
USELESS = {"cooldown_until": AT + 40, "failure_class": "ineffective", "error": "x"}


@pytest.mark.parametrize(
    ("cooldown", "forced", "fits", "expected"),
    [
        (None, False, True, Gate(Admission.ALLOWED)),
        (COOLDOWN, False, True, Gate(Admission.BLOCKED, "blocked:cooldown", 40)),
        (USELESS, False, True, Gate(Admission.BLOCKED, "blocked:ineffective", 40)),
        (COOLDOWN, False, False, Gate(Admission.MODEL_FREE, "blocked:cooldown", 40)),
        (USELESS, False, False, Gate(Admission.MODEL_FREE, "blocked:ineffective", 40)),
        (COOLDOWN, True, True, Gate(Admission.ALLOWED)),
        (COOLDOWN, True, False, Gate(Admission.ALLOWED)),
        ({"cooldown_until": AT}, False, True, Gate(Admission.ALLOWED)),
        ({"cooldown_until": AT - 1}, False, False, Gate(Admission.ALLOWED)),
    ],
)
def test_what_the_gate_answers(cooldown, forced, fits, expected):
    assert gate(cooldown, AT, forced=forced, fits=lambda: fits) == expected
