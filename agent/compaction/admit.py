"""The gate before an attempt: the OFF switch, an empty view, and a running brake."""

from __future__ import annotations

from collections.abc import Sequence

from agent.base.events import Notice
from agent.base.messages import Message, copy_messages
from agent.compaction.budget import row_tokens, shown_tokens
from agent.compaction.cooldown import Admission, gate
from agent.compaction.host import AttemptRequest, CompressionHost
from agent.sessions.records import PassRecord, PassStatus, View


def copy_inputs(view: View, pending: Sequence[Message]) -> list[Message]:
    """Return copies of the view and the pending rows, each with `_ref`, its index."""
    inputs = copy_messages([*view.messages, *pending])
    for index, message in enumerate(inputs):
        message["_ref"] = index
        message.setdefault("_tokens", row_tokens(message))
    return inputs


def admit(
    agent: CompressionHost, request: AttemptRequest, inputs: Sequence[Message]
) -> tuple[Admission, PassRecord | None]:
    """Return what the attempt may do, or the ledger row that says why it may not start."""
    if not agent.settings.compression.enabled:
        return Admission.BLOCKED, note_unstarted(
            agent, request, PassStatus.BLOCKED, "blocked:disabled"
        )
    if not inputs:
        return Admission.BLOCKED, note_unstarted(
            agent, request, PassStatus.SKIPPED, "insufficient_messages"
        )
    budget = agent.budget()
    answer = gate(
        agent.store.get_compression_failure_cooldown(agent.session_id),
        agent.clock.now(),
        forced=request.force,
        fits=request.trigger != "overflow" and budget.fits(shown_tokens(inputs, budget)),
    )
    if answer.admission is not Admission.BLOCKED:
        return answer.admission, None
    record = note_unstarted(agent, request, PassStatus.BLOCKED, answer.failure_class)
    if record.count == 1:
        agent.emit(
            Notice(
                level="warning",
                text=f"compaction waits ({answer.failure_class}) for "
                f"{answer.retry_in_s:.0f} s more; /compress tries at once",
            )
        )
    return answer.admission, record


def note_unstarted(
    agent: CompressionHost, request: AttemptRequest, status: PassStatus, failure_class: str
) -> PassRecord:
    return agent.store.note_unstarted(
        agent.session_id, status=status, failure_class=failure_class, trigger=request.trigger
    )
