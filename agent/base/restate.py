"""Does a later statement say anew what an earlier one said, with another name or figure? Pure.

Two wordings of one thing share most of their words. Two that differ in a word at one place as well,
as "the staging port" and "the test port" do, speak of two things.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from functools import cache
from itertools import chain

from agent.base.extract_words import content_words, names_in, stem, stems
from agent.base.headings import split_heading
from agent.base.record import dataclass

ALIKE = 2 / 3
"""Part of the words of the shorter of two statements that both have."""
SAME = 0.6
"""Part of all words that they share when their order does not matter."""
_STATEMENT_CHARS = 240
"""A longer text states more than one thing."""
_NAMING = re.compile(r"[0-9/_@]|[^\W\d_][ ,:’']{1,2}[^\W\d_a-z]")
"""A text without a figure, a path or a capital letter in it names nothing."""
_RUN = re.compile(r"[!-~]+")
_EXACT = frozenset("0123456789/_@")
"""What holds one of these is meant letter by letter: a figure, an id, a path."""
_MARKS = ".,:;!?()[]{}<>'\"`"
_DIGITS = frozenset("0123456789")
_DIGIT = re.compile(r"\d")
_LIKELY = 0.3
"""Part of all words that two statements to be looked at share at least, names among them."""
_LIKELIEST = 3
_REMEMBERED = 12
"""Newest statements looked at for each word, so that the work grows with the texts alone."""


def renamed(texts: Sequence[str]) -> dict[int, int]:
    """Return by index which texts another says anew later, with another name or figure."""
    found: dict[int, int] = {}
    sizes: dict[int, int] = {}
    newest: dict[str, list[int]] = {}
    statement = cache(lambda place: Statement.of(texts[place]))
    for text, place in reversed({text: place for place, text in enumerate(texts)}.items()):
        if len(text) > _STATEMENT_CHARS or not _NAMING.search(text):
            continue
        words = stems(content_words(text))
        remembered = [newest.setdefault(word, []) for word in words]
        sizes[place] = len(words)
        for at, shared in Counter(chain.from_iterable(remembered)).most_common(_LIKELIEST):
            if shared < max(2, _LIKELY * min(len(words), sizes[at])):
                break
            if statement(place).is_revised_by(statement(at)):
                found[place] = at
                break
        for places in remembered:
            places.append(place)
            if len(places) > _REMEMBERED:
                del places[0]
    return found


@dataclass(frozen=True)
class Statement:
    """A short text by its parts: the heading in capitals before it, its words, what it names."""

    heading: str
    words: tuple[str, ...]
    names: frozenset[str]
    figures: frozenset[str]

    @classmethod
    def of(cls, text: str) -> Statement:
        """Take a text apart."""
        heading, text = split_heading(text)
        exact: set[str] = set()

        def take(run: re.Match[str]) -> str:
            if _EXACT.isdisjoint(run[0]):
                return run[0]
            exact.add(run[0].strip(_MARKS).lower())
            return " "

        rest = _RUN.sub(take, text)
        figures = frozenset(each for each in exact if not _DIGITS.isdisjoint(each))
        names = names_in(rest) | (exact - figures)
        words = tuple(stem(word) for word in content_words(rest) if word not in names)
        return cls(heading, words, names, figures)

    def is_revised_by(self, later: Statement) -> bool:
        """Return whether a later statement is of the same, and names another; two with
        figures of another form must be nearly the same, for rows of figures are many."""
        if self.heading != later.heading:
            return False
        if self.names and later.names:
            return self.names_other(later) and is_restated(self.words, later.words)
        other, new = self.figures - later.figures, later.figures - self.figures
        if not other or not new:
            return False
        if sorted(map(_shape, other)) == sorted(map(_shape, new)):
            return is_restated(self.words, later.words)
        return is_same(self.words, later.words)

    def names_other(self, other: Statement) -> bool:
        """Return whether both name something, and nothing that is the same."""
        return bool(self.names and other.names) and self.names.isdisjoint(other.names)


def _shape(figure: str) -> str:
    """Return how a figure is written, whatever its digits."""
    return _DIGIT.sub("9", figure)


def with_gaps(text: str, statement: Statement) -> str:
    """Return a statement's text in lower case with `@` for what it names; names side by side are
    one gap."""
    named = "|".join(map(re.escape, sorted(statement.names | statement.figures)))
    name = f"(?<![a-z0-9_])(?:{named})(?![a-z0-9_])"
    return re.sub(rf"{name}(?:\W+{name})*", "@", text.lower()) if named else text.lower()


def is_restated(old: Sequence[str], new: Sequence[str]) -> bool:
    """Return whether two runs of words are two wordings of one thing: they share most of all words,
    or, in one order, most of those of the shorter."""
    one, other = frozenset(old), frozenset(new)
    common = one & other
    shared, smaller = len(common), min(len(one), len(other))
    if shared < 2 or shared < ALIKE * smaller or is_pair(old, new):
        return False
    in_order = [word for word in old if word in common] == [word for word in new if word in common]
    near = shared == smaller or len(one | other) < 2 * smaller
    return (in_order and near) or shared >= SAME * len(one | other)


def is_same(old: Sequence[str], new: Sequence[str]) -> bool:
    """Return whether two runs of words share most of all words, in whatever order."""
    one, other = frozenset(old), frozenset(new)
    shared = len(one & other)
    return shared > 1 and shared >= SAME * len(one | other) and not is_pair(old, new)


def is_pair(one: Sequence[str], other: Sequence[str]) -> bool:
    """Return whether two runs of words differ at one place alone, and in as many words there."""
    if len(one) != len(other):
        return False
    pairs = zip(one, other, strict=True)
    places = [at for at, (left, right) in enumerate(pairs) if left != right]
    apart = slice(places[0], places[-1] + 1) if places else slice(0)
    return bool(places) and not {*one[apart]} & {*other[apart]}
