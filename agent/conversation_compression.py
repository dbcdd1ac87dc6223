"""One compaction attempt from admission to settlement: `compress_context` and `run_attempt`.

Five steps: admit, plan and summarise (inside the engine), verify, commit, and the settlement that
is part of the outcome's own transaction. An attempt changes nothing that it is given and hands back
a value, so nothing ever has to be rolled back. Read next: `agent/compaction/context_compressor.py`
(the built-in engine), `agent/sessions/commit.py` (the transaction).
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Sequence
from dataclasses import field
from functools import cache, partial

from agent.base.errors import UsageError
from agent.base.ids import new_pass_id, new_session_id
from agent.base.messages import Message, copy_messages
from agent.base.record import dataclass
from agent.base.settings import CompressionSettings
from agent.compaction.admit import admit, inputs_of, note_unstarted
from agent.compaction.adopt import adoptable_plan
from agent.compaction.attempt import (
    AttemptContext,
    RungRemembered,
    SummaryClient,
    Tally,
    never_failed,
)
from agent.compaction.budget import row_tokens
from agent.compaction.cooldown import (
    STALL_INTERRUPTED_FAILURE_CLASS,
    Admission,
    Ending,
    FailedRung,
    Gate,
    Health,
    Outcome,
    fingerprint,
    ledger_class,
)
from agent.compaction.fence import CompressionCommitFence
from agent.compaction.gain import expected_gain
from agent.compaction.host import Attempted, AttemptRequest, CompressionHost
from agent.compaction.kept import compact_at_provider
from agent.compaction.material import read_material
from agent.compaction.outcomes import SETTLED, classify
from agent.compaction.pins import carried_tokens, choose_pins
from agent.compaction.plan import Plan
from agent.compaction.report import tell_finished, tell_progress, tell_started
from agent.compaction.review import Review, review_candidate
from agent.compaction.run import hand_over, raise_if_ended, run_engine
from agent.compaction.verdict import guards_after
from agent.providers.protocol import KeepsHistory
from agent.sessions.records import (
    NO_GUARDS,
    Guards,
    Lease,
    PassClosing,
    PassKind,
    PassOpening,
    PassRecord,
    PassStatus,
    View,
)

LEASE_GRACE_S = 60.0
_LEASE_REFRESH_S = 60.0
_PROGRESS_S = 1.0
_ROTATING = frozenset({PassKind.SUMMARY, PassKind.MECHANICAL})
"""Kinds that give the conversation a new session when `compression.in_place` is off."""

__all__ = [
    "STALL_INTERRUPTED_FAILURE_CLASS",
    "CompressionCommitFence",
    "compress_context",
    "compression_attempt_stalled",
    "resolve_context_compression_timeouts",
]


def resolve_context_compression_timeouts(
    compression_cfg: CompressionSettings | None = None,
) -> tuple[float, float]:
    """Return (idle, total) limits of an attempt in seconds; None takes the defaults.

    The total is never shorter than the idle limit.
    """
    settings = compression_cfg or CompressionSettings()
    idle_s = settings.context_timeout_seconds
    return idle_s, max(settings.context_total_ceiling_seconds, idle_s)


def compression_attempt_stalled(
    *,
    commit_fence: CompressionCommitFence | None,
    started_at: float,
    idle_timeout_seconds: float | None = None,
) -> bool:
    """Return whether nothing had arrived for the idle limit when the attempt was stopped.

    With a fence its clock decides, which a cancel freezes; without one the time since
    `started_at` (monotonic seconds). An idle limit of 0 or less disables the judgement.
    """
    idle_s = idle_timeout_seconds
    if idle_s is None:
        idle_s, _total = resolve_context_compression_timeouts()
    if idle_s <= 0:
        return False
    if commit_fence is not None:
        return commit_fence.seconds_since_progress() >= idle_s
    return time.monotonic() - started_at >= idle_s


def compress_context(
    agent: CompressionHost,
    messages: list[Message],
    system_message: str,
    *,
    approx_tokens: int | None = None,
    focus_topic: str | None = None,
    force: bool = False,
    commit_fence: CompressionCommitFence | None = None,
    trigger: str | None = None,
) -> tuple[list[Message], str]:
    """Try one pass and return (messages, system prompt): the new view, or the input unchanged.

    The plan starts from the store's view; messages without `_row_id` are pending rows, accepted by
    the commit or not at all. The caller's list and dicts are never touched. Whether a pass is due
    is the caller's business; only guards can refuse it.
    Raises: what a broken engine raises; StoreError when the outcome cannot be made durable.
    """
    request = AttemptRequest(
        trigger=trigger or ("manual" if force else "unknown"),
        force=force,
        focus=focus_topic,
        current_tokens=approx_tokens,
        fence=commit_fence,
    )
    outcome = run_attempt(agent, messages, request)
    if outcome.view is None:
        return messages, system_message
    return copy_messages(outcome.view.messages), system_message


def run_attempt(
    agent: CompressionHost, messages: Sequence[Message], request: AttemptRequest
) -> Attempted:
    """Run one attempt and return its ledger row, with the new view when it committed.

    `messages` may bring pending rows; the product itself accepts rows first and passes none.
    Raises: as `compress_context`.
    """
    store, keeper = agent.store, agent.provider
    if isinstance(keeper, KeepsHistory):
        return compact_at_provider(agent, keeper, request)
    view = agent.live.view()
    pending = [
        message
        for message in messages
        if "_row_id" not in message and message.get("role") != "system"
    ]
    inputs = inputs_of(view, pending)
    answer, refusal = admit(agent, request, inputs)
    if refusal is not None:
        agent.publish_pass(refusal)
        return Attempted(refusal)
    _idle_s, total_s = resolve_context_compression_timeouts(agent.settings.compression)
    lease = store.acquire_lease(agent.session_id, ceiling_s=total_s + LEASE_GRACE_S)
    if lease is None:
        contended = note_unstarted(agent, request, PassStatus.SKIPPED, "lock_contended")
        agent.publish_pass(contended)
        return Attempted(contended)
    fence = request.fence or CompressionCommitFence(clock=agent.clock)
    if total_s > 0 and not request.preview:
        fence.set_total_ceiling_seconds(total_s)
    agent.fences.append(fence)
    unlink = request.cancel.on_cancel(fence.stop) if request.cancel is not None else None
    ended: list[PassRecord] = []
    try:
        attempt = _Attempt(agent, request, fence, lease, view, pending, inputs, ended)
        return attempt.run(answer)
    finally:
        agent.fences.remove(fence)
        if unlink is not None:
            unlink()
        store.release_lease(lease)
        for row in ended:
            agent.publish_pass(row, focused=request.focus is not None)


def commit_prepared(agent: CompressionHost) -> Attempted:
    """Commit the conversation's prepared pass without a second summary.

    Raises: UsageError when none is prepared. One that no longer fits the view ends superseded.
    """
    if agent.store.prepared_pass(agent.session_id) is None:
        raise UsageError(f"session {agent.session_id!r} has no prepared pass; run a preview first")
    return run_attempt(agent, [], AttemptRequest(trigger="manual", force=True, adopt_only=True))


@dataclass
class _Attempt:
    """One admitted attempt, under its lease."""

    agent: CompressionHost
    request: AttemptRequest
    fence: CompressionCommitFence
    lease: Lease
    view: View
    pending: Sequence[Message]
    inputs: list[Message]
    ended: list[PassRecord]
    pass_id: str = field(default_factory=new_pass_id)
    started_at: float = field(default_factory=time.monotonic)
    tally: Tally = field(default_factory=Tally)
    tokens_out: int = 0
    told_at: float = field(default_factory=time.monotonic)
    refreshed_at: float = field(default_factory=time.monotonic)

    def run(self, answer: Gate) -> Attempted:
        """Adopt what an earlier attempt prepared, or plan anew; then commit and settle."""
        store = self.agent.store
        prepared = store.prepared_pass(self.agent.session_id)
        if prepared is not None:
            if self.request.background or self.request.micro:
                return Attempted(prepared)
            plan = adoptable_plan(self.agent, self.request, prepared, self.inputs)
            if plan is not None:
                self.pass_id = prepared.id
                store.adopt_pass(prepared.id, self.lease, self.request.trigger)
                return self._settled(lambda: plan)
            store.close_pass(PassClosing(prepared.id, PassStatus.SUPERSEDED, "attempt_superseded"))
            self.ended.append(store.pass_record(prepared.id))
        if self.request.adopt_only:
            return Attempted(store.passes(self.agent.session_id)[-1])
        client = self.agent.summary_client()
        store.open_pass(
            PassOpening(
                pass_id=self.pass_id,
                session_id=self.agent.session_id,
                kind=PassKind.MICRO if self.request.micro else PassKind.SUMMARY,
                trigger=self.request.trigger,
                watermark=self.view.watermark,
                lease_token=self.lease.token,
                tokens_before=sum(map(row_tokens, self.inputs)),
                messages_before=len(self.inputs),
                model=client.model,
                route=client.route,
            )
        )
        return self._settled(lambda: self._plan(client, answer))

    # -- plan, summarise, verify ---------------------------------------------------------------
    def _plan(self, client: SummaryClient, answer: Gate) -> Plan:
        """Ask the engine for a candidate and return what it changes, verified and kept.

        Raises: Refused when it changes nothing or may not be committed; what the engine raises.
        """
        agent, request = self.agent, self.request
        budget = agent.budget()
        raise_if_ended(self.fence)
        agent.store.extract_pending()
        pins, _beyond = choose_pins(agent.store.pins(agent.session_id), budget.pin_tokens)
        material = cache(partial(read_material, agent.store, agent.session_id))
        overhead = budget.overhead_tokens + carried_tokens(self.inputs, pins)
        health = Health.from_dict(agent.store.health(agent.session_id))
        context = AttemptContext(
            pass_id=self.pass_id,
            fence=self.fence,
            budget=dataclasses.replace(budget, overhead_tokens=overhead),
            client=client,
            model_free=answer.admission is Admission.MODEL_FREE,
            stand_in=answer.failure_class,
            failed_before=never_failed
            if request.force
            else lambda rung: health.failed_before(rung, agent.clock.now()),
            on_progress=self._heard,
            tally=self.tally,
            standing=lambda: material().standing(budget.pin_tokens),
        )
        asked = {"current_tokens": request.current_tokens, "focus_topic": request.focus}
        options = {**asked, "force": request.force, "attempt": context}
        engine = agent.context_compressor
        compress = engine.micro_compress if request.micro else engine.compress
        handed = hand_over(self.inputs, compress)
        candidate = run_engine(compress, handed, options, fence=self.fence, tick=self._tick)
        raise_if_ended(self.fence)
        review = Review(material, pins, budget, self.view.watermark, request.preview)
        plan = review_candidate(self.inputs, candidate, review)
        if not self.pending and not request.micro:
            agent.store.prepare_pass(self.pass_id, plan.to_dict())
        return plan

    def _heard(self, tokens_out: int) -> None:
        self.tokens_out = tokens_out

    def _tick(self) -> None:
        """Keep the lease and tell the watcher, while the engine works."""
        now = time.monotonic()
        if now - self.refreshed_at >= _LEASE_REFRESH_S:
            self.refreshed_at = now
            self.agent.store.refresh_lease(self.lease)
        if now - self.told_at >= _PROGRESS_S:
            self.told_at = now
            tell_progress(self.agent, self.pass_id, self.tokens_out, now - self.started_at)

    # -- commit and settle ---------------------------------------------------------------------
    def _settled(self, planning: Callable[[], Plan]) -> Attempted:
        """Plan and commit; whatever happens, close the ledger row with its guards and tell."""
        tell_started(self.agent, self.pass_id, self.request.trigger)
        view = None
        try:
            plan = planning()
            view = self._commit(plan)
        except BaseException as error:
            self._close(error)
            if not isinstance(error, SETTLED):
                raise
        finally:
            self.ended.append(self.agent.store.pass_record(self.pass_id))
        ledger = self.ended[-1]
        tell_finished(self.agent, ledger)
        if ledger.child_session_id:
            self.agent.move_to(ledger.child_session_id)
        return Attempted(ledger, view)

    def _commit(self, plan: Plan) -> View | None:
        """Publish the plan, or leave it prepared for a preview."""
        agent = self.agent
        if self.request.prepares:
            return None
        receipt = {**plan.receipt, **expected_gain(agent, self.inputs, plan)}
        plan = dataclasses.replace(plan, receipt=receipt)
        waited = {"waited": self.request.waited_ms} if self.request.waited_ms else {}
        rotates = plan.kind in _ROTATING and not getattr(agent, "compression_in_place", True)
        commit = plan.commit(
            self.pass_id,
            self.lease,
            pending=self.pending,
            guards=self._guards(Ending.COMMITTED, plan.failure_class, self.tally.rung),
            durations={"summary": plan.summary_ms, **waited, "total": self._elapsed_ms()},
            child_session_id=new_session_id(agent.clock.now()) if rotates else "",
            seen=self.view,
        )
        published = False
        try:
            view = agent.store.commit_pass(commit, self.fence.begin_commit)
            published = True
            agent.live.adopt(view)
            return view
        finally:
            self.fence.finish_commit(published=published)

    def _close(self, error: BaseException) -> None:
        """Close the ledger row of an attempt that ended without a commit."""
        self.fence.revoke_commit_admission()
        stalled = compression_attempt_stalled(
            commit_fence=self.fence, started_at=self.started_at, idle_timeout_seconds=self._idle_s()
        )
        status, failure_class, ending = classify(error, stalled=stalled)
        rung = error.rung if isinstance(error, RungRemembered) else self.tally.rung
        self.agent.store.close_pass(
            PassClosing(
                pass_id=self.pass_id,
                status=status,
                failure_class=ledger_class(failure_class),
                detail=str(error),
                guards=self._guards(ending, failure_class, rung),
                cost=self.tally.cost if self.tally.calls else None,
                durations={"total": self._elapsed_ms()},
            )
        )

    def _guards(self, ending: Ending, failure_class: str, rung: FailedRung | None) -> Guards:
        agent, tokens = self.agent, sum(map(row_tokens, self.inputs))
        if self.request.micro:
            return NO_GUARDS
        outcome = Outcome(
            ending=ending,
            at=agent.clock.now(),
            failure_class=failure_class,
            fingerprint=fingerprint(len(self.inputs), tokens, agent.provider.model),
            idle_s=self._idle_s(),
            manual=self.request.force,
            rung=rung,
        )
        return guards_after(agent, outcome)

    def _idle_s(self) -> float:
        idle_s, _total_s = resolve_context_compression_timeouts(self.agent.settings.compression)
        return idle_s

    def _elapsed_ms(self) -> int:
        return int((time.monotonic() - self.started_at) * 1000)
