"""The gate before an attempt: the OFF switch, an empty view, a running brake, the spend limit."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from agent.base.events import Notice
from agent.base.messages import Message, copy_messages
from agent.compaction.budget import row_tokens, shown_tokens
from agent.compaction.cooldown import BLOCKED_BY_SPEND, Admission, Gate, gate
from agent.compaction.host import AttemptRequest, CompressionHost
from agent.compaction.pins import carried_tokens, choose_pins
from agent.sessions.records import PassRecord, PassStatus, View

_HOUR_S = 3_600.0
_REFUSED = Gate(Admission.BLOCKED)


def inputs_of(view: View, pending: Sequence[Message]) -> list[Message]:
    """Return the rows of the view, which nobody changes, and copies of the pending ones; each has
    its estimate."""
    counted = [{"_tokens": row_tokens(message), **message} for message in copy_messages(pending)]
    return [*view.messages, *counted]


def admit(
    agent: CompressionHost, request: AttemptRequest, inputs: Sequence[Message]
) -> tuple[Gate, PassRecord | None]:
    """Return what the attempt may do, or the ledger row that says why it may not start.

    What was prepared is paid for: to commit it, neither a brake nor the spend limit matters.
    """
    if not agent.settings.compression.enabled:
        return _REFUSED, note_unstarted(agent, request, PassStatus.BLOCKED, "blocked:disabled")
    if not inputs:
        return _REFUSED, note_unstarted(agent, request, PassStatus.SKIPPED, "insufficient_messages")
    fits = partial(_fits, agent, request, inputs)
    answer = _ask(agent, forced=request.force, fits=fits, paid=request.adopt_only)
    if answer.admission is not Admission.BLOCKED:
        return answer, None
    why = _why(agent, answer)
    record = note_unstarted(agent, request, PassStatus.BLOCKED, answer.failure_class, why)
    if record.count == 1:
        agent.emit(Notice(level="warning", text=why))
    return answer, record


def _fits(agent: CompressionHost, request: AttemptRequest, inputs: Sequence[Message]) -> bool:
    """Return whether the next request can be sent without a pass."""
    if request.trigger == "overflow":
        return False
    budget = agent.budget()
    pins, _beyond = choose_pins(agent.store.pins(agent.session_id), budget.pin_tokens)
    return budget.fits(shown_tokens(inputs, budget) + carried_tokens(inputs, pins))


def may_ask_model(agent: CompressionHost) -> bool:
    """Return whether a pass with a summary could start now, nobody forcing it."""
    return agent.settings.compression.enabled and _ask(agent).admission is Admission.ALLOWED


def _ask(
    agent: CompressionHost,
    *,
    forced: bool = False,
    fits: Callable[[], bool] = lambda: True,
    paid: bool = False,
) -> Gate:
    now, limit = agent.clock.now(), agent.settings.compression.spend_limit_per_hour
    counts = limit > 0 and not paid
    return gate(
        agent.store.get_compression_failure_cooldown(agent.session_id),
        now,
        forced=forced or paid,
        fits=fits,
        overspent=counts and agent.store.spent_since(agent.session_id, now - _HOUR_S) >= limit,
    )


def _why(agent: CompressionHost, answer: Gate) -> str:
    if answer.failure_class == BLOCKED_BY_SPEND:
        limit = agent.settings.compression.spend_limit_per_hour
        return (
            f"compaction waits ({answer.failure_class}): summaries of this conversation have cost "
            f"${limit:g} or more in the last hour (compression.spend_limit_per_hour)"
        )
    return (
        f"compaction waits ({answer.failure_class}) for {answer.retry_in_s:.0f} s more; "
        "/compress tries at once"
    )


def note_unstarted(
    agent: CompressionHost,
    request: AttemptRequest,
    status: PassStatus,
    failure_class: str,
    detail: str = "",
) -> PassRecord:
    return agent.store.note_unstarted(
        agent.session_id,
        status=status,
        failure_class=failure_class,
        trigger=request.trigger,
        detail=detail,
    )
