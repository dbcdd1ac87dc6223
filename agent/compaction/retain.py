"""Which of the user's rows stay verbatim longest when not all can. Pure.

Nothing here decides what may be lost for good: it is an order, and the archive has every row. It
goes by what a row is for, not by its topic: what stands for longer than one piece of work comes
before errands, and errands before chatter.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Set
from dataclasses import field

from agent.base.messages import Message, text_of
from agent.base.record import dataclass

CHATTER_CHARS = 24
"""A user message this short, without a figure or a path in it, leaves before all others."""

_TELLING = frozenset("0123456789/\\_`\"'@#=:{}[]<>")
_PARAGRAPH = re.compile(r"\n\s*\n")
_NAMED = re.compile(
    r"(?:[\w.@~-]*/)+[\w.@-]+\.\w{1,8}\b|https?://\S|\b[\w-]+\.(?:py|js|ts|go|rs|java|md|json|ya?ml"
    r"|toml|txt|csv|sh|sql|html|css|c|cpp|h|log)\b"
)
"""A file or a page: a request that names one is about that one."""
_ASKS = re.compile(r"[?？](?:[\s\"'”»」』)]|$)")
_WORD = re.compile(r"\w+")
_LONG_CHARS = 1_200
"""A longer row mostly carries something to work on, and costs what many short ones do."""


@dataclass(frozen=True)
class Standing:
    """What the store knows of user rows: `seqs` of those that lay something down, take it back or
    decide, and what each request says of some rows anyway, in pins."""

    seqs: Set[int] = frozenset()
    pinned: Mapping[int, str] = field(default_factory=dict)


NOTHING_STANDS = Standing()


def retention_rank(row: Message, standing: Standing) -> int:
    """Return where a row stands in the order: a lower number stays longer."""
    seq, text = row.get("_seq", 0), text_of(row.get("content"))
    whole = isinstance(row.get("content"), str)
    stands = seq in standing.seqs
    if seq in standing.pinned and _rest(text, standing.pinned[seq]) < CHATTER_CHARS:
        return 2
    if stands and seq not in standing.pinned:
        return 0
    if whole and len(text.strip()) <= CHATTER_CHARS and not _TELLING.intersection(text):
        return 4
    if len(text) > _LONG_CHARS or all(map(_is_errand, _PARAGRAPH.split(text))):
        return 3
    return 1


def _rest(text: str, said: str) -> int:
    """Return how many letters of a text are in words that `said` has not."""
    known = set(_WORD.findall(said))
    return sum(len(word) for word in _WORD.findall(text) if word not in known)


def _is_errand(paragraph: str) -> bool:
    """Return whether a paragraph asks, or wants one thing done that it names."""
    return bool(_ASKS.search(paragraph) or _NAMED.search(paragraph))
