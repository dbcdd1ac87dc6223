"""The built-in engine: mask, then summarise, then a mechanical digest; cheapest rung first.

It plans on the list it is given and returns a `Candidate`; it writes nothing but the cooldown that
a caller hands to `_record_compression_failure_cooldown`. Read next: `cut.py`, `summarise.py`.
"""

from __future__ import annotations

import dataclasses
import time
from collections import Counter
from typing import TYPE_CHECKING, Any, Protocol

from agent.base.clock import SYSTEM_CLOCK, Clock
from agent.base.errors import (
    ModelUnavailable,
    ProviderError,
    SummaryFailure,
    UnknownSession,
    UsageError,
)
from agent.base.ids import new_pass_id
from agent.base.later import later
from agent.base.messages import Message, text_of
from agent.base.redact import redact
from agent.base.seqs import seq_ranges
from agent.base.settings import CompressionSettings
from agent.base.tokens import MESSAGE_TOKENS, estimate_message
from agent.compaction.attempt import AttemptContext, Candidate, RungRemembered, reconcile
from agent.compaction.budget import Budget, budget_for, shown_tokens, total_tokens
from agent.compaction.cooldown import (
    BLOCKED_BY_MEMORY,
    Admission,
    FailedRung,
    gate,
    ledger_class,
)
from agent.compaction.cut import Cut, is_summary, plan_cut
from agent.compaction.fence import CompressionCommitFence
from agent.sessions.records import PassKind, PassRecord

if TYPE_CHECKING:
    from agent.compaction import anchors, mask, mechanical, micro, prompting, summarise, verify
else:
    anchors, mask, mechanical, micro, prompting, summarise, verify = later(
        "agent.compaction",
        *("anchors", "mask", "mechanical", "micro", "prompting", "summarise", "verify"),
    )

DEFAULT_WINDOW_TOKENS = 128_000
MICRO_TRIES = 3
"""Micro passes that may fail on the same rows before they are left alone until a restart."""
REFUSED = "summary_refused"
"""Failure class of a mechanical pass after a text was refused: `summary_refused:<reason>`."""


class BrakeStore(Protocol):
    """What the compressor needs of the session store."""

    def record_compression_failure_cooldown(
        self, session_id: str, until_epoch: float, error: str | None = None
    ) -> None: ...

    def get_compression_failure_cooldown(self, session_id: str) -> dict[str, Any] | None: ...

    def passes(self, session_id: str) -> list[PassRecord]: ...


class ContextCompressor:
    """Decides when a view is due and proposes a smaller one.

    `threshold_tokens` (a real prompt count) and `tail_token_budget` (estimated tokens) follow the
    window until they are set by hand; from then on they stay.
    Concurrency: one `compress` at a time; the rest may be called from any thread.
    """

    def __init__(
        self, settings: CompressionSettings | None = None, *, clock: Clock = SYSTEM_CLOCK
    ) -> None:
        self._settings = settings or CompressionSettings()
        self._clock = clock
        self._store: BrakeStore | None = None
        self._session_id = ""
        self._threshold: int | None = None
        self._tail: int | None = None
        self._micro_compact_enabled = self._settings.micro_compact
        self._micro_turns = 0
        self._micro_tries: Counter[int] = Counter()
        self._budget = self._budget_of(DEFAULT_WINDOW_TOKENS, 4096)

    # -- what it is bound to -------------------------------------------------------------------
    def bind(self, session_db: BrakeStore, session_id: str) -> None:
        """Read and write the brake of this session from now on; values set by hand stay."""
        self._store, self._session_id = session_db, session_id

    def update_window(self, window_tokens: int, reserve_tokens: int) -> None:
        """Follow another window; values set by hand stay."""
        self._budget = self._budget_of(window_tokens, reserve_tokens)

    def _budget_of(self, window_tokens: int, reserve_tokens: int) -> Budget:
        return budget_for(
            window_tokens,
            reserve_tokens,
            0,
            threshold=self._settings.threshold,
            target_ratio=self._settings.target_ratio,
        )

    @property
    def threshold_tokens(self) -> int:
        """The prompt size, as the provider counts, at which a pass is due."""
        return self._budget.trigger_tokens if self._threshold is None else self._threshold

    @threshold_tokens.setter
    def threshold_tokens(self, tokens: int) -> None:
        self._threshold = tokens

    @property
    def tail_token_budget(self) -> int:
        """How much of the newest rows stays as it is, in estimated tokens."""
        return self._budget.tail_tokens if self._tail is None else self._tail

    @tail_token_budget.setter
    def tail_token_budget(self, tokens: int) -> None:
        self._tail = tokens

    # -- when ----------------------------------------------------------------------------------
    def should_compress(self, tokens: int) -> bool:
        """Return whether a prompt of `tokens` is due for a pass and no brake is running."""
        return tokens >= self.threshold_tokens and not self._braked()

    def _braked(self) -> bool:
        if self._store is None:
            return False
        try:
            cooldown = self._store.get_compression_failure_cooldown(self._session_id)
        except UnknownSession:
            return False
        return gate(cooldown, self._clock.now()).admission is Admission.BLOCKED

    def _record_compression_failure_cooldown(self, seconds: float, error: str | None) -> None:
        """Brake the bound session for `seconds`; a longer brake that runs already stays.

        Raises: UsageError when no session is bound.
        """
        if self._store is None:
            raise UsageError("no session is bound to the compressor: call bind first")
        self._store.record_compression_failure_cooldown(
            self._session_id, self._clock.now() + seconds, error
        )

    # -- how -----------------------------------------------------------------------------------
    def compress(
        self,
        messages: list[Message],
        *,
        current_tokens: int | None = None,
        focus_topic: str | None = None,
        force: bool = False,
        attempt: AttemptContext | None = None,
    ) -> Candidate:
        """Return the view that should replace `messages`; an unchanged one when nothing helps.

        `current_tokens` and `force` are for engines that decide by them; this one goes by stored
        estimates alone. Without an attempt it works within the default window and has no model.
        Raises: ProviderError or SummaryFailure when no summary could be had and the view still
        fits; CallCancelled when the fence was cancelled.
        """
        inputs = [{**message, "_ref": index} for index, message in enumerate(messages)]
        attempt = attempt or self._unattended()
        budget = self._by_hand(attempt.budget)
        attempt = dataclasses.replace(attempt, budget=budget)
        masked = mask.mask_rows(inputs, budget)
        changed = any(row is not shown for row, shown in zip(inputs, masked, strict=True))
        enough = changed and _reaches_target(inputs, masked, budget)
        cut = None if enough else plan_cut(masked, budget, attempt.standing())
        if cut is None or not cut.covered:
            return Candidate(masked, kind=PassKind.MASK, strategy=("mask",) if changed else ())
        return self._replace(inputs, masked, cut, attempt, focus_topic or "")

    def needs_model(self, messages: list[Message], budget: Budget) -> bool:
        """Return whether a pass over `messages` would ask for a summary."""
        masked = mask.mask_rows(messages, budget)
        budget = self._by_hand(budget)
        return not _reaches_target(messages, masked, budget) and bool(
            plan_cut(masked, budget).covered
        )

    def _by_hand(self, budget: Budget) -> Budget:
        """Return the budget with the tail that was set by hand, if one was."""
        return budget if self._tail is None else dataclasses.replace(budget, tail_tokens=self._tail)

    def _unattended(self) -> AttemptContext:
        fence = CompressionCommitFence(clock=self._clock)
        return AttemptContext(new_pass_id(), fence, self._budget, model_free=True)

    def _replace(
        self,
        inputs: list[Message],
        masked: list[Message],
        cut: Cut,
        attempt: AttemptContext,
        focus: str,
    ) -> Candidate:
        """Return the candidate of the summary rung, or of the mechanical one where it must be."""
        covered = [inputs[index] for index in cut.covered]
        earlier = [anchors.strip_anchors(row) for row in covered if is_summary(row)]
        rows = [row for row in covered if not is_summary(row)]
        summary_ms, stand_in = 0, attempt.stand_in
        failed = None if attempt.model_free else self._failed_before(covered, attempt)
        if failed is not None and attempt.budget.fits(shown_tokens(inputs, attempt.budget)):
            raise RungRemembered(failed)
        if failed is not None:
            stand_in = BLOCKED_BY_MEMORY
        elif not attempt.model_free:
            previous = "\n\n".join(text_of(row.get("content")) for row in earlier)
            job = summarise.SummaryJob(rows, previous, focus, attempt.budget.summary_tokens)
            started = time.monotonic()
            try:
                text = redact(self._generate_summary(job, attempt))
            except (ProviderError, SummaryFailure) as failure:
                if attempt.budget.fits(shown_tokens(inputs, attempt.budget)):
                    raise
                stand_in = ledger_class(failure.failure_class)
            except verify.TextRefused as refusal:
                stand_in = f"{REFUSED}:{refusal.reason}"
            else:
                summary_ms = int((time.monotonic() - started) * 1000)
                candidate = _candidate(masked, cut, text, PassKind.SUMMARY)
                reason = verify.judge_text(
                    text, _readable(rows), max_tokens=job.max_tokens, notes=previous
                ) or verify.judge_candidate(inputs, reconcile(inputs, candidate), attempt.budget)
                if not reason:
                    return _credit(candidate, attempt, summary_ms)
                stand_in = f"{REFUSED}:{reason}"
        room = min(attempt.budget.summary_tokens, total_tokens(covered) - MESSAGE_TOKENS - 1)
        digest = mechanical.write_digest(rows, earlier, room)
        candidate = _candidate(masked, cut, digest, PassKind.MECHANICAL)
        if verify.judge_candidate(inputs, reconcile(inputs, candidate), attempt.budget):
            candidate = Candidate(inputs, kind=PassKind.MECHANICAL)
        candidate.failure_class = stand_in
        if not attempt.model_free and failed is None:
            candidate.strategy = (*candidate.strategy[:-1], "summary", *candidate.strategy[-1:])
        return _credit(candidate, attempt, summary_ms)

    def _failed_before(self, covered: list[Message], attempt: AttemptContext) -> FailedRung | None:
        """Return the failure of the same summary that forbids it; without one, note it as tried."""
        client = attempt.client
        rung = FailedRung(
            first_seq=covered[0].get("_seq", 0),
            last_seq=covered[-1].get("_seq", 0),
            rows=len(covered),
            model=client.model if client else "",
            route=client.route if client else "",
            pass_id=attempt.pass_id,
        )
        failed = attempt.failed_before(rung)
        if failed is None:
            attempt.tally.rung = rung
        return failed

    # -- micro passes --------------------------------------------------------------------------
    def micro_is_due(self, messages: list[Message], budget: Budget) -> bool:
        """Count a turn and return whether a micro pass should follow it."""
        self._micro_turns += 1
        if self._micro_turns < self._settings.micro_compact_every_n_turns:
            return False
        return self._next_micro_cut(messages, budget) is not None

    def micro_compress(self, messages: list[Message], *, attempt: AttemptContext) -> Candidate:
        """Return the view in which a marker stands for one finished exchange, or for all markers;
        the same view when nothing is due.

        Raises: ProviderError, SummaryFailure, CallCancelled.
        """
        inputs = [{**message, "_ref": index} for index, message in enumerate(messages)]
        cut = self._next_micro_cut(inputs, attempt.budget)
        if cut is None:
            return Candidate(inputs, kind=PassKind.MICRO)
        self._micro_turns = 0
        self._micro_tries[_first_row(inputs, cut)] += 1
        rows = [inputs[index] for index in cut.read]
        job = summarise.SummaryJob(rows, "", "", cut.max_tokens, prompting.Prompt.MICRO)
        started = time.monotonic()
        try:
            text = redact(self._micro_summarize_one(job, attempt))
        except verify.TextRefused as refusal:
            raise SummaryFailure(str(refusal)) from refusal
        summary_ms = int((time.monotonic() - started) * 1000)
        kept = tuple(index for index in range(len(inputs)) if index not in set(cut.covered))
        candidate = _candidate(inputs, Cut(kept, cut.covered), text, PassKind.MICRO)
        candidate.strategy = (cut.strategy,)
        return _credit(candidate, attempt, summary_ms)

    def _next_micro_cut(self, messages: list[Message], budget: Budget) -> micro.MicroCut | None:
        """Return what to condense next; what failed `MICRO_TRIES` times or was undone is left
        alone."""
        threshold = self._settings.micro_compact_defrag_threshold_tokens
        undone: set[str] | None = None
        for cut in micro.micro_cuts(messages, self._by_hand(budget), threshold):
            if self._micro_tries[_first_row(messages, cut)] >= MICRO_TRIES:
                continue
            if undone is None:
                ledger = self._store.passes(self._session_id) if self._store else []
                undone = micro.undone_rows(ledger)
            if seq_ranges(messages[i].get("_seq", 0) for i in cut.covered) not in undone:
                return cut
        return None

    def _micro_summarize_one(self, job: summarise.SummaryJob, attempt: AttemptContext) -> str:
        """Return the text of a marker. Raises: ProviderError, SummaryFailure, CallCancelled."""
        return self._generate_summary(job, attempt)

    def _generate_summary(self, job: summarise.SummaryJob, attempt: AttemptContext) -> str:
        """Return the text of a summary. Raises: ProviderError, SummaryFailure, CallCancelled."""
        if attempt.client is None:
            raise ModelUnavailable(
                "no summary model can be reached: set auxiliary.compression.model and base_url"
            )
        return summarise.write_summary(job, attempt.client, attempt)


def _reaches_target(inputs: list[Message], masked: list[Message], budget: Budget) -> bool:
    """Return whether masking brought the view from above the target to it."""
    return shown_tokens(masked, budget) <= budget.target_tokens < shown_tokens(inputs, budget)


def _candidate(masked: list[Message], cut: Cut, text: str, kind: PassKind) -> Candidate:
    """Return the view in which a new row of `text` stands where the last covered row stood."""
    new_row: Message = {"role": "user", "content": text, "_kind": kind.value}
    if kind is PassKind.MICRO:
        new_row |= micro.marker_fields([masked[index] for index in cut.covered])
    new_row["_tokens"] = estimate_message(new_row)
    last = cut.covered[-1]
    kept = [masked[index] for index in cut.kept]
    place = sum(index < last for index in cut.kept)
    strategy = ("mask", kind.value) if any(_is_fresh_mask(row) for row in kept) else (kind.value,)
    return Candidate([*kept[:place], new_row, *kept[place:]], kind=kind, strategy=strategy)


def _first_row(messages: list[Message], cut: micro.MicroCut) -> int:
    """Return the row id by which a cut is known; 0 for one that begins with a pending row."""
    row_id: int = messages[cut.covered[0]].get("_row_id", 0)
    return row_id


def _is_fresh_mask(row: Message) -> bool:
    return "_stub" in row and "_masked_by" not in row


def _readable(rows: list[Message]) -> str:
    return "\n".join(text_of(row.get("content")) for row in rows)


def _credit(candidate: Candidate, attempt: AttemptContext, summary_ms: int) -> Candidate:
    """Write on the candidate what its summary took."""
    tally = attempt.tally
    if attempt.client is not None and tally.calls:
        candidate.model, candidate.route = attempt.client.model, attempt.client.route
        candidate.cost = tally.cost
    candidate.summary_ms = summary_ms
    candidate.chunks, candidate.tokens_out = tally.chunks, tally.tokens_out
    return candidate
