"""Patterns of many kinds looked for in one go: each is tried only where a text begins like it.

Patterns are alternatives on text in lower case. What begins a word says so with `\\b` and letters,
what begins with a sign of Chinese or Japanese with that; anything else is searched for everywhere,
which costs more. A pattern is compiled when a text first has its beginning.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterable, Iterator, Mapping

BEGIN_CHARS = 4
_SIGNS = 2
_MOST_KEPT = 8_192
_WORD_BEGIN = re.compile(rf"\b\w{{1,{BEGIN_CHARS}}}")
_LETTERS = re.compile(r"\[[\w ,’']+\]")
_AROUND = ("?=", "?!", "?<=", "?<!")

_Try = Callable[[str, int], object]


class Cues:
    """Patterns with the bit of their kind. `find` tells in one number which kinds a text has.

    Those of the kinds in `of_clauses` count only where `begins_clause` says so of a place.
    """

    def __init__(
        self,
        patterns: Iterable[tuple[int, str]],
        of_clauses: int = 0,
        begins_clause: _Try = lambda _text, _at: True,
    ) -> None:
        words: dict[str, list[tuple[int, str]]] = {}
        signs: dict[str, list[tuple[int, str]]] = {}
        elsewhere: dict[bool, list[tuple[int, str]]] = {True: [], False: []}
        for kind, pattern in patterns:
            for each, begins in _split(pattern):
                if not begins:
                    elsewhere[each.startswith("^")].append((kind, each))
                for begin in begins:
                    known = words if each.startswith(r"\b") else signs
                    known.setdefault(begin, []).append((kind, each))
        self._words = _Begins(words)
        self._signs = _Begins(signs)
        self._sign = (
            re.compile(f"[{re.escape(''.join({each[0] for each in signs}))}]") if signs else None
        )
        self._first = [(kind, each.match) for kind, each in _by_kind(elsewhere[True])]
        self._anywhere = [(kind, each.search) for kind, each in _by_kind(elsewhere[False])]
        self._of_clauses = of_clauses
        self._begins_clause = begins_clause

    def find(self, text: str) -> int:
        """Return the bits of the kinds that a text has a pattern of."""
        found = 0
        for kind, has in (*self._first, *self._anywhere):
            if not found & kind and has(text):
                found |= kind
        if self._words.given:
            for begin in _WORD_BEGIN.finditer(text):
                elsewhere = 0
                for kind, matches in self._words[begin[0]]:
                    if (found | elsewhere) & kind:
                        continue
                    at = begin.start()
                    if kind & self._of_clauses and not self._begins_clause(text, at):
                        elsewhere = self._of_clauses
                    elif matches(text, at):
                        found |= kind
        if self._sign is not None:
            for begin in self._sign.finditer(text):
                at = begin.start()
                for kind, matches in self._signs[text[at : at + _SIGNS]]:
                    if not found & kind and matches(text, at):
                        found |= kind
        return found


class _Begins(dict[str, tuple[tuple[int, _Try], ...]]):
    """What may match where a text begins like the key, by kind; made when it is first asked for."""

    def __init__(self, patterns: Mapping[str, list[tuple[int, str]]]) -> None:
        super().__init__()
        self.given = patterns

    def __missing__(self, begin: str) -> tuple[tuple[int, _Try], ...]:
        keys = [*(begin[:size] for size in range(len(begin) + 1)), f"{begin} "]
        given = [each for key in keys for each in self.given.get(key, ())]
        found = tuple((kind, each.match) for kind, each in _by_kind(given))
        if len(self) < _MOST_KEPT:
            self[begin] = found
        return found


def _by_kind(patterns: Iterable[tuple[int, str]]) -> list[tuple[int, re.Pattern[str]]]:
    """Return one pattern a kind."""
    given: dict[int, dict[str, None]] = {}
    for kind, pattern in patterns:
        given.setdefault(kind, {})[pattern] = None
    return [(kind, one_of(tuple(each))) for kind, each in given.items()]


@functools.cache
def one_of(patterns: tuple[str, ...]) -> re.Pattern[str]:
    """Return the pattern of alternatives, compiled once."""
    return re.compile("|".join(f"(?:{each})" for each in patterns))


@functools.cache
def _split(pattern: str) -> tuple[tuple[str, frozenset[str]], ...]:
    """Return the alternatives of a pattern with their beginnings, none when it may be anywhere."""
    found = list[tuple[str, frozenset[str]]]()
    for each in alternatives(pattern):
        begins = beginnings(each)
        if not each.startswith(r"\b"):
            begins = frozenset(begin.strip()[:_SIGNS] for begin in begins)
            begins = frozenset() if "" in begins or each.startswith("^") else begins
        found.append((each, begins))
    return tuple(found)


def alternatives(pattern: str) -> list[str]:
    """Return what stands between the bars of a pattern that are in no group."""
    found, start = list[str](), 0
    for at, sign, depth in _signs(pattern):
        if sign == "|" and not depth:
            found.append(pattern[start:at])
            start = at + 1
    return [*found, pattern[start:]]


def beginnings(pattern: str, begun: str = "") -> frozenset[str]:
    """Return what a match may begin with: up to four letters, less where no more are sure, and a
    space behind a shorter word that surely ends. "" stands for anything."""
    while pattern and len(begun) < BEGIN_CHARS:
        part, rest = _first_part(pattern)
        if part[1:].startswith(_AROUND) or (part == r"\b" and not begun):
            pattern = rest
            continue
        repeat = rest[:1] if rest[:1] in ("?", "*", "+", "{") else ""
        if repeat == "*" or rest.startswith("{0"):
            break
        if part.startswith("(?:") or _LETTERS.fullmatch(part):
            choices = alternatives(part[3:-1]) if part[0] == "(" else list(part[1:-1])
            after = {"": rest, "?": rest[1:]}.get(repeat, ".")
            found = [beginnings(choice + after, begun) for choice in choices]
            found += [beginnings(rest[1:], begun)] if repeat == "?" else []
            return frozenset[str]().union(*found)
        if part.isalnum():
            if repeat == "?":
                return beginnings(rest[1:], begun + part) | beginnings(rest[1:], begun)
            begun += part
            if repeat:
                break
            pattern = rest
        elif begun and repeat in ("", "+") and part in (r"\b", r"\s", " ", ",", "-", "'", "’"):
            return frozenset((f"{begun} ",))
        else:
            break
    return frozenset((begun,))


def _first_part(pattern: str) -> tuple[str, str]:
    """Return the first sign, set or group of a pattern, and the rest."""
    size = 1 + pattern.startswith("\\")
    if pattern[0] == "[":
        size = next(at for at, sign, _ in _signs(pattern) if sign == "]") + 1
    elif pattern[0] == "(":
        size = next(at for at, sign, depth in _signs(pattern) if sign == ")" and not depth) + 1
    return pattern[:size], pattern[size:]


def _signs(pattern: str) -> Iterator[tuple[int, str, int]]:
    """Yield bars, ends of sets and closing brackets with the depth of groups around them."""
    depth, at, in_set = 0, 0, False
    while at < len(pattern):
        sign = pattern[at]
        if sign == "\\":
            at += 1
        elif in_set:
            in_set = sign != "]"
            if not in_set:
                yield at, sign, depth
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
