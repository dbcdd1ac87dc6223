"""The agent that is measured: its notes may take so many characters, whatever its window.

The notes are what stands for the older part of a session in a request. Read next: `notes_of`.
"""

from __future__ import annotations

import dataclasses
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from agent.base.messages import Message, is_user_text, text_of
from agent.base.settings import CompressionSettings, Settings
from agent.compaction.budget import (
    ANCHOR_SHARE,
    PIN_SHARE,
    SUMMARY_SHARE,
    USER_SHARE,
    Budget,
)
from agent.sessions.records import PassKind
from agent.tools.protocol import Tool
from benchmarks.fidelity.scoring import Standing
from benchmarks.fidelity.summarisers import ModelFree
from run_agent import AIAgent

FRAME_CHARS = 900
"""What the fixed sentences around a summary take of the characters."""

CHARS_A_TOKEN = 3.2
"""As the engine estimates such text, rows included."""
SHARES = ("user_tokens", "pin_tokens", "anchor_tokens", "summary_tokens")
"""The shares of a budget that the notes are made of; the tail is none of them."""

DIGEST_TOKENS = 48
"""What a digest takes that says little more than how to read on."""

SMALLEST_WINDOW = 4_096
_NOTES_SHARE = USER_SHARE + PIN_SHARE + ANCHOR_SHARE + SUMMARY_SHARE
_MOST_PASSES = 3
MADE_BY_PASS = frozenset({"summary", "mechanical"})


class BoundedAgent(AIAgent):
    """An agent whose notes (see `SHARES`) may take `notes_tokens` in all.

    `without_tail` leaves no room for rows that are kept because they are new.
    """

    notes_tokens = 0
    without_tail = False

    def budget(self) -> Budget:
        """Return the shares of the window, those of the notes scaled by one factor."""
        budget = fit_notes(super().budget(), self.notes_tokens)
        return without_tail(budget) if self.without_tail else budget

    def compress_fully(self) -> None:
        """Compact by hand until a summary or a digest stands for all rows before the tail."""
        for _ in range(_MOST_PASSES):
            if self.compress().kind in {PassKind.SUMMARY, PassKind.MECHANICAL}:
                return


def open_agent(
    mode: str,
    *,
    notes_tokens: int,
    without_tail: bool = False,
    tools: Sequence[Tool] = (),
    **options: Any,
) -> BoundedAgent:
    """Return an agent whose summaries are written as `mode` says (`summarisers.MODES`).

    `options` are further fields of `AgentOptions`. In mode `nonsense` the given provider writes
    them too. No pass runs in the background, so that a session is the same each time.
    """
    settings = Settings(compression=CompressionSettings(background=False))
    if mode == "model":
        auxiliary = dataclasses.replace(settings.auxiliary.compression, model="local")
        settings = dataclasses.replace(
            settings,
            model=dataclasses.replace(settings.model, api_mode="local"),
            auxiliary=dataclasses.replace(settings.auxiliary, compression=auxiliary),
        )
    agent = BoundedAgent(
        settings=settings,
        builtin_tools=False,
        tools=tools,
        skip_memory=True,
        skip_context_files=True,
        quiet_mode=True,
        **options,
    )
    agent.notes_tokens, agent.without_tail = notes_tokens, without_tail
    if mode == "none":
        agent.context_compressor = ModelFree(settings.compression)
    return agent


def fit_notes(budget: Budget, notes_tokens: int) -> Budget:
    """Return the budget with the shares of the notes scaled by one factor to `notes_tokens`."""
    factor = notes_tokens / sum(getattr(budget, share) for share in SHARES)
    return dataclasses.replace(
        budget, **{share: max(1, int(getattr(budget, share) * factor)) for share in SHARES}
    )


def without_tail(budget: Budget) -> Budget:
    """Return the budget of a view that ends with its notes: no tail, and of the summary's share
    only what a digest's frame takes; the user's rows get the rest."""
    spare = max(0, budget.summary_tokens - DIGEST_TOKENS)
    return dataclasses.replace(
        budget,
        tail_tokens=1,
        summary_tokens=DIGEST_TOKENS,
        user_tokens=budget.user_tokens + spare,
    )


def tokens_for(chars: int) -> int:
    """Return what the notes of a request may take, in estimated tokens, to stay within `chars`."""
    return int((chars - FRAME_CHARS) / CHARS_A_TOKEN)


def window_for(chars: int) -> int:
    """Return the window in which the notes take about `chars` by the built-in shares."""
    return max(SMALLEST_WINDOW, int(tokens_for(chars) / _NOTES_SHARE * 8 / 7))


def notes_of(request: Sequence[Message], view: Sequence[Message], base_prompt: str) -> str:
    """Return the text of a request's system and user messages that is neither prompt nor tail.

    `base_prompt` is the session's prompt at its begin. The tail are the rows of `view` behind the
    newest row that a pass made; tool results and assistant messages never count. Without such a row
    all of the view is tail.
    """
    newest = max(
        (index for index, row in enumerate(view) if row.get("_kind") in MADE_BY_PASS), default=-1
    )
    text = "\n".join(
        text_of(message.get("content"))
        for message in request
        if message["role"] in {"system", "user"}
    )
    text = text.replace(base_prompt, "", 1)
    for row in reversed(view[newest + 1 :]):
        if is_user_text(row):
            before, _row, after = text.rpartition(text_of(row["content"]))
            text = before + after
    return text.strip()


def standing_of(agent: AIAgent) -> list[Standing]:
    """Return the pins in force of an agent."""
    return [Standing(pin.text, pin.source_seq, pin.doubt) for pin in agent.pins()]


def open_folder() -> tempfile.TemporaryDirectory[str]:
    """Return a folder for a store, in memory where that can be: no figure here is a time."""
    memory = Path("/dev/shm")  # nosec B108: the folder below it gets a random name
    return tempfile.TemporaryDirectory(dir=memory if memory.is_dir() else None)
