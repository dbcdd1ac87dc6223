"""Which rows each section of a summary came from, so that a reader can go and look. Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from agent.base.seqs import seq_ranges
from agent.sessions.records import StoredExtract

CITED_MAX_CHARS = 48
TELLING_CHARS = 4
"""A shorter value stands in too many rows to say where a section came from."""
_HEADING = re.compile(r"^(##? [^\n]+?)(?: \[([\d,\- ]+)\])?[ \t]*$", re.MULTILINE)
_NUMBERS = re.compile(r"\[#?(\d{1,9})(?:[-–](\d{1,9}))?(?:,[ \d,–-]*)?\]")
_MORE = re.compile(r"(\d{1,9})(?:[-–](\d{1,9}))?")
_LONGEST_RANGE = 10_000


def cite_sections(
    text: str, covered: Sequence[int], extracts: Sequence[StoredExtract]
) -> tuple[str, list[dict[str, Any]]]:
    """Return the text with rows behind its headings, and each section's rows for the receipt.

    A section came from the rows it names and from those whose identifiers it repeats; the latter
    are written behind its heading. One that gives no hint came from everything that was covered.
    Shape: `[{"heading": "Done", "rows": "3,9-12"}]`, in order.
    """
    known = [seq for seq in covered if seq]
    if not known:
        return text, []
    last, whole = max(known), set(known)
    telling = [e for e in extracts if e.seq in whole and len(e.value) >= TELLING_CHARS]
    marks = list(_HEADING.finditer(text))
    bounds = [*(mark.start() for mark in marks), len(text)]
    pieces, sections = [text[: bounds[0]]], []
    for mark, end in zip(marks, bounds[1:], strict=True):
        body = text[mark.end() : end]
        named = {seq for seq in _named(body) if seq <= last}
        behind = {seq for seq in _named(f"[{mark[2] or ''}]") if seq <= last}
        behind |= {each.seq for each in telling if each.value in body}
        sections.append({"heading": mark[1].lstrip("# "), "rows": _short(named | behind or whole)})
        unnamed = behind - named
        pieces += (f"{mark[1]} [{_short(unnamed)}]" if unnamed else mark[1], body)
    if not marks:
        return text, [{"heading": "", "rows": _short(whole)}]
    return "".join(pieces), sections


def _named(text: str) -> set[int]:
    """Return the row numbers that a text names in brackets."""
    named: set[int] = set()
    for group in _NUMBERS.finditer(text):
        for first, last in _MORE.findall(group[0]):
            begin, end = int(first), int(last or first)
            if 0 < begin <= end <= begin + _LONGEST_RANGE:
                named.update(range(begin, end + 1))
    return named


def _short(seqs: set[int]) -> str:
    """Return ranges of seqs, from the first to the last in one when they are many."""
    ranges = seq_ranges(seqs)
    return ranges if len(ranges) <= CITED_MAX_CHARS else f"{min(seqs)}-{max(seqs)}"
