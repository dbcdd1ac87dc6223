"""What a sentence is about, and whether two are alike; which languages a text is in."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable

from agent.base.extract_cues import LATIN, stop_words

_WORD = re.compile(r"[^\W\d_]+")
_KANA = re.compile(r"[\u3040-\u30ff]")
_HAN = re.compile(r"[\u3400-\u9fff]")
_CJK_RUN = re.compile(r"[\u3400-\u9fff\u30a1-\u30ff々ー]{2,}")
_CJK_FUNCTION = re.compile(
    r"现在|以后|今后|之前|之后|每次|不要|不能|不用|可以|应该|必须|我们|你们|他们|一下|这个|那个|什么|"
    r"先别|别再|今後|以後|現在|[的了是在我你您他她它们就把被请先别不再也都和与或吧吗呢啊要给到从]"
)
_NAME = re.compile(r"(?:(?<=[^\W\d_][ ,’'])|(?<=[:,] ))[^\W\d_a-z]\w+")
"""A word with a capital letter that does not begin its sentence."""
STEM_CHARS = 5


@functools.lru_cache(32)
def languages_of(text: str) -> tuple[str, ...]:
    """Return the languages that a text is likely in; every Latin one when nothing tells."""
    found = ("ja",) if _KANA.search(text) else ("zh",) if _HAN.search(text) else ()
    words = set(_WORD.findall(text.lower()))
    scores = {name: len(words & stop_words(name)) for name in LATIN}
    best = max(scores.values())
    if found and best < 3:
        return found
    if not best:
        return LATIN
    return found + tuple(name for name, score in scores.items() if 2 * score >= best)


def languages_within(sentence: str, languages: tuple[str, ...]) -> tuple[str, ...]:
    """Return the languages of a text and of one of its sentences, which may be in another."""
    own = languages_of(sentence)
    return languages if own == LATIN else tuple(dict.fromkeys((*languages, *own)))


@functools.cache
def _all_stop_words() -> frozenset[str]:
    return frozenset[str]().union(*map(stop_words, LATIN))


def content_words(text: str) -> list[str]:
    """Return the words that carry meaning, lower case, in order, none twice.

    Chinese and Japanese give pairs of neighbouring signs.
    """
    words = (word for word in _WORD.findall(text.lower()) if len(word) > 1)
    kept = dict.fromkeys(word for word in words if word not in _all_stop_words())
    if _HAN.search(text) or _KANA.search(text):
        kept = {word: None for word in kept if not _HAN.search(word) and not _KANA.search(word)}
        for run in _CJK_RUN.findall(_CJK_FUNCTION.sub(" ", text)):
            kept.update(dict.fromkeys(run[at : at + 2] for at in range(len(run) - 1)))
    return list(kept)


def names_in(text: str) -> frozenset[str]:
    """Return the names in a text by their capital letters, lower case; none in German, which
    writes each noun so."""
    found = _NAME.findall(text)
    if not found or "de" in languages_of(text):
        return frozenset()
    return frozenset(word.lower() for word in found if word[0].isupper())


def stem(word: str) -> str:
    """Return what forms of one word share, roughly: its beginning, without a plural s."""
    if not word.isascii() and _HAN.search(word):
        return word
    if len(word) > STEM_CHARS:
        return word[:STEM_CHARS]
    return word[:-1] if len(word) > 3 and word.endswith("s") else word


def stems(words: Iterable[str]) -> frozenset[str]:
    """Return the stems of words."""
    return frozenset(map(stem, words))


def likeness(one: frozenset[str], other: frozenset[str]) -> float:
    """Return which part of the smaller set of stems is in the other, 0 to 1."""
    smaller = min(len(one), len(other))
    return len(one & other) / smaller if smaller else 0.0
