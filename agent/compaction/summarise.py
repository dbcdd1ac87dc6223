"""The calls that write a summary: one, or one for each piece and one to join, and one retry."""

from __future__ import annotations

import math

from agent.base.errors import (
    CallCancelled,
    CallTimeout,
    ContextOverflow,
    SummaryEmpty,
    SummaryTruncated,
)
from agent.base.messages import Message
from agent.base.record import dataclass
from agent.base.redact import redact
from agent.base.tokens import estimate_text
from agent.compaction.attempt import AttemptContext, SummaryClient
from agent.compaction.budget import total_tokens
from agent.compaction.prompting import Prompt, fill, template
from agent.compaction.serialise import Line, clip, lines_of, pack

MARGIN_SHARE = 0.12
"""Part of the summariser's window that stays free: our counts of its tokens are estimates."""
OUTPUT_SHARE = 0.25
"""A summary may take at most this part of the summariser's window, the notes of one of several
pieces a quarter of that."""
CHUNK_OUTPUT_SHARE = OUTPUT_SHARE / 4
CHUNK_OUTPUT_MIN_TOKENS = 120
PIECE_MIN_TOKENS = 240
_MESSAGE_TOKENS = 16


@dataclass(frozen=True)
class SummaryJob:
    """What is to be summarised.

    `rows` are the covered rows without earlier summaries, oldest first; `previous` is the text of
    those; `focus` what the user asked to keep in detail. Units: `max_tokens` of the summary.
    """

    rows: list[Message]
    previous: str
    focus: str
    max_tokens: int


@dataclass
class Tally:
    """What the calls of one attempt have used so far; `cost` is None once a price was unknown."""

    calls: int = 0
    chunks: int = 0
    tokens_out: int = 0
    cost: float | None = 0.0


def write_summary(
    job: SummaryJob, client: SummaryClient, attempt: AttemptContext, tally: Tally
) -> str:
    """Return the summary of a job; what it used is added to `tally`.

    A truncated or empty answer, and a request that proved larger than the window, is tried once
    more, in all. Raises: SummaryFailure, ProviderError, CallCancelled by kind.
    """
    run = _Run(job, client, attempt, tally)
    try:
        return run.write(1.0)
    except ContextOverflow as overflow:
        if run.retried:
            raise
        run.retried = True
        return run.write(_share_that_fits(overflow))


def _share_that_fits(overflow: ContextOverflow) -> float:
    """Return by how much requests must shrink, by the provider's own numbers when it gave them."""
    if overflow.limit_tokens and overflow.request_tokens:
        return min(0.9, 0.9 * overflow.limit_tokens / overflow.request_tokens)
    return 0.5


@dataclass
class _Run:
    job: SummaryJob
    client: SummaryClient
    attempt: AttemptContext
    tally: Tally
    retried: bool = False

    def write(self, share: float) -> str:
        """Return the summary from requests of at most `share` of the summariser's room."""
        job = self.job
        focus = redact(job.focus)
        previous = redact(job.previous)
        lines = lines_of(job.rows)
        cap = min(job.max_tokens, int(self.client.window_tokens * OUTPUT_SHARE))
        one = Prompt.UPDATE if previous else Prompt.SUMMARY
        room = self._room(one, cap, focus, share) - estimate_text(previous)
        if sum(line.tokens for line in lines) <= room:
            pieces = pack(lines, piece_tokens=room, max_pieces=1)
            if len(pieces) == 1:
                self.tally.chunks = 1
                prompt = fill(
                    one, max_tokens=cap, focus=focus, material=pieces[0], previous=previous
                )
                return self._ask(prompt, cap)
        return self._write_in_parts(lines, previous, cap, focus, share)

    def _write_in_parts(
        self, lines: list[Line], previous: str, cap: int, focus: str, share: float
    ) -> str:
        if previous:
            tokens = estimate_text(previous) + _MESSAGE_TOKENS
            lines = [Line("[earlier notes]", previous, tokens, speech=True), *lines]
        join_room = self._room(Prompt.JOIN, cap, focus, share)
        part_cap = min(cap, int(self.client.window_tokens * CHUNK_OUTPUT_SHARE))
        part_room = self._room(Prompt.CHUNK, part_cap, focus, share)
        asked = total_tokens(self.job.rows) + estimate_text(previous)
        pieces = pack(
            lines,
            piece_tokens=part_room,
            max_pieces=min(
                math.ceil(asked / (self.client.window_tokens * share)) + 1,
                max(2, join_room // CHUNK_OUTPUT_MIN_TOKENS),
            ),
        )
        self.tally.chunks = len(pieces)
        part_cap = max(CHUNK_OUTPUT_MIN_TOKENS, min(part_cap, join_room // len(pieces)))
        parts = str(len(pieces))
        notes = [
            self._ask(
                fill(
                    Prompt.CHUNK,
                    max_tokens=part_cap,
                    focus=focus,
                    material=piece,
                    part=str(number),
                    parts=parts,
                ),
                part_cap,
            )
            for number, piece in enumerate(pieces, 1)
        ]
        labelled = [
            Line(f"[part {n}]", text, estimate_text(text) + 8, speech=True)
            for n, text in enumerate(notes, 1)
        ]
        material = "\n".join(pack(labelled, piece_tokens=join_room, max_pieces=1))
        return self._ask(
            fill(Prompt.JOIN, max_tokens=cap, focus=focus, material=material, parts=parts), cap
        )

    def _room(self, prompt: Prompt, cap: int, focus: str, share: float) -> int:
        """Return the tokens of material that a request can carry beside prompt and answer."""
        window = self.client.window_tokens
        free = window - int(window * MARGIN_SHARE) - cap - _MESSAGE_TOKENS
        free -= estimate_text(template(prompt)) + 2 * estimate_text(focus)
        return max(PIECE_MIN_TOKENS, int(free * share))

    def _ask(self, prompt: str, cap: int) -> str:
        """Return one answer; a truncated or empty one is asked for once more with a larger cap."""
        try:
            return self._call(prompt, cap)
        except (SummaryTruncated, SummaryEmpty):
            if self.retried:
                raise
            self.retried = True
            return self._call(self._with_room_for(prompt, 2 * cap), 2 * cap)

    def _with_room_for(self, prompt: str, cap: int) -> str:
        """Return the prompt, its middle cut when the larger answer would not fit beside it."""
        window = self.client.window_tokens
        room = window - int(window * MARGIN_SHARE / 2) - cap
        tokens = estimate_text(prompt)
        return prompt if tokens <= room else clip(prompt, max(1, len(prompt) * room // tokens))

    def _call(self, prompt: str, cap: int) -> str:
        attempt = self.attempt
        if attempt.fence.is_cancelled:
            if attempt.fence.deadline_exceeded:
                raise CallTimeout("the compaction passed its total limit", route=self.client.route)
            raise CallCancelled("the compaction was stopped")
        before, heard = self.tally.tokens_out, 0

        def hear(text: str) -> None:
            nonlocal heard
            heard += len(text)
            attempt.on_progress(before + heard // 4)

        self.tally.calls += 1
        reply = self.client.summarise(
            [{"role": "user", "content": prompt}],
            max_tokens=cap,
            fence=attempt.fence,
            on_delta=hear,
        )
        used = reply.usage.completion if reply.usage else estimate_text(reply.text)
        self.tally.tokens_out = before + used
        known = self.tally.cost is not None and reply.cost is not None
        self.tally.cost = (self.tally.cost or 0.0) + (reply.cost or 0.0) if known else None
        return reply.text
