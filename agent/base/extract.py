"""What a text says that must not be lost, found by grammar and shape, in six languages.

`extract` is pure and linear. Nothing that `redact` recognises is ever an extract; tools, files and
the assistant never lay anything down for the user. Read next: `extract_cues.py` (wording),
`extract_speech.py` (whose words), `extract_things.py` (identifiers).
"""

from __future__ import annotations

import bisect
from collections import Counter
from collections.abc import Iterator
from enum import StrEnum

from agent.base.extract_cues import (
    has_cues,
    is_change,
    is_decision,
    is_promise,
    is_question,
    is_release,
    is_rule,
    is_withdrawal,
)
from agent.base.extract_speech import is_hearsay, own_words, sentences
from agent.base.extract_things import Thing, outline_of, things_in
from agent.base.extract_words import content_words, languages_of, languages_within
from agent.base.record import dataclass
from agent.base.redact import redact

HEAD_CHARS = 48_000
TAIL_CHARS = 16_000
"""Of a longer text only its beginning and end are looked at; the whole stays searchable."""
MOST_THINGS = 60
MOST_THINGS_OF_TOOLS = 24
"""Identifiers kept of one text, those of a rare shape before others, then those at its ends."""
SUBJECT_WORDS = 6
CHANGED = "now"
"""First word of a value's subject when its sentence says that something changed."""
SAID_MAX_CHARS = 400
HEARSAY_CHARS = 160
"""How far behind a reported rule the user's question about it may stand."""
LINE_MAX_CHARS = 400
_VALUES = frozenset({"number", "date", "time", "version", "address", "host"})
_DESCRIBED = frozenset({"id", "number", "address", "host", "date", "version"})
"""Sorts that do not say by themselves what they are."""
_LONG_NUMBER = 4
_MARK = "[REDACTED"


class ExtractKind(StrEnum):
    INSTRUCTION = "instruction"
    WITHDRAWAL = "withdrawal"
    RELEASE = "release"
    """Words that may take a rule back if there is one about the same; nothing by themselves."""
    REMARK = "remark"
    """What else a user says and does not ask; nothing by itself."""
    DOUBT = "doubt"
    """Words that a rule, their `subject`, is shown with, because they may take it back."""
    QUESTION = "question"
    PROMISE = "promise"
    DECISION = "decision"
    TASK = "task"
    """One entry of a task list that a call gave; `subject` is its status."""
    CALL = "call"
    """A tool was called; `subject` is the call's id."""
    OUTCOME = "outcome"
    """How the call of the id `subject` ended: `value` is why it failed, empty when it did not."""
    VALUE = "value"
    IDENTIFIER = "identifier"


_RULING = frozenset({ExtractKind.INSTRUCTION, ExtractKind.WITHDRAWAL, ExtractKind.RELEASE})


@dataclass(frozen=True)
class Extract:
    """One thing that a text says. `value` stands in it letter by letter at `span`.

    `subject` is what a value or an identifier is about: up to six words around it, lower case;
    empty when none tells, and for what is said.
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
        if end - start > SAID_MAX_CHARS:
            continue
        sentence = own[start:end].lower()
        kind = _kind_of(sentence, role, languages_within(sentence, languages))
        if kind in _RULING and is_hearsay(sentence, own[end : end + HEARSAY_CHARS].lower()):
            kind = None
        if kind is not None:
            yield Extract(kind, "", text[start:end], (start, end))


def _kind_of(sentence: str, role: str, languages: tuple[str, ...]) -> ExtractKind | None:
    asks = is_question(sentence)
    by_user = role == "user"
    if not asks and not has_cues(sentence, languages, by_user=by_user):
        return ExtractKind.REMARK if by_user else None
    if by_user:
        if not asks and is_withdrawal(sentence, languages):
            return ExtractKind.WITHDRAWAL
        if is_rule(sentence, languages, asks=asks):
            return ExtractKind.INSTRUCTION
        decides = not asks and is_decision(sentence, languages, by_user=True)
        if not asks and not decides and is_release(sentence, languages):
            return ExtractKind.RELEASE
    if asks:
        return ExtractKind.QUESTION
    if is_decision(sentence, languages, by_user=by_user):
        return ExtractKind.DECISION
    if role == "assistant" and is_promise(sentence, languages):
        return ExtractKind.PROMISE
    return ExtractKind.REMARK if by_user else None


# -- things ---------------------------------------------------------------------------------------
def _things(text: str, role: str) -> Iterator[Extract]:
    found: dict[str, Thing] = {}
    for thing in things_in(text):
        if role != "tool" or not _is_noise(thing):
            found.setdefault(thing.text, thing)
    things = list(found.values())
    most = MOST_THINGS_OF_TOOLS if role == "tool" else MOST_THINGS
    if len(things) > most:
        things = _standing_out(things, most)
    subjects = _Subjects(text, role)
    for thing in things:
        valued = role != "tool" and thing.sort in _VALUES
        kind = ExtractKind.VALUE if valued else ExtractKind.IDENTIFIER
        described = valued or thing.sort in _DESCRIBED or (thing.sort == "url" and role == "user")
        subject = subjects.of(thing) if described else ""
        yield Extract(kind, subject, thing.text, (thing.start, thing.end))


def _standing_out(things: list[Thing], most: int) -> list[Thing]:
    """Return those things whose shape fewest others have, of equals those at the ends."""
    shapes = [outline_of(thing.text) for thing in things]
    common = Counter(shapes)
    ranked = sorted(
        range(len(things)), key=lambda at: (common[shapes[at]], min(at, len(things) - 1 - at))
    )
    return [things[at] for at in sorted(ranked[:most])]


def _is_noise(thing: Thing) -> bool:
    """Return whether tools print such things by the hundred: short figures, strings, names."""
    if thing.sort == "number":
        return thing.text.lstrip("+-").replace(".", "").isdigit() and len(thing.text) < _LONG_NUMBER
    return thing.sort in ("name", "time", "quote")


class _Subjects:
    """What the things of a text are about: the words of their sentence or line."""

    def __init__(self, text: str, role: str) -> None:
        self._text = text
        self._starts = _line_starts(text)
        self._languages = () if role == "tool" else languages_of(text)
        self._words: dict[int, list[str]] = {}

    def of(self, thing: Thing) -> str:
        """Return the subject of a thing, without the thing's own words."""
        line = bisect.bisect_right(self._starts, thing.start) - 1
        words = self._words.get(line)
        if words is None:
            words = self._words[line] = self._read(line)
        own = () if thing.text.isdigit() else content_words(thing.text)
        return " ".join([word for word in words if word not in own][: SUBJECT_WORDS + 1])

    def _read(self, line: int) -> list[str]:
        stop = self._starts[line + 1] if line + 1 < len(self._starts) else len(self._text)
        start = self._starts[line]
        said = self._text[start : min(stop, start + LINE_MAX_CHARS)]
        words = content_words(said)
        if self._languages:
            languages = languages_within(said, self._languages)
            if is_change(said.lower(), languages):
                words.insert(0, CHANGED)
        return words


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
