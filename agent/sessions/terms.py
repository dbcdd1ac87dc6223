"""The text side of search: what of a message is searched, how it is indexed, what a query asks.

The index holds pieces of three characters. So that two characters of Chinese, Japanese or Korean
are found too, each pair of them is indexed once more with a marker as its third character.
"""

from __future__ import annotations

import unicodedata

from agent.base.errors import UsageError
from agent.base.messages import Message, clean_text, text_of
from agent.base.pattern import pattern
from agent.base.record import dataclass

LARGEST_TEXT = 256 * 1024
"""Characters of one row that are searched."""
_LARGEST_SNIPPET = 200
_MOST_PIECES = 4
_COMMON_FIRST = " etaoinshrdlucmfwypvbgkjqxz"
_PAIR_MARK = "\ue000"
_SCOPE_MARK = "\ue001"
_SCOPE_BASE = 0xF0000
_SCOPE_DIGITS = 0xFFF0
_CJK_RUN = pattern("[\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af\uf900-\ufaff]{2,}")
_TERM = pattern(r'"([^"]+)"|(\S+)')


@dataclass(frozen=True)
class Query:
    """A search as asked: `needles` are folded texts that a row must all hold."""

    needles: tuple[str, ...]

    @property
    def pieces(self) -> list[str]:
        """The pieces that a row holds in the index when it holds every needle; empty when no
        needle is long enough to be looked up."""
        found: dict[str, None] = {}
        for needle in self.needles:
            found.update(dict.fromkeys(pieces_of(needle)))
        return list(found)


def parse_query(text: str) -> Query:
    """Return what a query asks for. Raises: UsageError: it holds no word."""
    needles = (
        fold_text(phrase or word.strip('"')) for phrase, word in _TERM.findall(clean_text(text))
    )
    unique = tuple(dict.fromkeys(needle for needle in needles if needle.strip()))
    if not unique:
        raise UsageError(f"the search {text!r} holds no word; give one")
    return Query(unique)


def fold_text(text: str) -> str:
    """Return text so that equal words are equal whatever their case and composition."""
    if text.isascii():
        return text.lower()
    return unicodedata.normalize("NFC", text).casefold()


def pieces_of(needle: str) -> list[str]:
    """Return pieces that the index has of a row with the needle; none for a short one."""
    if len(needle) == 2 and _CJK_RUN.fullmatch(needle):
        return [needle + _PAIR_MARK]
    pieces = [needle[start : start + 3] for start in range(len(needle) - 2)]
    return sorted(dict.fromkeys(pieces), key=_rarity, reverse=True)[:_MOST_PIECES]


def _rarity(piece: str) -> int:
    """Return a rank by letters, higher for rarer: few rare pieces are looked up faster than all."""
    ranks = map(_COMMON_FIRST.find, piece)
    return sum(rank if rank >= 0 else len(_COMMON_FIRST) for rank in ranks)


def scope_piece(family: int) -> str:
    """Return the piece that every row of a family of conversations holds in the index."""
    high, low = divmod(family, _SCOPE_DIGITS)
    return _SCOPE_MARK + chr(_SCOPE_BASE + high % _SCOPE_DIGITS) + chr(_SCOPE_BASE + low)


def searched_text(message: Message) -> str:
    """Return what a search looks at: content, tool name, names and arguments of tool calls."""
    texts = [text_of(message.get("content"))]
    name = message.get("name")
    if isinstance(name, str):
        texts.append(name)
    for call in message.get("tool_calls") or ():
        function = call.get("function") if isinstance(call, dict) else None
        if isinstance(function, dict):
            texts += [
                str(function.get("name") or ""),
                str(function.get("arguments") or ""),
            ]
    return "\n".join(text for text in texts if text)[:LARGEST_TEXT]


def index_text(family: int, message: Message) -> str:
    """Return the body that the index gets for a row; the same row always gives the same body."""
    text = fold_text(searched_text(message))
    pairs = [
        run[start : start + 2] + _PAIR_MARK
        for run in _CJK_RUN.findall(text)
        for start in range(len(run) - 1)
    ]
    return "\n".join((text, "".join(dict.fromkeys(pairs)), scope_piece(family)))


def first_match(text: str, query: Query) -> int | None:
    """Return where the first needle stands in folded `text`, or None unless all stand in it."""
    places = [text.find(needle) for needle in query.needles]
    return None if -1 in places else places[0]


def snippet(text: str, folded: str, start: int) -> str:
    """Return one line around a match at `start` of `folded`."""
    source = text if len(text) == len(folded) else folded
    first = max(0, start - _LARGEST_SNIPPET // 4)
    line = " ".join(source[first : first + _LARGEST_SNIPPET].split())
    return line[:_LARGEST_SNIPPET]
