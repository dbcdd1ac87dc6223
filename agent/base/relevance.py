"""How well a text answers a question of a few words, and where in it the answer stands. Pure.

Words count by how rare they are, as parts of longer words too: compounds and endings differ between
a question and what was said. Chinese and Japanese are compared by pairs of signs.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import NamedTuple

from agent.base.extract_words import content_words, stem

PASSAGE_CHARS = 400
"""About how much text an answer stands in; a longer text is judged by its best part."""
PAIR = 0.6
"""What a pair of signs counts: of a run of them each says only a part."""
PART, PART_COUNTS = 4, 0.25
"""What the first and the last letters of a longer word count: other forms of it begin with them,
and a compound ends in what it is; its very last letter may be an ending."""
INSIDE = 0.7
"""What a word counts that is found inside a longer one."""
_MOST_PLACES = 200
_NAMED = re.compile(
    r"[^\s\"'()\[\]{}<>,;，。、；！？?!]*[\d/\\_@#][^\s\"'()\[\]{}<>,;，。、；！？?!]*"
)
_CJK = re.compile(r"[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7a3]")
_CLOSE = 0.25
"""What it adds at most that the words stand close together."""


class Passage(NamedTuple):
    """The best part of a text: how well it answers, and where it stands."""

    score: float
    start: int
    end: int


def words_of(question: str) -> dict[str, float]:
    """Return what a question looks for, in lower case, and what each counts by itself.

    Names and figures are looked for as they are, words by their stems and, which counts less, by
    their first letters and by the end of a long one: compounds say there what they are. Of a run of
    signs each pair says only a part. Function words count only when there is nothing else.
    """
    folded = question.casefold()
    found = {name: 1.0 for each in _NAMED.findall(folded) if (name := each.strip(".:-"))}
    rest = _NAMED.sub(" ", folded)
    words = content_words(rest) or rest.split()
    for word in words:
        pair = len(word) == 2 and _CJK.search(word)
        found.setdefault(stem(word), PAIR if pair else 1.0)
    for word in words:
        if len(word) > PART + 1 and not _CJK.search(word):
            found.setdefault(word[:PART], PART_COUNTS)
        if len(word) > PART + 2 and not _CJK.search(word):
            found.setdefault(word[-PART - 1 : -1], PART_COUNTS)
    return found


def is_named(question: str) -> bool:
    """Return whether a question holds nothing but names and figures, which are there or are not."""
    return not _NAMED.sub("", question).strip()


def weights_of(
    words: Mapping[str, float], counts: Mapping[str, int], total: int
) -> dict[str, float]:
    """Return what each word counts among `total` texts, of which `counts` hold it."""
    return {
        word: math.log(1 + max(total, 1) / max(counts.get(word, 0), 1)) * alone
        for word, alone in words.items()
    }


def best_passage(folded: str, weights: Mapping[str, float]) -> Passage:
    """Return the part of a case-folded text that says most of the words, the shortest such."""
    places: list[tuple[int, str, float]] = []
    for word, weight in weights.items():
        places.extend(_places(folded, word, weight))
    places.sort()
    best, first = Passage(0.0, 0, 0), 0
    held: dict[str, list[float]] = {}
    for position, word, weight in places:
        held.setdefault(word, []).append(weight)
        while position - places[first][0] > PASSAGE_CHARS:
            held[places[first][1]].pop(0)
            first += 1
        start, end = places[first][0], position + len(word)
        found = sum(max(each) for each in held.values() if each)
        close = 1 - min(1.0, (end - start) / PASSAGE_CHARS)
        score = found * (1 + _CLOSE * close)
        if score > best.score:
            best = Passage(score, start, end)
    return best


def _places(folded: str, word: str, weight: float) -> list[tuple[int, str, float]]:
    """Return where a word begins, or is a part of another; a short one only as a whole word."""
    found: list[tuple[int, str, float]] = []
    position = folded.find(word)
    plain = word.isascii()
    while position >= 0 and len(found) < _MOST_PLACES:
        end = position + len(word)
        begins = not (plain and folded[position - 1 : position].isalnum())
        ends = not folded[end : end + 1].isalnum()
        if len(word) > 3 or not plain or (begins and ends):
            found.append((position, word, weight if begins else weight * INSIDE))
        position = folded.find(word, end)
    return found
