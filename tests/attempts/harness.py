"""An agent whose engine is a plain function, and what can be seen of its store."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from agent.auxiliary_client import AuxiliaryExplicitCancellation
from agent.base.messages import Message, wire_message
from agent.base.settings import CompressionSettings, Settings
from agent.conversation_compression import CompressionCommitFence
from agent.testing.builders import user
from agent.testing.scripted import ScriptedProvider
from hermes_state import SessionDB
from run_agent import AIAgent

IDLE_S = 30.0
"""The idle limit of the agents; longer than any test takes."""
CEILING_S = 300.0
"""Their total limit."""
SUMMARY = [user("[notes] the first eighteen messages were small talk"), user("m19")]


def make_agent(db: SessionDB, session_id: str = "s", **options: Any) -> AIAgent:
    settings = Settings(
        compression=CompressionSettings(
            context_timeout_seconds=IDLE_S, context_total_ceiling_seconds=CEILING_S
        )
    )
    given: dict[str, Any] = {"provider": ScriptedProvider(), "settings": settings} | options
    agent = AIAgent(session_db=db, session_id=session_id, skip_memory=True, **given)
    db.create_session(session_id, source="test")
    agent.context_compressor.threshold_tokens = 1_000
    return agent


def messages() -> list[Message]:
    return [user(f"m{index}") for index in range(20)]


def use_engine(agent: AIAgent, compress: Callable[..., list[Message]]) -> list[dict[str, Any]]:
    """Replace the engine's `compress` on the instance and return the list of its calls."""
    calls: list[dict[str, Any]] = []

    def recorded(rows: list[Message], **options: Any) -> list[Message]:
        calls.append(options)
        return compress(rows, **options)

    agent.context_compressor.compress = recorded
    return calls


def stop_after(idle_s: float, fence: CompressionCommitFence) -> Any:
    def compress(rows: list[Message], **_options: Any) -> list[Message]:
        rows[0]["content"] = "changed by the engine"
        fence._last_progress = fence._clock.monotonic() - idle_s
        raise AuxiliaryExplicitCancellation

    return compress


def state_of(db: SessionDB, session_id: str = "s") -> dict[str, Any]:
    return {
        "view": [wire_message(row) for row in db.view(session_id).messages],
        "head": db.head(session_id),
        "holder": db.get_compression_lock_holder(session_id),
        "cooldown": db.get_compression_failure_cooldown(session_id),
    }
