"""Which of the user's rows stay verbatim longest when not all can. Pure.

Nothing here decides what may be lost for good: it is an order, and the archive has every row. It
goes by what a row is for, not by its topic: what stands for longer than one piece of work comes
before errands, and errands before chatter.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import field
from enum import IntEnum
from typing import TYPE_CHECKING

from agent.base.later import later
from agent.base.messages import Message, is_user_text, text_of
from agent.base.pattern import pattern
from agent.base.record import dataclass
from agent.compaction.budget import row_tokens

if TYPE_CHECKING:
    from agent.base import extract_words, restate
else:
    extract_words, restate = later("agent.base", "extract_words", "restate")

CHATTER_CHARS = 24
"""A user message this short, without a figure or a path in it, leaves before all others."""

_TELLING = frozenset("0123456789/\\_`\"'@#=:{}[]<>")
_PARAGRAPH = pattern(r"\n\s*\n")
_NAMED = pattern(
    r"(?:[\w.@~-]*/)+[\w.@-]+\.\w{1,8}\b|https?://\S|\b[\w-]+\.(?:py|js|ts|go|rs|java|md|json|ya?ml"
    r"|toml|txt|csv|sh|sql|html|css|c|cpp|h|log)\b"
)
"""A file or a page: a request that names one is about that one."""
_ASKS = pattern(r"[?？](?:[\s\"'”»」』)]|$)")
_WORD = pattern(r"\w+")
_PIECE = pattern(
    r"[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7a3]|[^\W\u3040-\u30ff\u3400-\u9fff\uac00-\ud7a3]+"
)
_REVISED_CHARS = 400
"""A longer text is hardly said again with another figure."""
_FRAME = 3
"""First or last words that two wordings of one thing share."""
AGE = 0.5
"""How much more the oldest row must say for its length than the newest."""
ANEW = 0.5
"""How much less a row that says something anew must say for its length: it was spoken of twice."""
_LONG_CHARS = 1_200
"""A longer row mostly carries something to work on, and costs what many short ones do."""


@dataclass(frozen=True)
class Standing:
    """What the store knows of user rows: `seqs` of those that lay something down, take it back or
    decide, `outdated` those that only state values which were replaced, `anew` those that replaced
    one, and what each request says of some rows anyway, in pins."""

    seqs: Set[int] = frozenset()
    outdated: Set[int] = frozenset()
    anew: Set[int] = frozenset()
    pinned: Mapping[int, str] = field(default_factory=dict)


NOTHING_STANDS = Standing()


class Rank(IntEnum):
    """Why a user row stays, what stays longest first; from `REPEATED` on none does."""

    STANDS = 0
    REMARK = 1
    PINNED = 2
    """Each request says it anyway."""
    ERRAND = 3
    CHATTER = 4
    ROUTINE = 5
    """Said before, letter by letter, and nothing that stands."""
    REWORDED = 6
    """Said again later, all but a word or two."""
    REPEATED = 7
    """Said again later, letter by letter."""
    REVISED = 8
    """Said again later with another figure or name."""
    OUTDATED = 9
    """Its value was replaced in other words."""


def user_ranks(
    messages: Sequence[Message], standing: Standing, user_tokens: int = 0
) -> dict[int, tuple[int, float]]:
    """Return for each real user row its place in the order, what stays longest first.

    Of one rank the shorter and the newer rows come first: so most of what was said is kept. Where
    all fit into `user_tokens`, what was said anew of another name or figure stays beside the new.
    """
    users = [index for index, message in enumerate(messages) if is_user_text(message)]
    texts = [text_of(messages[index].get("content")) for index in users]
    sizes = [row_tokens(messages[index]) for index in users]
    revised = restate.renamed(texts) if sum(sizes) > user_tokens else {}
    again = dict.fromkeys(revised, Rank.REVISED) | said_again(texts)
    anew = set(revised.values())
    ranks: dict[int, tuple[int, float]] = {}
    for place, index in enumerate(users):
        rank, known = _rank(messages[index], standing), again.get(place, Rank.STANDS)
        if known >= Rank.REPEATED or rank is Rank.REMARK:
            rank = max(rank, known)
        weight = sizes[place] * (1 + AGE * (1 - (place + 1) / len(users)))
        if place in anew or messages[index].get("_seq") in standing.anew:
            weight *= ANEW
        ranks[index] = rank, weight
    return ranks


def said_again(texts: Sequence[str]) -> dict[int, Rank]:
    """Return by index which texts come again later, letter by letter or all but a few words, and
    which only repeat earlier ones."""
    found: dict[int, Rank] = {}
    later: dict[str, int] = {}
    known: dict[tuple[str, ...], tuple[int, frozenset[str]]] = {}
    for place in range(len(texts) - 1, -1, -1):
        if texts[place] in later:
            found[place] = Rank.REPEATED
            found[later[texts[place]]] = Rank.ROUTINE
            continue
        later[texts[place]] = place
        if len(texts[place]) > _REVISED_CHARS:
            continue
        said = _words(texts[place])
        words = frozenset(said)
        for key in ((">", *said[:_FRAME]), ("<", *said[-_FRAME:])):
            if key in known:
                newer, newer_words = known[key]
                if rank := _revision(texts[place], words, texts[newer], newer_words):
                    found[place] = max(rank, found.get(place, rank))
            known.setdefault(key, (place, words))
    return found


def _words(text: str) -> list[str]:
    """Return the words of a text; a sign of those written without spaces is one by itself."""
    pattern = _WORD if text.isascii() else _PIECE
    return pattern.findall(text.lower())


def _revision(
    old_text: str, old: frozenset[str], new_text: str, new: frozenset[str]
) -> Rank | None:
    """Return whether two texts differ by a figure, a name or a few words, and share the others."""
    shared = len(old & new)
    changed = max(len(old), len(new)) - shared
    if shared < 3 or changed > max(1, (shared + changed) // 4):
        return None
    gone, come = old - new, new - old
    if gone and all(any(map(str.isdigit, word)) for word in gone):
        return Rank.REVISED
    named = (
        gone
        and come
        and extract_words.names_in(old_text) >= gone
        and extract_words.names_in(new_text) >= come
    )
    return Rank.REVISED if named else Rank.REWORDED


def _rank(row: Message, standing: Standing) -> Rank:
    seq, text = row.get("_seq", 0), text_of(row.get("content"))
    if seq in standing.pinned and _rest(text, standing.pinned[seq]) < CHATTER_CHARS:
        return Rank.PINNED
    if seq in standing.outdated and len(text) <= _REVISED_CHARS:
        return Rank.OUTDATED
    if seq in standing.seqs and seq not in standing.pinned:
        return Rank.STANDS
    whole = isinstance(row.get("content"), str)
    if whole and len(text.strip()) <= CHATTER_CHARS and not _TELLING.intersection(text):
        return Rank.CHATTER
    if len(text) > _LONG_CHARS or all(map(_is_errand, _PARAGRAPH.split(text))):
        return Rank.ERRAND
    return Rank.REMARK


def _rest(text: str, said: str) -> int:
    """Return how many letters of a text are in words that `said` has not."""
    known = set(_WORD.findall(said))
    return sum(len(word) for word in _WORD.findall(text) if word not in known)


def _is_errand(paragraph: str) -> bool:
    """Return whether a paragraph asks, or wants one thing done that it names."""
    return bool(_ASKS.search(paragraph) or _NAMED.search(paragraph))
