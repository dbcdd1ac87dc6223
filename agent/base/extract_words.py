"""What a sentence is about, and whether two are alike; which languages a text is in."""

from __future__ import annotations

import functools
import operator
import re
from collections.abc import Iterable, Mapping

from agent.base.extract_cues import LATIN, stop_words

_WORD = re.compile(r"[^\W\d_]+")
_KANA = re.compile(r"[\u3040-\u30ff]")
_CJK = re.compile(r"[\u3040-\u30ff\u3400-\u9fff]")
_HAN = re.compile(r"[\u3400-\u9fff]")
_CJK_RUN = re.compile(r"[\u3400-\u9fff\u30a1-\u30ff々ー]{2,}")
_CJK_FUNCTION = re.compile(
    r"现在|以后|今后|之前|之后|每次|不要|不能|不用|可以|应该|必须|我们|你们|他们|一下|这个|那个|什么|"
    r"先别|别再|今後|以後|現在"
)
_CJK_PARTICLES = str.maketrans(
    dict.fromkeys("的了是在我你您他她它们就把被请先别不再也都和与或吧吗呢啊要给到从", " ")
)
_NAME = re.compile(r"(?:(?<=[^\W\d_][ ,’'])|(?<=[:,] ))[^\W\d_a-z]\w+")
"""A word with a capital letter that does not begin its sentence."""
STEM_CHARS = 5
_ACCENTS = str.maketrans("áàâéèêíìîóòôúùûç", "aaaeeeiiiooouuuc")


@functools.lru_cache(32)
def languages_of(text: str) -> tuple[str, ...]:
    """Return the languages that a text is likely in; every Latin one when nothing tells."""
    found: tuple[str, ...] = ()
    if not text.isascii():
        found = ("ja",) if _KANA.search(text) else ("zh",) if _HAN.search(text) else ()
    scores = _scores(text)
    best = max(scores.values())
    if found and best < 3:
        return found
    return found + tuple(name for name, score in scores.items() if 2 * score >= best)


def languages_within(sentence: str, languages: tuple[str, ...]) -> tuple[str, ...]:
    """Return the languages of a text and of one of its sentences, which may be in another."""
    own = languages_of(sentence)
    return languages if own == LATIN else tuple(dict.fromkeys((*languages, *own)))


@functools.lru_cache(32)
def _scores(text: str) -> Mapping[str, int]:
    """Return how many function words of each Latin language a text has."""
    words = _all_stop_words().intersection(_WORD.findall(text.lower()))
    return {name: len(words & stop) for name, stop in _stop_words_by_language()}


@functools.cache
def _stop_words_by_language() -> tuple[tuple[str, frozenset[str]], ...]:
    return tuple((name, stop_words(name)) for name in LATIN)


@functools.cache
def _all_stop_words() -> frozenset[str]:
    return frozenset[str]().union(*map(stop_words, LATIN))


def content_words(text: str) -> list[str]:
    """Return the words that carry meaning, lower case, in order, none twice.

    Chinese and Japanese give pairs of neighbouring signs.
    """
    stop = _all_stop_words()
    words = _WORD.findall(text.lower())
    kept = dict.fromkeys([word for word in words if len(word) > 1 and word not in stop])
    if not text.isascii() and _CJK.search(text):
        kept = {word: None for word in kept if word.isascii() or not _CJK.search(word)}
        for run in _CJK_RUN.findall(_CJK_FUNCTION.sub(" ", text).translate(_CJK_PARTICLES)):
            kept.update(dict.fromkeys(map(operator.add, run, run[1:])))
    return list(kept)


def names_in(text: str) -> frozenset[str]:
    """Return the names in a text by their capital letters, lower case; none in what may be German,
    which writes each noun so."""
    found = [word for word in _NAME.findall(text) if word[0].isupper()]
    if found and "de" in languages_of(text):
        others = len(content_words(text)) - 1
        if _scores(text)["de"] > _scores(text)["en"] or 2 * len(found) > others:
            return frozenset()
    return frozenset(map(str.lower, found))


def stem(word: str) -> str:
    """Return what forms of one word share, roughly: its beginning, without a plural s and without
    the accents that come and go with endings."""
    if not word.isascii() and _HAN.search(word):
        return word
    if not word.isascii():
        word = word.translate(_ACCENTS)
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
