"""The whole policy of failures: which one brakes for how long, and what ends a brake.

Pure. The store keeps the brake and the health record and writes them in the transaction of the
outcome; nothing else decides about them. Readers: `gate`, `ContextCompressor.should_compress`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from enum import StrEnum
from typing import Any

from agent.base.record import dataclass
from agent.sessions.records import Guards

STALL_INTERRUPTED_FAILURE_CLASS = "stall_interrupted"
INEFFECTIVE = "ineffective"
BLOCKED_BY_COOLDOWN = "blocked:cooldown"
BLOCKED_AS_INEFFECTIVE = "blocked:ineffective"
BLOCKED_BY_SPEND = "blocked:spend_limit"
BLOCKED_BY_MEMORY = "blocked:failed_rung"

LADDER_S = (60.0, 300.0, 900.0)
INEFFECTIVE_S = 300.0
STRIKES_TO_BRAKE = 2
MOST_FAILED_RUNGS = 8


@dataclass(frozen=True)
class Backoff:
    """Seconds by how often in a row it happened; the last step stays.

    `counter` is the field of `Health` that counts; empty for a flat backoff. `outlasts_idle`
    raises a step to the idle limit, which the next attempt would otherwise run into again.
    """

    steps_s: tuple[float, ...]
    counter: str = ""
    outlasts_idle: bool = False


_TIMEOUT = Backoff(LADDER_S, "timeouts")
_STALL = Backoff(LADDER_S, "timeouts", outlasts_idle=True)
OTHER = Backoff((60.0,))
BACKOFFS: Mapping[str, Backoff] = {
    "timeout": _TIMEOUT,
    "rate": _TIMEOUT,
    "overload": _TIMEOUT,
    "summary_overload_failure": _TIMEOUT,
    "stalled": _STALL,
    STALL_INTERRUPTED_FAILURE_CLASS: _STALL,
    "summary_truncated_failure": Backoff(LADDER_S, "truncations"),
    "summary_empty_content_failure": Backoff((30.0,)),
    "model_unavailable": Backoff((600.0,)),
}
"""Failure class to backoff; a class that is not listed takes `OTHER`."""

_LEDGER_CLASSES: Mapping[str, str] = {
    "auth": "summary_auth_failure",
    "quota": "summary_auth_failure",
    "rate": "summary_overload_failure",
    "overload": "summary_overload_failure",
    "network": "summary_network_failure",
    "timeout": "summary_network_failure",
    "stalled": "summary_network_failure",
    "content_filter": "summary_generation_aborted",
    "refused": "summary_generation_failed",
    "context_overflow": "summary_generation_failed",
    "model_unavailable": "summary_generation_failed",
    "provider": "summary_generation_failed",
}


def ledger_class(failure_class: str) -> str:
    """Return the word of the ledger for an error's failure class; other words stay."""
    return _LEDGER_CLASSES.get(failure_class, failure_class)


@dataclass(frozen=True)
class FailedRung:
    """A summary that could not be had or used, of which rows and from whom.

    It is not asked for again before `until` unless one of the other fields differs; `pass_id` and
    `failure_class` only tell. `rows` counts the rows from `first_seq` to `last_seq` that it was to
    cover. Units: `until` is Unix epoch seconds.
    """

    first_seq: int
    last_seq: int
    rows: int
    model: str
    route: str
    pass_id: str = ""
    failure_class: str = ""
    until: float = 0.0

    def same_as(self, other: FailedRung) -> bool:
        """Return whether the other asks the same model for a summary of the same rows."""
        mine = (self.first_seq, self.last_seq, self.rows, self.model, self.route)
        return mine == (other.first_seq, other.last_seq, other.rows, other.model, other.route)


@dataclass(frozen=True)
class Health:
    """What a conversation remembers of its passes.

    `timeouts` and `truncations` count failures in a row; `strikes` passes that did not help;
    `awaiting_verdict` says that a pass was committed and no real prompt count came since.
    `floor_tokens` is that first count when it was still near the trigger, else 0; `failed_rungs`
    are the newest summaries that failed, oldest first.
    """

    timeouts: int = 0
    truncations: int = 0
    strikes: int = 0
    awaiting_verdict: bool = False
    floor_tokens: int = 0
    failed_rungs: tuple[FailedRung, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON form; empty for a record in which nothing stands."""
        return {} if self == Health() else dataclasses.asdict(self)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any] | None) -> Health:
        """Return the record of `to_dict`; keys that are missing or unknown do not matter."""
        known = {field.name for field in dataclasses.fields(cls)}
        given = {key: value for key, value in (data or {}).items() if key in known}
        failed = tuple(FailedRung(**each) for each in given.pop("failed_rungs", ()))
        return cls(**given, failed_rungs=failed)

    def failed_in(self, pass_id: str, now: float) -> FailedRung | None:
        """Return the failure of one pass while it is still remembered."""
        for rung in self.failed_rungs:
            if rung.until > now and rung.pass_id == pass_id:
                return rung
        return None

    def failed_before(self, wanted: FailedRung, now: float) -> FailedRung | None:
        """Return the failure because of which a summary is not asked for again yet."""
        for rung in self.failed_rungs:
            if rung.until > now and rung.same_as(wanted):
                return rung
        return None


class Ending(StrEnum):
    """How an attempt ended, or what showed later."""

    COMMITTED = "committed"
    FAILED = "failed"
    """No usable text, a provider's failure, a stalled stop, a store that refused: see the class."""
    NO_PROGRESS = "no_progress"
    """The candidate changed nothing, grew, or would not have helped."""
    CANCELLED = "cancelled"
    """Stopped before it stalled."""
    SUPERSEDED = "superseded"
    EFFECTIVE = "effective"
    """The first real prompt count after a commit is under the trigger."""
    INEFFECTIVE = "ineffective"
    """The first real prompt count after a commit is at or above the trigger."""
    MODEL_SWITCHED = "model_switched"
    REMEMBERED = "remembered"
    """The only rung that would have helped failed before and nothing has changed since."""
    UNDONE = "undone"
    """The view was put back before a real count could judge the last pass."""


@dataclass(frozen=True)
class Outcome:
    """What `next_health` needs to know.

    `failure_class` is an error's own word; on a commit it names why the mechanical digest stood
    in. `fingerprint` comes from `fingerprint()`. `idle_s` is the limit that judges a stall.
    `rung` is the summary that was asked for, if one was; with REMEMBERED the one that failed.
    `floor_tokens` goes into the health record.
    Units: `at` is Unix epoch seconds.
    """

    ending: Ending
    at: float
    failure_class: str = ""
    fingerprint: str = ""
    idle_s: float = 0.0
    manual: bool = False
    rung: FailedRung | None = None
    floor_tokens: int = 0


def fingerprint(messages: int, tokens: int | None, model: str) -> str:
    """Return what was being compacted, for the error text of a brake."""
    return f"msgs={messages}:tokens={'unknown' if tokens is None else tokens}:model={model}"


def next_health(health: Health, outcome: Outcome) -> tuple[Health, Guards]:
    """Return the record after `outcome` and what the store writes with it.

    Guards without a health record leave the stored one.
    """
    return _RULES[outcome.ending](_with_rung(health, outcome), outcome)


def _with_rung(health: Health, outcome: Outcome) -> Health:
    """Return the record with the summary that failed; lapsed ones and the oldest leave."""
    rung, failed = outcome.rung, outcome.ending in (Ending.FAILED, Ending.NO_PROGRESS)
    stood_in = outcome.ending is Ending.COMMITTED and outcome.failure_class
    if rung is None or not (failed or stood_in):
        return health
    until = outcome.at + _step(health, outcome)[1]
    newest = dataclasses.replace(
        rung, failure_class=ledger_class(outcome.failure_class), until=until
    )
    others = [e for e in health.failed_rungs if e.until > outcome.at and not e.same_as(rung)]
    kept = (*others, newest)[-MOST_FAILED_RUNGS:]
    return dataclasses.replace(health, failed_rungs=kept)


def _committed(health: Health, outcome: Outcome) -> tuple[Health, Guards]:
    counters: dict[str, Any] = {} if outcome.failure_class else {"timeouts": 0, "truncations": 0}
    after = dataclasses.replace(health, awaiting_verdict=True, **counters)
    return after, Guards(clear_cooldown=True, health=after.to_dict())


def _failed(health: Health, outcome: Outcome) -> tuple[Health, Guards]:
    counted, seconds = _step(health, outcome)
    health = dataclasses.replace(health, **counted)
    return health, _brake(health, outcome, ledger_class(outcome.failure_class), seconds)


def _step(health: Health, outcome: Outcome) -> tuple[dict[str, Any], float]:
    """Return (counter of the class, raised by one; seconds of the step that it has reached)."""
    backoff = BACKOFFS.get(outcome.failure_class, OTHER)
    step, counted = 0, dict[str, Any]()
    if backoff.counter:
        step = min(getattr(health, backoff.counter), len(backoff.steps_s) - 1)
        counted = {backoff.counter: step + 1}
    seconds = backoff.steps_s[step]
    return counted, max(seconds, outcome.idle_s) if backoff.outlasts_idle else seconds


def _remembered(health: Health, outcome: Outcome) -> tuple[Health, Guards]:
    """Brake until the failure is old enough for a probe."""
    if outcome.rung is None:
        return health, Guards()
    seconds = max(0.0, outcome.rung.until - outcome.at)
    return health, _brake(health, outcome, outcome.rung.failure_class, seconds)


def _no_progress(health: Health, outcome: Outcome) -> tuple[Health, Guards]:
    if outcome.manual:
        return health, Guards(health=health.to_dict()) if outcome.rung else Guards()
    return _strike(health, outcome)


def _ineffective(health: Health, outcome: Outcome) -> tuple[Health, Guards]:
    if not health.awaiting_verdict:
        return health, Guards()
    return _strike(dataclasses.replace(health, awaiting_verdict=False), outcome)


def _effective(health: Health, outcome: Outcome) -> tuple[Health, Guards]:
    if not health.awaiting_verdict:
        return health, Guards()
    after = dataclasses.replace(
        health, awaiting_verdict=False, strikes=0, floor_tokens=outcome.floor_tokens
    )
    return after, Guards(health=after.to_dict())


def _unchanged(health: Health, _outcome: Outcome) -> tuple[Health, Guards]:
    return health, Guards()


def _model_switched(_health: Health, _outcome: Outcome) -> tuple[Health, Guards]:
    return Health(), Guards(clear_cooldown=True, health={})


def _undone(health: Health, _outcome: Outcome) -> tuple[Health, Guards]:
    if not health.awaiting_verdict:
        return health, Guards()
    after = dataclasses.replace(health, awaiting_verdict=False)
    return after, Guards(health=after.to_dict())


def _strike(health: Health, outcome: Outcome) -> tuple[Health, Guards]:
    """Count a strike; the last one brakes and leaves room for one probe afterwards."""
    strikes = health.strikes + 1
    if strikes < STRIKES_TO_BRAKE:
        after = dataclasses.replace(health, strikes=strikes)
        return after, Guards(health=after.to_dict())
    after = dataclasses.replace(health, strikes=STRIKES_TO_BRAKE - 1)
    return after, _brake(after, outcome, INEFFECTIVE, INEFFECTIVE_S)


def _brake(health: Health, outcome: Outcome, failure_class: str, seconds: float) -> Guards:
    return Guards(
        cooldown_until=outcome.at + seconds,
        cooldown_error=f"{failure_class}:{outcome.fingerprint}",
        failure_class=failure_class,
        health=health.to_dict(),
    )


_RULES: Mapping[Ending, Callable[[Health, Outcome], tuple[Health, Guards]]] = {
    Ending.COMMITTED: _committed,
    Ending.FAILED: _failed,
    Ending.NO_PROGRESS: _no_progress,
    Ending.CANCELLED: _unchanged,
    Ending.SUPERSEDED: _unchanged,
    Ending.EFFECTIVE: _effective,
    Ending.INEFFECTIVE: _ineffective,
    Ending.MODEL_SWITCHED: _model_switched,
    Ending.REMEMBERED: _remembered,
    Ending.UNDONE: _undone,
}


class Admission(StrEnum):
    """What an attempt may do."""

    ALLOWED = "allowed"
    MODEL_FREE = "model_free"
    """Only the rungs that call no model."""
    BLOCKED = "blocked"


@dataclass(frozen=True)
class Gate:
    """The answer to a request for an attempt; `failure_class` names the brake when one runs.

    Units: `retry_in_s` is how long the brake still runs; 0 when none does.
    """

    admission: Admission
    failure_class: str = ""
    retry_in_s: float = 0.0


def gate(
    cooldown: Mapping[str, Any] | None,
    now: float,
    *,
    forced: bool = False,
    fits: Callable[[], bool] = lambda: True,
    overspent: bool = False,
) -> Gate:
    """Return whether an attempt may start while `cooldown` (the store's record) may be running.

    `forced` is a person's own request, which no brake stops; `fits`, asked when something does,
    says whether the next request can be sent as it is: when not, the model-free rungs are let in.
    `overspent` says that the spend limit is reached, which stops everybody.
    Units: `now` is Unix epoch seconds; a deadline equal to it counts as passed.
    """
    remaining = float(cooldown["cooldown_until"]) - now if cooldown else 0.0
    if not overspent and (cooldown is None or forced or remaining <= 0):
        return Gate(Admission.ALLOWED)
    refusal = Admission.BLOCKED if fits() else Admission.MODEL_FREE
    if overspent:
        return Gate(refusal, BLOCKED_BY_SPEND)
    ineffective = (cooldown or {}).get("failure_class") == INEFFECTIVE
    return Gate(refusal, BLOCKED_AS_INEFFECTIVE if ineffective else BLOCKED_BY_COOLDOWN, remaining)
