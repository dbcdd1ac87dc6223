"""Which values replaced which: only the last of a subject is current. Pure.

A later value of the same shape replaces an earlier one when its sentence says that something
changed and is about the same, or when both are about nearly the same. Two values of one row are
two things, and so are two that only look alike.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from functools import lru_cache

from agent.base.extract_words import stem
from agent.base.record import dataclass
from agent.base.restate import is_restated, is_same
from agent.sessions.records import StoredExtract

CHANGED = "now"
ALIKE = 0.5
"""Part of the smaller subject that a change must share."""
_REMEMBERED = 12
"""Newest values looked at for each word, so that resolving stays linear."""
_FIGURES = re.compile(r"\d+")
_ID = re.compile(r"(?=.*\d)[\w#-]{5,}", re.ASCII)
_HEX = re.compile(r"(?=\d*[a-f])[0-9a-f]{6,64}")
_RUN = re.compile(r"[a-z0-9]+")
_UNIT = re.compile(r"^9(?:[.,]9)?\s*")


@dataclass(frozen=True)
class _Known:
    place: int
    seq: int
    shape: str
    words: tuple[str, ...]
    stems: frozenset[str]
    own: bool
    """Whether the user says it."""


def replaced_values(extracts: Iterable[StoredExtract], *, perhaps: bool = False) -> dict[int, int]:
    """Return which extract replaced which, as indexes of the input; a chain leads to the newest.

    `extracts` come newest first, as the store gives them. With `perhaps` also which may have: a
    value of the same sort that shares half of the smaller subject, in whatever words.
    """
    values = [(place, each) for place, each in enumerate(extracts) if is_value(each)]
    newest_by_word: dict[str, list[_Known]] = {}
    replaced: dict[int, int] = {}
    texts = {place: each.value for place, each in values}
    for place, each in reversed(values):
        known = _known(place, each)
        standing = {old.place: old for word in known.stems for old in newest_by_word.get(word, ())}
        older = _replaced_by(
            known,
            (
                old
                for old in standing.values()
                if old.place not in replaced and texts[old.place] != each.value
            ),
            changed=perhaps or each.subject.startswith(f"{CHANGED} "),
        )
        if older is not None:
            replaced[older.place] = place
        for word in known.stems:
            remembered = newest_by_word.setdefault(word, [])
            remembered.append(known)
            del remembered[:-_REMEMBERED]
    return replaced


def nearest_later(extracts: Sequence[StoredExtract], places: Iterable[int]) -> set[int]:
    """Return for each place the later value of the same sort that is likest in its subject, if any
    shares a word with it. `extracts` come newest first, as the store gives them."""
    wanted = [_known(place, extracts[place]) for place in places]
    words = frozenset[str]().union(*(each.stems for each in wanted))
    if not words:
        return set()
    known = (_known(place, each) for place, each in enumerate(extracts))
    likely = [each for each in known if each.stems & words]
    found = set[int]()
    for old in wanted:
        later = [
            (len(old.stems & new.stems), new.seq, new.place)
            for new in likely
            if new.seq > old.seq and old.stems & new.stems and _same_sort(old.shape, new.shape)
        ]
        if later:
            found.add(max(later)[2])
    return found


def is_value(extract: StoredExtract) -> bool:
    """Return whether something may replace what an extract says; of ids and links only the user's
    own, for tools and answers tell of many."""
    if extract.kind != "identifier":
        return extract.kind == "value"
    named = "://" in extract.value or _ID.fullmatch(extract.value)
    return extract.role == "user" and bool(extract.subject and named)


def _known(place: int, extract: StoredExtract) -> _Known:
    words = tuple(map(stem, extract.subject.removeprefix(f"{CHANGED} ").split()))
    own = extract.role == "user"
    return _Known(place, extract.seq, shape_of(extract.value), words, frozenset(words), own)


def _replaced_by(new: _Known, standing: Iterable[_Known], *, changed: bool) -> _Known | None:
    """Return the earlier value that a new one replaces: the likest, then the newest."""
    best: tuple[float, int] = (0.0, 0)
    chosen: _Known | None = None
    for old in standing:
        if old.seq == new.seq or not _same_sort(old.shape, new.shape):
            continue
        shared = len(old.stems & new.stems)
        alike = shared / min(len(old.stems), len(new.stems))
        told = changed and (alike >= ALIKE or shared > 1)
        same = is_same(old.words, new.words)
        restated = old.own and new.own and is_restated(old.words, new.words)
        if not told and not same and not restated:
            continue
        if (alike, old.seq) > best:
            best, chosen = (alike, old.seq), old
    return chosen


@lru_cache(4096)
def shape_of(value: str) -> str:
    """Return what values of one sort have in common: `9 mb`, `9.9.9.9`, `9-9-9`, `host`, `id x`."""
    if "://" in value:
        return "link"
    if _HEX.fullmatch(value):
        return "id x"
    shape = _FIGURES.sub("9", value.lower())
    if shape.startswith(("9", "v9", "$9", "€9", "£9", "+9", "-9")):
        return shape
    if "." in shape or ":" in shape:
        return "host"
    return f"id {_RUN.sub('x', shape)}" if _ID.fullmatch(value) else "word"


@lru_cache(4096)
def _same_sort(one: str, other: str) -> bool:
    """Return whether two shapes can be values of one thing; a unit may be left out, and a hash may
    have no letter in it."""
    if one == other or {one, other} == {"9", "id x"}:
        return True
    first, second = _UNIT.match(one), _UNIT.match(other)
    if not first or not second:
        return False
    units = (one[first.end() :], other[second.end() :])
    return "" in units and not set("".join(units)) & set(".-/:")
