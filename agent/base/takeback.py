"""Does a later sentence of the user take an earlier rule back? Pure.

It must be about the same thing, and either say so in words of withdrawing, or be of the other
polarity: what was forbidden is allowed, what was asked for is to be left out. Of two rules that
contradict each other the later one holds, and so it does when only a value is another, or when
one of them leaves room for a single name and they give it to two. Whether anything else that is
about a rule takes it back is for the model to say.
"""

from __future__ import annotations

import re
from functools import lru_cache

from agent.base.extract_cues import (
    is_addition,
    is_ban,
    is_negative,
    is_release,
    is_rule,
    is_withdrawal,
    leaves_one,
)
from agent.base.extract_words import content_words, languages_of, likeness, stems
from agent.base.restate import Statement, with_gaps

SHARED_STEMS = 2
LIKENESS = 0.2
"""A withdrawal names a rule when it shares this many stems with it, or this part of the smaller;
one stem across languages must be a whole word of both."""
LIKENESS_OF_RELEASE = 0.5
LIKENESS_OF_RULES = 0.6
LIKENESS_OF_DOUBT = 0.5
SURELY_ABOUT = 0.8
"""Whatever a sentence says that shares this part with a rule, it says of the rule."""
REVISED = 2.0
"""More than any likeness: the same sentence with another limit."""
_FIGURE = r"\d+(?:[.,:/-]\d+)*"
_LIMIT = re.compile(
    r"(?:\b(?:of|under|over|than|until|till|by|before|past|after|within|most|least|unter|über|bis|vor"
    r"|nach|höchstens|mindestens|als|de|du|au|sous|avant|après|maximum|del|hasta|antes|máximo)"
    rf" (?:the |dem |den |le |el |zum )?)[$€£]?{_FIGURE}|[$€£] ?{_FIGURE}"
    rf"|(?<![\w.:/-]){_FIGURE} ?(?:%|[€$£]|[kmg]?b\b|m?s\b|min\b)"
)
"""A measure or a limit: the same rule with another one replaces it. What only names a thing, as
"node 3" does, is no limit."""


def lays_down(sentence: str) -> bool:
    """Return whether a sentence, no question, reads like a rule."""
    return is_rule(sentence.lower(), languages_of(sentence), asks=False)


def is_revision(sentence: str, rule: str) -> bool:
    """Return whether two rules differ in nothing but their limits."""
    said, ruled = (each.lower().rstrip(" .!。！") for each in (sentence, rule))
    return said != ruled and _without_limits(said) == _without_limits(ruled)


def _without_limits(said: str) -> str:
    return _LIMIT.sub(lambda found: re.sub(_FIGURE, "#", found[0]), said)


_statement = lru_cache(1024)(Statement.of)


def names_another(sentence: str, rule: str) -> bool:
    """Return whether two rules in the same words leave it to one alone, and each names another.

    Two bans both hold, and so do rules that name things at more than one place: which of them
    changed?
    """
    new, old = _statement(sentence), _statement(rule)
    if new.heading != old.heading or set(new.words) != set(old.words):
        return False
    if not new.names.isdisjoint(old.names) or not new.figures.isdisjoint(old.figures):
        return False
    later, earlier = with_gaps(sentence, new), with_gaps(rule, old)
    if len(set(new.words)) < SHARED_STEMS or not later.count("@") == earlier.count("@") == 1:
        return False
    said = [(later, languages_of(sentence)), (earlier, languages_of(rule))]
    one = any(leaves_one(*each) for each in said)
    return one and not is_addition(*said[0]) and not any(is_ban(*each) for each in said)


def takes_back(sentence: str, rule: str) -> float:
    """Return how surely a sentence takes an earlier rule back, 0 when it does not."""
    if is_revision(sentence, rule):
        return REVISED
    named, about = stems_of(sentence), stems_of(rule)
    shared, alike = len(named & about), likeness(named, about)
    if not shared:
        return 0.0
    if shared >= SHARED_STEMS and names_another(sentence, rule):
        return REVISED
    lowered, languages = sentence.lower(), languages_of(sentence)
    if shared < SHARED_STEMS and languages != languages_of(rule):
        if not set(content_words(sentence)) & set(content_words(rule)):
            return 0.0
    if is_withdrawal(lowered, languages):
        return alike if shared >= SHARED_STEMS or alike >= LIKENESS else 0.0
    if _forbids(sentence) == _forbids(rule):
        return 0.0
    if is_release(lowered, languages) and (shared >= SHARED_STEMS or alike >= LIKENESS_OF_RELEASE):
        return alike
    contradicts = shared >= SHARED_STEMS and alike >= LIKENESS_OF_RULES
    contradicts = contradicts and not _statement(sentence).names_other(_statement(rule))
    return alike if contradicts and is_rule(lowered, languages, asks=False) else 0.0


def may_take_back(sentence: str, rule: str) -> float:
    """Return how much a sentence, no question, has to do with a rule that it may take back: they
    share most words, or half of them and one forbids; 0 when it speaks of something else."""
    named, about = stems_of(sentence), stems_of(rule)
    if len(named & about) < SHARED_STEMS:
        return 0.0
    alike = likeness(named, about)
    if alike >= SURELY_ABOUT or (
        alike >= LIKENESS_OF_DOUBT and _forbids(sentence) != _forbids(rule)
    ):
        return alike
    return 0.0


@lru_cache(1024)
def stems_of(text: str) -> frozenset[str]:
    """Return what a text is about."""
    return stems(content_words(text))


@lru_cache(256)
def _forbids(text: str) -> bool:
    return is_negative(text.lower(), languages_of(text))
