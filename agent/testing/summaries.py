"""A summary model that a test scripts: texts, failures and functions, in the order of the calls."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import field

from agent.auxiliary_client import AuxiliaryExplicitCancellation
from agent.base.messages import Message, text_of
from agent.base.record import dataclass
from agent.base.tokens import estimate_text
from agent.compaction.fence import CompressionCommitFence
from agent.providers.protocol import TokenUsage

GOOD_SUMMARY = """\
## Current request and state
The tests of the importer were being repaired; two of three pass, `test_dates` still fails.
## Done
- [3] The parser in `src/importer/parse.py` was rewritten on 2026-11-30 to read one line at a time.
- [9] The fixture `tests/data/orders.csv` got a row with an empty date.
## Decisions
Dates stay naive because the legacy report compares them as text; time zones were ruled out.
## Errors and fixes
`ValueError: unconverted data remains: 00Z` came from the zone at the end, which is cut off now.
## Values
Port 5433 replaced 5432 for the test database."""


@dataclass(frozen=True)
class Written:
    """One scripted answer."""

    text: str
    usage: TokenUsage | None = None
    cost: float | None = 0.001


@dataclass(frozen=True)
class Asked:
    """One call as the model got it."""

    prompt: str
    max_tokens: int


Script = str | Written | BaseException | Callable[[Asked], str | Written]


@dataclass
class ScriptedSummaries:
    """`SummaryClient` that answers from `script`; its last item answers every later call.

    `asked` holds the calls, oldest first. A request that does not fit the window by our own count
    raises `AssertionError`.
    """

    script: Sequence[Script] = (GOOD_SUMMARY,)
    window_tokens: int = 128_000
    model: str = "scripted"
    route: str = "scripted summaries"
    asked: list[Asked] = field(default_factory=list)

    def summarise(
        self,
        prompt_messages: Sequence[Message],
        *,
        max_tokens: int,
        fence: CompressionCommitFence,
        on_delta: Callable[[str], None] | None = None,
    ) -> Written:
        """Return the next answer, or raise it; a cancelled fence ends the call as the real one."""
        asked = Asked("\n".join(text_of(m.get("content")) for m in prompt_messages), max_tokens)
        step = self.script[min(len(self.asked), len(self.script) - 1)]
        self.asked.append(asked)
        used = estimate_text(asked.prompt) + max_tokens
        if used > self.window_tokens:
            raise AssertionError(f"request of {used} tokens in a window of {self.window_tokens}")
        fence.touch_progress()
        if fence.token.cancelled:
            raise AuxiliaryExplicitCancellation
        if isinstance(step, BaseException):
            raise step
        answer = step(asked) if callable(step) else step
        written = Written(answer) if isinstance(answer, str) else answer
        if on_delta is not None and written.text:
            on_delta(written.text)
        return written
