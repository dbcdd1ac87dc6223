"""The calls that write a summary: one, or one for each piece and one to join, and one retry."""

from __future__ import annotations

import math
from dataclasses import field

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
from agent.compaction.prompting import Prompt, fill, template
from agent.compaction.serialise import Line, clip, lines_of, pack, strict_tokens
from agent.compaction.verify import HOPELESS, TextRefused, judge_text

MARGIN_SHARE = 0.12
"""Part of the summariser's window that stays free: our counts of its tokens are estimates."""
OUTPUT_SHARE = 0.25
"""A summary may take at most this part of the summariser's window, the notes of one of several
pieces a quarter of that."""
PART_OUTPUT_SHARE = OUTPUT_SHARE / 4
PART_OUTPUT_MIN_TOKENS = 120
PIECE_MIN_TOKENS = 240
FOCUS_MAX_CHARS = 1_000
_MESSAGE_TOKENS = 16


@dataclass(frozen=True)
class SummaryJob:
    """What is to be summarised.

    `rows` are the covered rows without earlier summaries, oldest first; `previous` is the text of
    those; `focus` what the user asked to keep in detail; `prompt` what is asked for when there is
    nothing earlier. Units: `max_tokens` of the summary.
    """

    rows: list[Message]
    previous: str
    focus: str
    max_tokens: int
    prompt: Prompt = Prompt.SUMMARY


def write_summary(job: SummaryJob, client: SummaryClient, attempt: AttemptContext) -> str:
    """Return the summary of a job; what it used is added to `attempt.tally`.

    A truncated or empty answer, and a request that proved larger than the window, is tried once
    more, in all.
    Raises: SummaryFailure, ProviderError, CallCancelled by kind; TextRefused for a part's notes
    that cannot be used, and for a truncated text that loops or echoes, which a second call would
    not better.
    """
    run = _Run(job, client, attempt)
    try:
        return run.write()
    except ContextOverflow as overflow:
        if run.retried:
            raise
        run.retried = True
        run.window_tokens = _window_after(overflow, estimate_text(run.sent) + run.sent_cap)
        return run.write()


def _window_after(overflow: ContextOverflow, sent_tokens: int) -> int:
    """Return the window, as we count, that a refused request of `sent_tokens` shows.

    By the provider's own numbers when it gave them, else some way below what it refused.
    """
    if overflow.limit_tokens and overflow.request_tokens:
        return sent_tokens * overflow.limit_tokens // overflow.request_tokens
    return sent_tokens * 6 // 10


@dataclass
class _Run:
    job: SummaryJob
    client: SummaryClient
    attempt: AttemptContext
    retried: bool = False
    sent: str = ""
    sent_cap: int = 0
    window_tokens: int = field(init=False)
    focus: str = field(init=False)

    def __post_init__(self) -> None:
        self.window_tokens = self.client.window_tokens
        self.focus = clip(redact(self.job.focus), FOCUS_MAX_CHARS)

    def write(self) -> str:
        """Return the summary from requests that fit `window_tokens`."""
        job = self.job
        previous = redact(job.previous)
        lines = lines_of(job.rows)
        cap = min(job.max_tokens, int(self.window_tokens * OUTPUT_SHARE))
        prompt = Prompt.UPDATE if previous else job.prompt
        room = self._room(prompt, cap) - strict_tokens(previous)
        if sum(line.tokens for line in lines) > room:
            return self._write_in_parts(lines, previous, cap)
        self.attempt.tally.chunks = 1
        material = "\n".join(pack(lines, piece_tokens=room, max_pieces=1))
        return self._ask(prompt, cap, material=material, previous=previous)

    def _write_in_parts(self, lines: list[Line], previous: str, cap: int) -> str:
        if previous:
            tokens = strict_tokens(previous) + _MESSAGE_TOKENS
            lines = [Line("[earlier notes]", previous, tokens, speech=True), *lines]
        join_room = self._room(Prompt.JOIN, cap)
        part_cap = min(cap, int(self.window_tokens * PART_OUTPUT_SHARE))
        wanted = math.ceil(sum(line.tokens for line in lines) / self.window_tokens) + 1
        pieces = pack(
            lines,
            piece_tokens=self._room(Prompt.CHUNK, part_cap),
            max_pieces=min(wanted, max(2, join_room // PART_OUTPUT_MIN_TOKENS)),
        )
        self.attempt.tally.chunks = len(pieces)
        part_cap = max(PART_OUTPUT_MIN_TOKENS, min(part_cap, join_room // len(pieces)))
        parts = str(len(pieces))
        notes: list[Line] = []
        for number, piece in enumerate(pieces, 1):
            text = self._ask(Prompt.CHUNK, part_cap, material=piece, part=str(number), parts=parts)
            reason = judge_text(text, "", max_tokens=part_cap)
            if reason:
                raise TextRefused(reason)
            notes.append(Line(f"[part {number}]", text, strict_tokens(text) + 8, speech=True))
        material = "\n".join(pack(notes, piece_tokens=join_room, max_pieces=1))
        return self._ask(Prompt.JOIN, cap, material=material, parts=parts)

    def _room(self, prompt: Prompt, cap: int) -> int:
        """Return the tokens of material that a request can carry beside prompt and answer."""
        free = int(self.window_tokens * (1 - MARGIN_SHARE)) - cap - _MESSAGE_TOKENS
        free -= estimate_text(template(prompt)) + strict_tokens(self.focus)
        return max(PIECE_MIN_TOKENS, free)

    def _ask(self, prompt: Prompt, cap: int, **slots: str) -> str:
        """Return one answer; a truncated or empty one is asked for once more with a larger cap."""
        text = fill(prompt, max_tokens=cap, focus=self.focus, **slots)
        source = "" if prompt is Prompt.JOIN else slots["material"]
        try:
            return self._call(text, cap, source)
        except (SummaryTruncated, SummaryEmpty):
            if self.retried:
                raise
            self.retried = True
            return self._call(self._with_room_for(text, 2 * cap), 2 * cap, source)

    def _with_room_for(self, text: str, cap: int) -> str:
        """Return the request, its middle cut when the larger answer would not fit beside it."""
        room = int(self.window_tokens * (1 - MARGIN_SHARE / 2)) - cap
        tokens = strict_tokens(text)
        return text if tokens <= room else clip(text, max(1, len(text) * room // tokens))

    def _call(self, text: str, cap: int, source: str) -> str:
        """Return the answer to one request; `source` is what it must not give back as it stands."""
        self._refuse_when_stopped()
        before, heard = self.attempt.tally.tokens_out, list[str]()

        def hear(piece: str) -> None:
            heard.append(piece)
            self.attempt.on_progress(before + sum(map(len, heard)) // 4)

        self.attempt.tally.calls += 1
        self.sent, self.sent_cap = text, cap
        try:
            reply = self.client.summarise(
                [{"role": "user", "content": text}],
                max_tokens=cap,
                fence=self.attempt.fence,
                on_delta=hear,
            )
        except SummaryTruncated:
            reason = judge_text("".join(heard), source, max_tokens=cap)
            if reason in HOPELESS:
                raise TextRefused(reason) from None
            raise
        used = reply.usage.completion if reply.usage else estimate_text(reply.text)
        tally = self.attempt.tally
        tally.tokens_out = before + used
        known = tally.cost is not None and reply.cost is not None
        tally.cost = (tally.cost or 0.0) + (reply.cost or 0.0) if known else None
        return reply.text

    def _refuse_when_stopped(self) -> None:
        fence = self.attempt.fence
        if fence.is_cancelled and fence.deadline_exceeded:
            raise CallTimeout("the compaction passed its total limit", route=self.client.route)
        if fence.is_cancelled:
            raise CallCancelled("the compaction was stopped")
