"""Compaction of a conversation that its provider keeps: asked for, recorded, never done here.

An automatic attempt is blocked: the provider compacts by itself, or was told not to.
"""

from __future__ import annotations

from agent.base.cancel import CancelToken
from agent.base.errors import ProviderError
from agent.compaction.admit import note_unstarted
from agent.compaction.host import Attempted, AttemptRequest, CompressionHost
from agent.compaction.report import tell_finished
from agent.providers.protocol import CallWatch, KeepsHistory, Limits
from agent.sessions.records import NativePass, PassRecord, PassStatus, View


def compact_at_provider(
    agent: CompressionHost, keeper: KeepsHistory, request: AttemptRequest
) -> Attempted:
    """Let the provider compact its own thread when a person asks for it; the view stays as it is.

    Raises: CallCancelled.
    """
    ledger = _attempt(agent, keeper, request)
    agent.publish_pass(ledger)
    return Attempted(ledger)


def _attempt(agent: CompressionHost, keeper: KeepsHistory, request: AttemptRequest) -> PassRecord:
    compression = agent.settings.compression
    if not compression.enabled:
        return note_unstarted(agent, request, PassStatus.BLOCKED, "blocked:disabled")
    if request.trigger != "manual" or request.preview or request.adopt_only:
        failure_class = f"codex_auto_{compression.codex_app_server_auto}"
        return note_unstarted(agent, request, PassStatus.BLOCKED, failure_class)
    view = agent.store.view(agent.session_id)
    standing = [row for row in view.messages if row.get("_generation") == view.generation]
    watch = CallWatch(cancel=request.cancel or CancelToken())
    limits = Limits(total_s=compression.context_total_ceiling_seconds, retries=0)
    try:
        failure_class = keeper.compact(standing, limits=limits, watch=watch)
    except ProviderError:
        failure_class = "codex_compaction_failed"
    if failure_class:
        return note_unstarted(agent, request, PassStatus.SKIPPED, failure_class)
    return _record(agent, view)


def _record(agent: CompressionHost, view: View) -> PassRecord:
    """Write the ledger row: what the thread holds now only the provider knows."""
    store, count = agent.store, len(view.messages)
    brought = NativePass(
        generation=view.generation,
        tokens_before=None,
        tokens_after=None,
        messages_before=count,
        messages_after=count,
        model=agent.provider.model,
        route=agent.provider.route,
        trigger="manual",
    )
    store.append(agent.session_id, [], brought)
    ledger = store.passes(agent.session_id)[-1]
    tell_finished(agent, ledger)
    return ledger
