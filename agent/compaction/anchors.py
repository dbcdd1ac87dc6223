"""How what a summary left out is shown at its end, word for word, and taken off again. Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence

from agent.base.headings import split_heading
from agent.base.messages import Message, text_of
from agent.base.record import dataclass
from agent.base.tokens import estimate_text
from agent.sessions.records import StoredExtract

HEADING = "## Word for word"
_MADE_BY_PASS = frozenset({"summary", "mechanical"})
FACTS = frozenset({"value", "identifier"})
SUBJECT_WORDS = 4
_PLAIN = re.compile(r"[/\\ ]|\w\.\w")
"""Paths, links and whole lines say by themselves what they are."""
_BLOCK = re.compile(rf"\n*^{re.escape(HEADING)}$.*\Z", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True)
class Anchor:
    """One thing that a row said, as it is shown."""

    seq: int
    told: str


def tell(extract: StoredExtract, was: str) -> str:
    """Return an extract as an anchor: what it belongs to, its words, and what it replaced."""
    value = " ".join(extract.value.split()) if "\n" in extract.value else extract.value
    if extract.kind == "task":
        return f"task {extract.subject}: {value}"
    if extract.kind == "instruction" and split_heading(value)[0]:
        return value
    if extract.kind not in FACTS:
        return f"{extract.kind}: {value}"
    replaced = f" (was {was})" if was else ""
    subject = " ".join(extract.subject.removeprefix("now ").split()[:SUBJECT_WORDS])
    if not subject or (extract.kind == "identifier" and _PLAIN.search(value)):
        return f"{value}{replaced}"
    return f"{subject}: {value}{replaced}"


def render_anchors(anchors: Sequence[Anchor]) -> str:
    """Return the block of anchors by row; those of one row share a line."""
    by_seq: dict[int, list[str]] = {}
    for anchor in sorted(anchors, key=lambda anchor: anchor.seq):
        by_seq.setdefault(anchor.seq, []).append(anchor.told)
    return "\n".join([HEADING, *(f"- [{seq}] {'; '.join(told)}" for seq, told in by_seq.items())])


def strip_anchors(row: Message) -> Message:
    """Return a summary's row without the anchors that its pass added: the next makes its own."""
    content = text_of(row.get("content"))
    notes = _BLOCK.sub("", content)
    return row if notes == content else {**row, "content": notes}


def anchor_tokens(row: Message) -> int:
    """Return what the anchors of a summary's row take, 0 for any other row."""
    found = (
        _BLOCK.search(text_of(row.get("content"))) if row.get("_kind") in _MADE_BY_PASS else None
    )
    return estimate_text(found[0]) if found else 0
