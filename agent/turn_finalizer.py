"""What follows a turn before it is told as finished: a micro pass, when it is on and due."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from agent.base.later import later
from agent.base.messages import Message
from agent.compaction.context_compressor import ContextCompressor
from agent.compaction.host import AttemptRequest, CompressionHost

if TYPE_CHECKING:
    from agent import conversation_compression
else:
    [conversation_compression] = later("agent", "conversation_compression")

TRIGGER = "between_turns"


def _micro_compact_after_turn(
    agent: CompressionHost,
    messages: list[Message],
    final_response: str | None,
    logger: logging.Logger,
    task_id: str,
) -> None:
    """Condense one finished exchange of the agent's view, at most one pass; `messages` becomes
    the new view in place when it committed.

    `messages` is the view and may bring pending rows, as in `compress_context`. Nothing happens
    after a turn without an answer, while a brake runs, another pass is under way or one is
    prepared. Never raises: a failure changes nothing, is on the ledger, and is logged.
    """
    if not final_response or getattr(agent, "_persist_disabled", False):
        return
    try:
        if _is_due(agent, messages):
            outcome = conversation_compression.run_attempt(
                agent, messages, AttemptRequest(trigger=TRIGGER, micro=True)
            )
            if outcome.view is not None:
                messages[:] = outcome.view.messages
    except Exception:
        # The turn is over and durable; nothing that follows it may take its answer back.
        logger.exception("the micro pass after turn %s failed and changed nothing", task_id)


def _is_due(agent: CompressionHost, messages: list[Message]) -> bool:
    engine, store, session_id = agent.context_compressor, agent.store, agent.session_id
    if not isinstance(engine, ContextCompressor) or engine._micro_compact_enabled is not True:
        return False
    rows = [message for message in messages if message.get("role") != "system"]
    return (
        agent.settings.compression.enabled
        and engine.micro_is_due(rows, agent.budget())
        and store.get_compression_failure_cooldown(session_id) is None
        and store.get_compression_lock_holder(session_id) is None
        and store.prepared_pass(session_id) is None
    )
