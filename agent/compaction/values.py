"""Which values replaced which: only the last of a subject is current. Pure.

A later value of the same shape replaces an earlier one when its sentence says that something
changed and is about the same, or when both are about nearly the same. Two values of one row are
two things, and so are two that only look alike.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache

from agent.base.extract_words import stems
from agent.base.record import dataclass
from agent.sessions.records import StoredExtract

CHANGED = "now"
ALIKE = 0.5
"""Part of the smaller subject that a change must share; without a change, of all their words."""
SAME = 0.6
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
    stems: frozenset[str]


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
        words = each.subject.split()
        changed = bool(words) and words[0] == CHANGED
        known = _Known(place, each.seq, shape_of(each.value), stems(words[changed:]))
        standing = {old.place: old for word in known.stems for old in newest_by_word.get(word, ())}
        older = _replaced_by(
            known,
            (
                old
                for old in standing.values()
                if old.place not in replaced and texts[old.place] != each.value
            ),
            changed=changed or perhaps,
        )
        if older is not None:
            replaced[older.place] = place
        for word in known.stems:
            remembered = newest_by_word.setdefault(word, [])
            remembered.append(known)
            del remembered[:-_REMEMBERED]
    return replaced


def is_value(extract: StoredExtract) -> bool:
    """Return whether something may replace what an extract says; of ids and links only the user's
    own, for tools and answers tell of many."""
    if extract.kind != "identifier":
        return extract.kind == "value"
    named = "://" in extract.value or _ID.fullmatch(extract.value)
    return extract.role == "user" and bool(extract.subject and named)


def _replaced_by(new: _Known, standing: Iterable[_Known], *, changed: bool) -> _Known | None:
    """Return the earlier value that a new one replaces: the likest, then the newest."""
    best: tuple[float, int] = (0.0, 0)
    chosen: _Known | None = None
    for old in standing:
        if old.seq == new.seq or not _same_sort(old.shape, new.shape):
            continue
        shared = len(old.stems & new.stems)
        together = len(old.stems) + len(new.stems) - shared
        alike = shared / min(len(old.stems), len(new.stems))
        told = changed and (alike >= ALIKE or shared > 1)
        if not told and not (shared > 1 and shared / together >= SAME):
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
    """Return whether two shapes can be values of one thing; a unit may be left out."""
    if one == other:
        return True
    first, second = _UNIT.match(one), _UNIT.match(other)
    if not first or not second:
        return False
    units = (one[first.end() :], other[second.end() :])
    return "" in units and not set("".join(units)) & set(".-/:")
