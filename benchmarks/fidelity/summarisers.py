"""Who writes the summaries in a measurement: nobody, one that writes nonsense, the embedded model.

The nonsense is made to pass for a summary (length, different words), for a text that is refused
gives way to the mechanical digest, and then nothing is learned about what a bad summary costs.
"""

from __future__ import annotations

import dataclasses
import random

from agent.base.messages import Message
from agent.compaction.attempt import AttemptContext, Candidate
from agent.compaction.context_compressor import ContextCompressor

MODES = ("nonsense", "none", "model")

_SYLLABLES = "ba ce di fo gu ha je ki lo mu na pe qui ro su ta ve wi xo zu".split()
_LEAST_WORDS = 90
_MOST_WORDS = 900


class Nonsense:
    """Writes a text of made-up words for each request, another one each time."""

    def __init__(self, seed: int) -> None:
        self._rng = random.Random(seed)  # nosec B311: repeatable test data

    def write(self, max_tokens: int) -> str:
        """Return sentences that fill about half of `max_tokens` and say nothing."""
        words = min(max(max_tokens // 3, _LEAST_WORDS), _MOST_WORDS)
        made = [self._word() for _ in range(words)]
        sentences = [made[start : start + 12] for start in range(0, words, 12)]
        return " ".join(" ".join(sentence).capitalize() + "." for sentence in sentences)

    def _word(self) -> str:
        return "".join(self._rng.choices(_SYLLABLES, k=self._rng.randrange(2, 5)))


class ModelFree(ContextCompressor):
    """The built-in engine while no summary model may be asked."""

    def compress(
        self,
        messages: list[Message],
        *,
        current_tokens: int | None = None,
        focus_topic: str | None = None,
        force: bool = False,
        attempt: AttemptContext | None = None,
    ) -> Candidate:
        """Return the candidate of the rungs that need no model."""
        if attempt is not None:
            attempt = dataclasses.replace(attempt, model_free=True)
        return super().compress(
            messages,
            current_tokens=current_tokens,
            focus_topic=focus_topic,
            force=force,
            attempt=attempt,
        )
