"""How a standing instruction, its withdrawal, a promise or a decision is worded in six languages.

The wording stands in `cues/*.txt`: function words and the grammar of rules, no topic. A miss costs
little: the user's own text stays in view by its own budget, cues only say what leaves it last.
Sentences are given in lower case.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable
from pathlib import Path

from agent.base.cue_patterns import Cues

LATIN = ("en", "de", "fr", "es")
_CLAUSE = re.compile(
    r"^|[,;:.!?¡¿(–—-]\s*|\b(?:please|pls|and|but|so|also|just|then|or|ok|okay|bitte|und|aber|oder"
    r"|dann|mir|favor|y|pero|que|ojo|os|te|le|et|mais|ou|donc|alors|merci)\s+"
)
"""Where an order may begin; the patterns of `[order]` are tried there alone."""
_SECTION = re.compile(r"^\[(\w+)\]$")
_TAG = re.compile(
    r",?\s*(?:d[’']accord|ok|okay|alright|right|please|oder|ja|gell|vale|de acuerdo|sí"
    r"|n[’']est-ce pas|好吗|好嗎|行吗|可以吗|ね|よね)\s*[?？]+$"
)
_ASKS = re.compile(
    r"[?？][\"'”»」』)\s]*$|(?:ですか|ますか|でしょうか|のか)[。\s]*$|[吗呢][。\s]*$"
)
_FORBIDS = re.compile(
    r"\b(?:may|can|darfst|kannst|puedes|peux|pouvez)\s+(?:not|nicht|only|nur|no|pas)\b"
    r"|\b(?:until|bis|jusqu|hasta)\b|ちゃ|てはいけ|まで[はに]?(?!して)|(?:之前|以前)"
)


_FILE = re.compile(
    r"[\w-]/[\w./-]*\w\.\w{1,8}\b(?![^.!?]*\b(?:never|always|nie|immer|jamais|siempre|nunca)\b)"
)
"""One file: what is wanted of it is mostly an errand, so only an order counts there."""


@functools.cache
def _sections(language: str) -> dict[str, list[str]]:
    sections: dict[str, list[str]] = {}
    lines: list[str] = []
    for line in (
        (Path(__file__).parent / "cues" / f"{language}.txt").read_text("utf-8").splitlines()
    ):
        heading = _SECTION.match(line)
        if heading:
            lines = sections.setdefault(heading[1], [])
        elif line and not line.startswith("#"):
            lines.append(line)
    return sections


@functools.cache
def stop_words(language: str) -> frozenset[str]:
    """Return the function words of a Latin language; they tell it from others, too."""
    return frozenset(" ".join(_sections(language)["stop"]).split())


@functools.cache
def _cue(language: str, section: str) -> Cues:
    """Return the patterns of a section."""
    return Cues(_sections(language).get(section, []))


@functools.cache
def _orders(language: str) -> Cues:
    """Return the patterns of `[order]` as beginnings of words."""
    return Cues(rf"\b(?:{line})" for line in _sections(language).get("order", []))


def is_question(sentence: str) -> bool:
    """Return whether a sentence asks; one that only ends in "ok?" does not."""
    return bool(_ASKS.search(sentence)) and not _TAG.search(sentence)


def is_rule(sentence: str, languages: Iterable[str], *, asks: bool) -> bool:
    """Return whether a sentence lays something down for longer than the work at hand.

    `asks` says that it is a question: then only a polite order counts, and what comes before it.
    """
    if asks:
        if any(_cue(name, "polite").search(sentence) for name in languages):
            return True
        sentence = sentence.rpartition("，")[0]
    return any(_lays_down(sentence, name) for name in languages)


def _lays_down(sentence: str, language: str) -> bool:
    said = _cue(language, "veto").sub(" ", sentence)
    names_file = language in LATIN and _FILE.search(sentence)
    if not names_file and _cue(language, "rule").search(said):
        return True
    if language not in LATIN:
        return False
    orders = _orders(language)
    return any(orders.match(said, at.end()) for at in _CLAUSE.finditer(said))


def is_withdrawal(sentence: str, languages: Iterable[str]) -> bool:
    """Return whether a sentence, no question, takes an earlier instruction back."""
    found = any(_cue(name, "withdrawal").search(sentence) for name in languages)
    return found and not _FORBIDS.search(sentence)


def is_release(sentence: str, languages: Iterable[str]) -> bool:
    """Return whether a sentence has a word of what takes rules back: weak, it needs an object."""
    return any(_cue(name, "release").search(sentence) for name in languages)


def is_negative(sentence: str, languages: Iterable[str]) -> bool:
    """Return whether a sentence forbids, limits or leaves out rather than asks for something."""
    return any(_cue(name, "negation").search(sentence) for name in languages)


def is_promise(sentence: str, languages: Iterable[str]) -> bool:
    """Return whether the speaker says what they will do."""
    return any(_cue(name, "promise").search(sentence) for name in languages)


def is_decision(sentence: str, languages: Iterable[str]) -> bool:
    """Return whether a sentence tells what was chosen or ruled out."""
    return any(_cue(name, "decision").search(sentence) for name in languages)


def is_change(sentence: str, languages: Iterable[str]) -> bool:
    """Return whether a sentence says that something is not what it was."""
    return any(_cue(name, "change").search(sentence) for name in languages)
