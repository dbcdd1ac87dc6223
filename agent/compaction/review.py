"""What an engine proposed becomes a plan, with what it lost put back, or is refused."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from agent.base.later import later
from agent.base.messages import Message
from agent.base.record import dataclass
from agent.compaction.attempt import reconcile
from agent.compaction.budget import Budget
from agent.compaction.material import Material
from agent.compaction.outcomes import Refused
from agent.compaction.plan import Plan, make_plan
from agent.compaction.verify import judge_candidate
from agent.sessions.records import PassKind, Pin

if TYPE_CHECKING:
    from agent.compaction import conserve
else:
    [conserve] = later("agent.compaction", "conserve")


@dataclass(frozen=True)
class Review:
    """What a candidate is judged by: `material` reads what rows say, `pins` are in each request."""

    material: Callable[[], Material]
    pins: Sequence[Pin]
    budget: Budget
    watermark: int
    preview: bool


def review_candidate(inputs: list[Message], candidate: list[Message], review: Review) -> Plan:
    """Return the plan of a candidate; to a marker, which is short on purpose, and where there is no
    new row, nothing is put back.

    Raises: Refused; CandidateRefused.
    """
    if not candidate:
        raise Refused("empty_transcript")
    changes = reconcile(inputs, candidate)
    if changes.nothing:
        raise Refused("no_progress")
    reason = judge_candidate(inputs, changes, review.budget, review.pins)
    if reason:
        raise Refused(reason)
    receipt: Mapping[str, Any] = {}
    if changes.new_row is not None and changes.kind is not PassKind.MICRO:
        conserved = conserve.conserve(inputs, changes, review.material(), review.budget)
        changes, receipt = conserved.changes, conserved.receipt
    return make_plan(
        inputs,
        changes,
        candidate,
        watermark=review.watermark,
        preview=review.preview,
        conserved=receipt,
    )
