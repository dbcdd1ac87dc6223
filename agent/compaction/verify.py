"""What a summary's text and a candidate must be. Pure; a reason is one word, "" means good."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterator, Sequence

from agent.base.errors import HermesError
from agent.base.messages import Message, call_ids, last_user_index, text_of
from agent.base.pattern import pattern
from agent.base.tokens import estimate_text
from agent.compaction.attempt import Changes
from agent.compaction.budget import Budget, shown_tokens, total_tokens
from agent.compaction.pins import carried_tokens
from agent.compaction.prompting import Prompt, template
from agent.sessions.records import PassKind, Pin

EMPTY = "empty"
TOO_SHORT = "too_short"
TOO_LONG = "too_long"
REPEATING = "repeating"
ECHOES_PROMPT = "echoes_prompt"
ECHOES_SOURCE = "echoes_source"
HOPELESS = frozenset({REPEATING, ECHOES_PROMPT, ECHOES_SOURCE})
"""Reasons that show a model which cannot do it; asking it again costs and gains nothing."""
NO_PROGRESS = "no_progress"
WOULD_GROW = "would_grow"
EMPTY_TRANSCRIPT = "empty_transcript"
REQUEST_LOST = "request_lost"
PIN_LOST = "pin_lost"
PAIRING_BROKEN = "pairing_broken"

SHORT_SHARE = 0.06
SHORT_MIN_TOKENS = 12
SHORT_MAX_TOKENS = 90
"""A text is too short below this share of what it stands for, within these bounds."""
SHORT_READ_CHARS = 16_000
"""What is read of the source to judge that; more would change nothing within the bounds."""
LONG_FACTOR = 3
"""A text is too long above this many times the budget; twice is what a retry may ask for."""

REPEATED_WORDS_SHARE = 0.15
"""Part of the sequences of four words that occurred before in the same text; a path is one word."""
REPEATED_PIECES_SHARE = 0.3
"""The same for six pieces of words, which also sees through long stamps and numbers."""
WINDOW_WORDS = 80
DISTINCT_SHARE = 0.4
"""Different words among `WINDOW_WORDS` in a row, below which the text is going round."""
LINE_REPEATS = 3
PROMPT_GRAM_WORDS = 8
PROMPT_SHARE = 0.3
SNIPPET_CHARS = 60
SNIPPETS = 40
SOURCE_SHARE = 0.6
"""Part of the snippets of a text that stand in the source letter by letter."""

_WIDE = "\u3040-\u30ff\u3400-\u9fff\uac00-\ud7a3"
_WORD = pattern(f"[{_WIDE}]|[^\\s{_WIDE}]+")
_PIECE = pattern(f"[{_WIDE}]|[^\\W_{_WIDE}]+")
_EDGES = "".join(map(chr, range(0x21, 0x30))) + ":;<=>?@[\\]^_`{|}~…。，、；：（）「」"
_ROLE_LINE = pattern(
    r"^\W{0,3}\[?\d+ (?:user|assistant|result of)\b|^\W{0,2}(?:user|assistant|human)\W{0,2}:",
    re.IGNORECASE | re.MULTILINE,
)


class TextRefused(HermesError):
    """A text came back that cannot be used; `reason` is `judge_text`'s word."""

    def __init__(self, reason: str) -> None:
        super().__init__(f"the summary text is refused: {reason}")
        self.reason = reason


def judge_text(text: str, source: str, *, max_tokens: int, notes: str = "") -> str:
    """Return why `text` cannot stand for `source`, or "" when it can.

    `notes` are the earlier notes that it stands for too; it may carry them on word for word.
    Units: `max_tokens` is the summary budget.
    """
    tokens = estimate_text(text.strip())
    if not tokens:
        return EMPTY
    wanted = SHORT_SHARE * sum(estimate_text(part[:SHORT_READ_CHARS]) for part in (source, notes))
    if tokens < min(max(wanted, SHORT_MIN_TOKENS), SHORT_MAX_TOKENS):
        return TOO_SHORT
    if tokens > LONG_FACTOR * max_tokens:
        return TOO_LONG
    if goes_round(text):
        return REPEATING
    if _echoes_prompt(text):
        return ECHOES_PROMPT
    if _echoes_source(text, source):
        return ECHOES_SOURCE
    return ""


def _grams(words: Sequence[str], size: int) -> list[tuple[str, ...]]:
    return list(zip(*(words[start:] for start in range(size)), strict=False))


def goes_round(text: str) -> bool:
    """Return whether a text is stuck: few different words in a stretch, phrases or lines again."""
    words = _words(text)
    for start in range(0, len(words) - WINDOW_WORDS + 1, WINDOW_WORDS // 2):
        if len(set(words[start : start + WINDOW_WORDS])) < DISTINCT_SHARE * WINDOW_WORDS:
            return True
    if _repeated_share(words, 4) > REPEATED_WORDS_SHARE:
        return True
    if _repeated_share(_PIECE.findall(text.lower()), 6) > REPEATED_PIECES_SHARE:
        return True
    lines = [line.strip().lower() for line in text.splitlines() if len(line.split()) > 2]
    return len(lines) - len(set(lines)) >= LINE_REPEATS


def _repeated_share(words: Sequence[str], size: int) -> float:
    """Return which part of the sequences of `size` words occurred before."""
    grams = _grams(words, size)
    return 1 - len(set(grams)) / len(grams) if grams else 0.0


def _words(text: str) -> list[str]:
    """Return the words without punctuation around them; a path is one word, a CJK sign another."""
    return [word for each in _WORD.findall(text.lower()) if (word := each.strip(_EDGES))]


def _echoes_prompt(text: str) -> bool:
    """Return whether much of the text is the instructions that asked for it."""
    grams = _grams(_words(text), PROMPT_GRAM_WORDS)
    if not grams:
        return False
    return any(
        sum(gram in asked for gram in grams) / len(grams) > PROMPT_SHARE
        for asked in map(_prompt_grams, Prompt)
    )


def _prompt_grams(prompt: Prompt) -> set[tuple[str, ...]]:
    return set(_grams(_words(template(prompt)), PROMPT_GRAM_WORDS))


def _echoes_source(text: str, source: str) -> bool:
    """Return whether the text carries the conversation on or copies it instead of describing it."""
    if len(_ROLE_LINE.findall(text)) >= LINE_REPEATS:
        return True
    snippets = list(_snippets(text))
    return len(snippets) > 2 and sum(s in source for s in snippets) / len(snippets) > SOURCE_SHARE


def _snippets(text: str) -> Iterator[str]:
    step = max(SNIPPET_CHARS, len(text) // SNIPPETS)
    for start in range(0, len(text) - SNIPPET_CHARS + 1, step):
        yield text[start : start + SNIPPET_CHARS]


# -- candidates -----------------------------------------------------------------------------------
def resulting_rows(inputs: Sequence[Message], changes: Changes) -> list[Message]:
    """Return the view as it would be: the new row stands where the last covered row stood."""
    masks = {mask.ref: mask for mask in changes.masked}
    rows = [
        {**inputs[ref], **masks[ref].stub, "_tokens": masks[ref].tokens}
        if ref in masks
        else inputs[ref]
        for ref in changes.kept
    ]
    if changes.new_row is not None:
        last = changes.covered[-1] if changes.covered else len(inputs)
        rows.insert(bisect_left(changes.kept, last), changes.new_row)
    return rows


def judge_candidate(
    inputs: Sequence[Message], changes: Changes, budget: Budget, pins: Sequence[Pin] = ()
) -> str:
    """Return why a candidate must not be committed, or "" when it may.

    Sizes are stored estimates with their per-message overhead. `pins` are those that every request
    carries.
    """
    rows = resulting_rows(inputs, changes)
    if not rows:
        return EMPTY_TRANSCRIPT
    if changes.nothing:
        return NO_PROGRESS
    if total_tokens(rows) >= total_tokens(inputs):
        return WOULD_GROW
    newest = last_user_index(list(inputs))
    if newest is not None and not _still_says(inputs[newest], newest, changes):
        return REQUEST_LOST
    if _loses_pins(rows, pins, budget):
        return PIN_LOST
    if _splits_pairs(inputs, changes):
        return PAIRING_BROKEN
    if changes.new_row is not None and not text_of(changes.new_row["content"]).strip():
        return EMPTY
    if changes.kind is PassKind.MECHANICAL and not _digest_helps(inputs, rows, budget, pins):
        return NO_PROGRESS
    return ""


def _digest_helps(
    before: Sequence[Message], after: Sequence[Message], budget: Budget, pins: Sequence[Pin]
) -> bool:
    """Return whether the next request gets under the trigger, or fits where it did not."""
    tokens = _with_pins(after, budget, pins)
    return budget.under_trigger(tokens) or (
        budget.fits(tokens) and not budget.fits(_with_pins(before, budget, pins))
    )


def _with_pins(rows: Sequence[Message], budget: Budget, pins: Sequence[Pin]) -> int:
    """Return what a request takes for these rows and for the pins that none of them says."""
    return shown_tokens(rows, budget) + carried_tokens(rows, pins)


def _still_says(request: Message, ref: int, changes: Changes) -> bool:
    masked = any(mask.ref == ref for mask in changes.masked)
    return ref in set(changes.kept) and not masked


def _loses_pins(rows: Sequence[Message], pins: Sequence[Pin], budget: Budget) -> bool:
    """Return whether the view fits but the pins that no row says would not fit beside it."""
    beside = carried_tokens(rows, pins)
    shown = shown_tokens(rows, budget) if beside else 0
    return budget.fits(shown) and not budget.fits(shown + beside)


def _splits_pairs(inputs: Sequence[Message], changes: Changes) -> bool:
    """Return whether a call and its result, both in the input, end up on two sides."""
    kept = set(changes.kept)
    renamed = {mask.ref: mask.stub for mask in changes.masked if "tool_calls" in mask.stub}
    if any(call_ids(dict(stub)) != call_ids(inputs[ref]) for ref, stub in renamed.items()):
        return True
    caller: dict[str, int] = {}
    for index, message in enumerate(inputs):
        for call_id in call_ids(message):
            caller[call_id] = index
        if message.get("role") == "tool":
            call = caller.get(str(message.get("tool_call_id", "")))
            if call is not None and (call in kept) != (index in kept):
                return True
    return False
