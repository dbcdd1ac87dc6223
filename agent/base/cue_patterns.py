"""Many patterns looked for at once: each is tried only where a word begins like it.

Patterns are alternatives on text in lower case. What begins a word says so with `\\b` and letters;
anything else is searched for everywhere, which costs more.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable, Iterator

_WORD_START = re.compile(r"\b\w.?", re.DOTALL)
_REPEATED = ("?", "*", "{0")


class Cues:
    """Patterns of one kind. `search` looks everywhere, `match` at one place."""

    def __init__(self, patterns: Iterable[str]) -> None:
        by_begin: dict[str, list[str]] = {}
        anywhere: list[str] = []
        at_begin: list[str] = []
        for pattern in patterns:
            for each in alternatives(pattern):
                starts = each.startswith(r"\b")
                begins = beginnings(each.removeprefix(r"\b")) if starts else frozenset()
                for begin in begins:
                    by_begin.setdefault(begin, []).append(each)
                if not begins:
                    (at_begin if each.startswith("^") else anywhere).append(each)
        self._by_begin = {key: _one_of(found) for key, found in by_begin.items()}
        self._anywhere = _one_of(anywhere) if anywhere else None
        self._at_begin = _one_of(at_begin) if at_begin else None

    def search(self, text: str) -> bool:
        """Return whether any pattern is found in a text."""
        if self._at_begin is not None and self._at_begin.match(text):
            return True
        if self._anywhere is not None and self._anywhere.search(text):
            return True
        known = self._by_begin.get
        for at, pair, letter in _word_starts(text):
            pattern = known(pair)
            if pattern is not None and pattern.match(text, at):
                return True
            pattern = known(letter)
            if pattern is not None and pattern.match(text, at):
                return True
        return False

    def match(self, text: str, at: int) -> bool:
        """Return whether any pattern begins at a place."""
        begin = text[at : at + 2]
        patterns = (self._by_begin.get(begin), self._by_begin.get(begin[:1]), self._anywhere)
        return any(pattern is not None and pattern.match(text, at) for pattern in patterns)

    def sub(self, replacement: str, text: str) -> str:
        """Return the text with each find replaced."""
        if not self.search(text):
            return text
        for pattern in (*self._by_begin.values(), self._anywhere, self._at_begin):
            text = pattern.sub(replacement, text) if pattern is not None else text
        return text


@functools.lru_cache(maxsize=16)
def _word_starts(text: str) -> tuple[tuple[int, str, str], ...]:
    """Return where words begin, each with its first two signs and its first."""
    return tuple((at.start(), at[0], at[0][0]) for at in _WORD_START.finditer(text))


def _one_of(patterns: Iterable[str]) -> re.Pattern[str]:
    return re.compile("|".join(f"(?:{each})" for each in patterns))


def alternatives(pattern: str) -> list[str]:
    """Return what stands between the bars of a pattern that are in no group."""
    found, start = list[str](), 0
    for at, sign, depth in _signs(pattern):
        if sign == "|" and not depth:
            found.append(pattern[start:at])
            start = at + 1
    return [*found, pattern[start:]]


def beginnings(pattern: str) -> frozenset[str]:
    """Return the letters, two where they are sure, that a pattern may begin with; none when it may
    begin with anything else."""
    if pattern.startswith("(?:"):
        end = next((at for at, sign, depth in _signs(pattern) if sign == ")" and not depth), 0)
        if pattern.startswith(_REPEATED, end + 1):
            inner, rest = beginnings(pattern[: end + 1]), beginnings(pattern[end + 2 :])
            return inner | rest if inner and rest and pattern[end + 1] == "?" else frozenset()
        found = [beginnings(each) for each in alternatives(pattern[3:end])]
        return frozenset[str]().union(*found) if all(found) else frozenset()
    if not pattern[:1].isalnum() or pattern.startswith(_REPEATED, 1):
        return frozenset()
    pair = pattern[1:2].isalnum() and not pattern.startswith(_REPEATED, 2)
    return frozenset((pattern[: 1 + pair],))


def _signs(pattern: str) -> Iterator[tuple[int, str, int]]:
    """Yield bars and closing brackets with the depth of groups around them."""
    depth, at, in_set = 0, 0, False
    while at < len(pattern):
        sign = pattern[at]
        if sign == "\\":
            at += 1
        elif in_set:
            in_set = sign != "]"
        elif sign == "[":
            in_set = True
        elif sign == "(":
            depth += 1
        elif sign == ")":
            depth -= 1
            yield at, sign, depth
        elif sign == "|":
            yield at, sign, depth
        at += 1
