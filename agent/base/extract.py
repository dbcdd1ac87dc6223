"""What a text says that must not be lost, found by grammar and shape, in six languages.

`extract` is pure and linear. Nothing that `redact` recognises is ever an extract; tools, files and
the assistant never lay anything down for the user. Read next: `extract_cues.py` (wording),
`extract_speech.py` (whose words), `extract_things.py` (identifiers).
"""

from __future__ import annotations

import bisect
from collections.abc import Iterator
from enum import StrEnum

from agent.base.extract_cues import (
    is_change,
    is_decision,
    is_promise,
    is_question,
    is_rule,
    is_withdrawal,
)
from agent.base.extract_speech import own_words, sentences
from agent.base.extract_things import Thing, things_in
from agent.base.extract_words import content_words, languages_of
from agent.base.record import dataclass
from agent.base.redact import redact

HEAD_CHARS = 48_000
TAIL_CHARS = 16_000
"""Of a longer text only its beginning and end are looked at; the whole stays searchable."""
MOST_THINGS = 120
"""Identifiers kept of one text, those at its ends before those in its middle."""
SUBJECT_WORDS = 6
CHANGED = "now"
"""First word of a value's subject when its sentence says that something changed."""
SAID_MAX_CHARS = 400
LINE_MAX_CHARS = 400
_VALUES = frozenset({"number", "date", "time", "version", "address", "host"})
_MARK = "[REDACTED"


class ExtractKind(StrEnum):
    INSTRUCTION = "instruction"
    WITHDRAWAL = "withdrawal"
    QUESTION = "question"
    PROMISE = "promise"
    DECISION = "decision"
    VALUE = "value"
    IDENTIFIER = "identifier"


@dataclass(frozen=True)
class Extract:
    """One thing that a text says. `value` stands in it letter by letter at `span`.

    `subject` is what it is about: up to six words around it, lower case; empty when none tells.
    """

    kind: ExtractKind
    subject: str
    value: str
    span: tuple[int, int]


def extract(text: str, role: str) -> list[Extract]:
    """Return the extracts of a row's text, by where they stand.

    `role` is the row's: only a user's own words give instructions and withdrawals, only the
    assistant gives promises, and a tool gives identifiers alone.
    """
    if len(text) > HEAD_CHARS + TAIL_CHARS:
        start = len(text) - TAIL_CHARS
        head = extract(text[:HEAD_CHARS], role)
        return [*head, *(_moved(each, start) for each in extract(text[start:], role))]
    safe = redact(text)
    found = [*(() if role == "tool" else _said(safe, role)), *_things(safe, role)]
    found = [each for each in found if _MARK not in each.value and _MARK not in each.subject]
    found.sort(key=lambda each: each.span)
    return found if safe is text else list(_relocated(found, text))


def _moved(each: Extract, offset: int) -> Extract:
    start, end = each.span
    return Extract(each.kind, each.subject, each.value, (start + offset, end + offset))


def _relocated(found: list[Extract], text: str) -> Iterator[Extract]:
    """Yield extracts of a redacted text with their places in the original."""
    position = 0
    for each in found:
        start = text.find(each.value, position)
        if start >= 0:
            position = start
            yield Extract(each.kind, each.subject, each.value, (start, start + len(each.value)))


# -- what is said ---------------------------------------------------------------------------------
def _said(text: str, role: str) -> Iterator[Extract]:
    own = own_words(text)
    languages = languages_of(own)
    for start, end in sentences(own):
        sentence = own[start:end]
        kind = _kind_of(sentence.lower(), role, languages)
        if kind is not None and end - start <= SAID_MAX_CHARS:
            value = text[start:end]
            yield Extract(kind, _subject(sentence), value, (start, end))


def _kind_of(sentence: str, role: str, languages: tuple[str, ...]) -> ExtractKind | None:
    if role == "user":
        if is_withdrawal(sentence, languages):
            return ExtractKind.WITHDRAWAL
        if is_rule(sentence, languages):
            return ExtractKind.INSTRUCTION
    if is_question(sentence):
        return ExtractKind.QUESTION
    if is_decision(sentence, languages):
        return ExtractKind.DECISION
    if role == "assistant" and is_promise(sentence, languages):
        return ExtractKind.PROMISE
    return None


def _subject(sentence: str) -> str:
    return " ".join(content_words(sentence)[:SUBJECT_WORDS])


# -- things ---------------------------------------------------------------------------------------
def _things(text: str, role: str) -> Iterator[Extract]:
    found: dict[str, Thing] = {}
    for thing in things_in(text):
        found.setdefault(thing.text, thing)
    things = list(found.values())
    if len(things) > MOST_THINGS:
        half = MOST_THINGS // 2
        things = [*things[:half], *things[-half:]]
    lines = _line_starts(text)
    words: dict[int, list[str]] = {}
    languages = () if role == "tool" else languages_of(text)
    for thing in things:
        line = bisect.bisect_right(lines, thing.start) - 1
        if line not in words:
            stop = lines[line + 1] if line + 1 < len(lines) else len(text)
            said = text[lines[line] : min(stop, lines[line] + LINE_MAX_CHARS)]
            words[line] = content_words(said)
            if is_change(said.lower(), languages):
                words[line].insert(0, CHANGED)
        own = set(content_words(thing.text)) if not thing.text.isdigit() else set()
        subject = [word for word in words[line] if word not in own][: SUBJECT_WORDS + 1]
        valued = role != "tool" and thing.sort in _VALUES
        kind = ExtractKind.VALUE if valued else ExtractKind.IDENTIFIER
        yield Extract(kind, " ".join(subject), thing.text, (thing.start, thing.end))


def _line_starts(text: str) -> list[int]:
    """Return where the lines of a text begin; sentences begin one too."""
    starts, position = [0], 0
    for mark in ("\n", ". ", "。", "! ", "? ", "; ", "；"):
        position = text.find(mark)
        while position >= 0:
            starts.append(position + len(mark))
            position = text.find(mark, position + len(mark))
    starts.sort()
    return starts
