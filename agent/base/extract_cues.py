"""How a standing instruction, its withdrawal, a promise or a decision is worded in six languages.

The wording stands in `cues/*.txt`: function words and the grammar of rules, no topic. A miss costs
little: the user's own text stays in view by its own budget, cues only say what leaves it last.
Sentences are given in lower case.
"""

from __future__ import annotations

import functools
import itertools
import re
from collections.abc import Iterable
from pathlib import Path

from agent.base.cue_patterns import Cues, one_of

LATIN = ("en", "de", "fr", "es")
LANGUAGES = (*LATIN, "zh", "ja")
_OF_USERS = ("withdrawal", "rule", "order", "veto", "release", "decision")
_OF_OTHERS = ("decision", "promise")
"""Kinds looked for together, because a sentence is mostly asked for several of them."""
_LAID_DOWN = ("rule", "order")
_OF_ALL = ("promise", "polite", "change", "negation", "only", "except", "besides")
KINDS = (*_OF_USERS, *_OF_ALL)
_BIT = {
    (language, kind): 1 << place
    for place, (language, kind) in enumerate(itertools.product(LANGUAGES, KINDS))
}
"""What says in one number that a pattern of a language and kind was found."""
_BITS = {kind: sum(_BIT[language, kind] for language in LANGUAGES) for kind in KINDS}
_CLAUSE_MARKS = frozenset(",;:.!?¡¿(–—-")
_OPENER = re.compile(
    r"\b(?:please|pls|kindly|and|but|so|also|just|then|or|ok|okay|bitte|und|aber|oder"
    r"|dann|mir|favor|y|pero|que|ojo|os|te|le|et|mais|ou|donc|alors|merci)\Z"
)
_OPENER_CHARS = 8
"""What an order may stand behind; the patterns of `[order]` are tried there alone."""
_SECTION = re.compile(r"^\[(\w+)\]$")
_TAG = re.compile(
    r",?\s*(?:d[’']accord|ok|okay|alright|right|please|oder|ja|gell|vale|de acuerdo|sí"
    r"|n[’']est-ce pas|好吗|好嗎|行吗|可以吗|ね|よね)\s*[?？]+$"
)
_END_CHARS = 24
_ASK_SIGN = re.compile("[?？か吗呢]")
_ASKS = re.compile(
    r"[?？][\"'”»」』)\s]*$|(?:ですか|ますか|でしょうか|のか)[。\s]*$|[吗呢][。\s]*$"
)
_FORBIDS = re.compile(
    r"\b(?:may|can|darfst|kannst|puedes|peux|pouvez)\s+(?:not|nicht|only|nur|no|pas)\b"
    r"|\b(?:until|bis|jusqu|hasta)\b|ちゃ|てはいけ|まで[はに]?(?!して)|(?:之前|以前)(?!说|讲|提|的)"
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


def _begins_clause(text: str, at: int) -> bool:
    """Return whether an order may begin at a place."""
    before = text[:at].rstrip()
    if not before or before[-1] in _CLAUSE_MARKS:
        return bool(before) or not at
    start = max(0, len(before) - _OPENER_CHARS)
    return len(before) < at and _OPENER.search(before, start) is not None


@functools.cache
def _cues(languages: tuple[str, ...], kinds: tuple[str, ...]) -> Cues:
    patterns = (
        (_BIT[language, kind], rf"\b(?:{line})" if kind == "order" else line)
        for language in languages
        for kind in kinds
        for line in _sections(language).get(kind, ())
    )
    return Cues(patterns, _BITS["order"], _begins_clause)


@functools.lru_cache(8)
def _found(sentence: str, languages: tuple[str, ...], kinds: tuple[str, ...]) -> int:
    return _cues(languages, kinds).find(sentence)


def _has(kind: str, sentence: str, languages: Iterable[str], *, by_user: bool = True) -> bool:
    """Return whether a sentence has a pattern of a kind in one of the languages."""
    together = _OF_USERS if by_user else _OF_OTHERS
    kinds = together if kind in together else (kind,)
    return bool(_found(sentence, tuple(languages), kinds) & _BITS[kind])


def _without(kind: str, sentence: str, language: str) -> str:
    """Return a sentence without what a language's patterns of a kind match."""
    return one_of(tuple(_sections(language)[kind])).sub(" ", sentence)


def has_cues(sentence: str, languages: tuple[str, ...], *, by_user: bool) -> bool:
    """Return whether a sentence that does not ask may be anything of what is told apart here."""
    return bool(_found(sentence, languages, _OF_USERS if by_user else _OF_OTHERS))


def is_question(sentence: str) -> bool:
    """Return whether a sentence asks; one that only ends in "ok?" does not."""
    start = max(0, len(sentence) - _END_CHARS)
    if not _ASK_SIGN.search(sentence, start):
        return False
    return _ASKS.search(sentence, start) is not None and not _TAG.search(sentence)


def is_rule(sentence: str, languages: Iterable[str], *, asks: bool) -> bool:
    """Return whether a sentence lays something down for longer than the work at hand.

    `asks` says that it is a question: then only a polite order counts, and what comes before it.
    """
    if asks:
        if _has("polite", sentence, languages):
            return True
        sentence = sentence.rpartition("，")[0]
    return bool(sentence) and _lays_down(sentence, tuple(languages))


def _lays_down(sentence: str, languages: tuple[str, ...]) -> bool:
    found = _found(sentence, languages, _OF_USERS)
    for language in languages:
        if found & _BIT[language, "veto"]:
            one = _found(_without("veto", sentence, language), (language,), _LAID_DOWN)
        else:
            one = found
        if one & _BIT[language, "order"]:
            return True
        if one & _BIT[language, "rule"] and not (language in LATIN and _FILE.search(sentence)):
            return True
    return False


def is_withdrawal(sentence: str, languages: Iterable[str]) -> bool:
    """Return whether a sentence, no question, takes an earlier instruction back."""
    return _has("withdrawal", sentence, languages) and not _FORBIDS.search(sentence)


def is_release(sentence: str, languages: Iterable[str]) -> bool:
    """Return whether a sentence has a word of what takes rules back: weak, it needs an object."""
    return _has("release", sentence, languages)


def is_negative(sentence: str, languages: Iterable[str]) -> bool:
    """Return whether a sentence forbids, limits or leaves out rather than asks for something."""
    return _has("negation", sentence, languages)


def leaves_one(sentence: str, languages: Iterable[str]) -> bool:
    """Return whether a sentence leaves something to what it names, written `@`, alone."""
    return _has("only", sentence, languages)


def is_ban(sentence: str, languages: Iterable[str]) -> bool:
    """Return whether a sentence forbids, whatever it leaves to `@`, and excepts nothing."""
    rest = sentence
    for language in languages:
        rest = _without("only", rest, language)
    return is_negative(rest, languages) and not _has("except", sentence, languages)


def is_addition(sentence: str, languages: Iterable[str]) -> bool:
    """Return whether a sentence says that what it names comes beside something else."""
    return _has("besides", sentence, languages)


def is_promise(sentence: str, languages: Iterable[str]) -> bool:
    """Return whether the speaker says what they will do."""
    return _has("promise", sentence, languages, by_user=False)


def is_decision(sentence: str, languages: Iterable[str], *, by_user: bool) -> bool:
    """Return whether a sentence tells what was chosen or ruled out."""
    return _has("decision", sentence, languages, by_user=by_user)


def is_change(sentence: str, languages: Iterable[str]) -> bool:
    """Return whether a sentence says that something is not what it was."""
    return _has("change", sentence, languages)
