"""How an attempt that did not commit is called: status, class, and what the brake makes of it."""

from __future__ import annotations

from agent.auxiliary_client import AuxiliaryExplicitCancellation
from agent.base.errors import (
    CallCancelled,
    HermesError,
    LeaseLost,
    PassRefused,
    PassSuperseded,
    ProviderError,
    SummaryFailure,
)
from agent.compaction.attempt import CandidateRefused, RungRemembered
from agent.compaction.cooldown import STALL_INTERRUPTED_FAILURE_CLASS, Ending
from agent.sessions.records import PassStatus


class Refused(HermesError):
    """A candidate changes nothing or may not be committed; `reason` is the ledger's word."""

    def __init__(self, reason: str) -> None:
        super().__init__(f"nothing was changed: {reason}")
        self.reason = reason


STOPS = (AuxiliaryExplicitCancellation, CallCancelled, PassRefused)
SETTLED = (
    *STOPS,
    Refused,
    CandidateRefused,
    RungRemembered,
    PassSuperseded,
    LeaseLost,
    ProviderError,
    SummaryFailure,
)
"""What ends an attempt and nothing else: the view is unchanged and the caller goes on."""


def classify(error: BaseException, *, stalled: bool) -> tuple[PassStatus, str, Ending]:
    """Return (status, failure class, ending) of what ended an attempt.

    `stalled` says whether the attempt had been silent for the idle limit when it was stopped.
    """
    if isinstance(error, STOPS):
        if stalled:
            return PassStatus.ABORTED, STALL_INTERRUPTED_FAILURE_CLASS, Ending.FAILED
        word = error.failure_class if isinstance(error, PassRefused) else "explicit_interrupt"
        return PassStatus.ABORTED, word, Ending.CANCELLED
    if isinstance(error, Refused):
        return PassStatus.ABORTED, error.reason, Ending.NO_PROGRESS
    if isinstance(error, CandidateRefused):
        return PassStatus.ABORTED, error.failure_class, Ending.NO_PROGRESS
    if isinstance(error, RungRemembered):
        return PassStatus.ABORTED, error.failure_class, Ending.REMEMBERED
    if isinstance(error, PassSuperseded):
        return PassStatus.SUPERSEDED, error.failure_class, Ending.SUPERSEDED
    if isinstance(error, LeaseLost):
        return PassStatus.ABORTED, error.failure_class, Ending.SUPERSEDED
    if isinstance(error, HermesError):
        return PassStatus.FAILED, error.failure_class, Ending.FAILED
    if isinstance(error, KeyboardInterrupt):
        return PassStatus.ABORTED, "explicit_interrupt", Ending.CANCELLED
    return PassStatus.FAILED, f"exception:{type(error).__name__}", Ending.FAILED
