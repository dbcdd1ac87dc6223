"""The events of an attempt; their numbers come from the ledger row and equal what is stored."""

from __future__ import annotations

from agent.base.events import CompactionFinished, CompactionProgress, CompactionStarted, Notice
from agent.compaction.host import CompressionHost
from agent.sessions.records import PassKind, PassRecord, PassStatus


def tell_started(agent: CompressionHost, pass_id: str, trigger: str) -> None:
    """Say that an attempt was admitted; `strategy` names the engine that chooses the rungs."""
    engine = agent.settings.context.engine
    agent.emit(CompactionStarted(pass_id=pass_id, trigger=trigger, strategy=engine))


def tell_progress(agent: CompressionHost, pass_id: str, tokens_out: int, elapsed_s: float) -> None:
    """Say how far the summary has come."""
    agent.emit(
        CompactionProgress(pass_id=pass_id, tokens_out=tokens_out, elapsed_s=round(elapsed_s, 1))
    )


def tell_finished(agent: CompressionHost, ledger: PassRecord) -> None:
    """Report the outcome, and the cause of a failure in words."""
    agent.emit(
        CompactionFinished(
            pass_id=ledger.id,
            status=ledger.status.value,
            failure_class=ledger.failure_class,
            tokens_before=ledger.tokens_before,
            tokens_after=ledger.tokens_after,
            messages_before=ledger.messages_before,
            messages_after=ledger.messages_after,
            duration_ms=ledger.durations.get("total", 0),
            coverage=ledger.receipt.get("coverage"),
        )
    )
    if ledger.status is PassStatus.FAILED and ledger.kind is not PassKind.MICRO:
        agent.emit(
            Notice(
                level="warning",
                text=f"compaction failed ({ledger.failure_class}) and changed nothing: "
                f"{ledger.detail}",
            )
        )
