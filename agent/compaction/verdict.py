"""What is decided after an attempt: the verdict of a real count, and the end of a prepared pass."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from agent.base.later import later
from agent.compaction.budget import PREPARE_SHARE
from agent.compaction.cooldown import Ending, Health, Outcome, fingerprint, next_health
from agent.compaction.host import CompressionHost
from agent.providers.protocol import TokenUsage
from agent.sessions.records import Guards, PassClosing, PassRecord, PassStatus

if TYPE_CHECKING:
    from agent.compaction import gain
else:
    [gain] = later("agent.compaction", "gain")


def judge_last_pass(
    agent: CompressionHost,
    prompt_tokens: int,
    trigger_tokens: int,
    usage: TokenUsage | None = None,
) -> None:
    """Judge the last committed pass by the first real prompt count that follows it.

    With the whole `usage` of that request, what the pass gained goes on its ledger row.
    """
    health = Health.from_dict(agent.store.health(agent.session_id))
    if not health.awaiting_verdict:
        return
    ending = Ending.INEFFECTIVE if prompt_tokens >= trigger_tokens else Ending.EFFECTIVE
    outcome = Outcome(
        ending=ending,
        at=agent.clock.now(),
        fingerprint=fingerprint(0, prompt_tokens, agent.provider.model),
        floor_tokens=prompt_tokens if prompt_tokens >= PREPARE_SHARE * trigger_tokens else 0,
    )
    _health, guards = next_health(health, outcome)
    noted = {} if usage is None else gain.measured_gain(agent, usage)
    agent.store.settle(agent.session_id, dataclasses.replace(guards, noted=noted))


def guards_after(agent: CompressionHost, outcome: Outcome) -> Guards:
    """Return what an outcome writes about the future of the agent's conversation."""
    health = Health.from_dict(agent.store.health(agent.session_id))
    _health, guards = next_health(health, outcome)
    return guards


def model_switched(at: float) -> Guards:
    """Return the guards of a switch to another model: strikes and brake are void."""
    _health, guards = next_health(Health(), Outcome(ending=Ending.MODEL_SWITCHED, at=at))
    return guards


def guards_of_undo(agent: CompressionHost) -> Guards:
    """Return what an undo or a rewind means for later attempts: no verdict is awaited any more."""
    health = Health.from_dict(agent.store.health(agent.session_id))
    return next_health(health, Outcome(Ending.UNDONE, at=agent.clock.now()))[1]


def discard_prepared(agent: CompressionHost) -> PassRecord | None:
    """Close the prepared pass, if there is one, and return its ledger row."""
    record = agent.store.prepared_pass(agent.session_id)
    if record is None:
        return None
    agent.store.close_pass(PassClosing(record.id, PassStatus.ABORTED, "explicit_interrupt"))
    return agent.store.pass_record(record.id)
