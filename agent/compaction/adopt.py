"""Whether a pass that an earlier attempt prepared may be committed by this one."""

from __future__ import annotations

from collections.abc import Sequence

from agent.base.messages import Message
from agent.compaction.host import AttemptRequest, CompressionHost
from agent.compaction.pins import choose_pins
from agent.compaction.plan import Plan
from agent.compaction.verify import judge_candidate
from agent.sessions.records import PassRecord


def adoptable_plan(
    agent: CompressionHost, request: AttemptRequest, record: PassRecord, inputs: Sequence[Message]
) -> Plan | None:
    """Return the plan of a prepared pass when it may be committed on the view `inputs` as it is
    now, verified again; None when it is out of date or not what is asked for.

    A preview waits for a person; who wants a preview, or a focus of their own, wants a new text.
    """
    plan = Plan.from_dict(record.plan)
    wanted = (request.force or not plan.preview) and not request.preview and not request.focus
    pending = any("_row_id" not in message for message in inputs)
    if not wanted or pending or not plan.still_holds(inputs):
        return None
    budget = agent.budget()
    pinned, _beyond = choose_pins(agent.store.pins(agent.session_id), budget.pin_tokens)
    refusal = judge_candidate(inputs, plan.changes(inputs), budget, pinned)
    return None if refusal else plan
