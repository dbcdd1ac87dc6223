"""Reading the archive back: the tool `recall`, and the same for people and embedders.

`recall_rows` and `recall_text` are pure functions of a `RowReader`. Text of a row is shown
byte-exact; what does not fit into the budget is named with the call that reads on.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from agent.base.errors import ToolError, ToolUsageError
from agent.base.later import later
from agent.base.messages import Message, text_of
from agent.base.record import dataclass
from agent.base.tokens import estimate_text
from agent.tools.protocol import Access, RowReader, Tool, ToolContext
from agent.tools.text import one_line

if TYPE_CHECKING:
    from agent.base import relevance
else:
    [relevance] = later("agent.base", "relevance")

BUDGET_TOKENS = 2_000
SMALLEST_BUDGET_TOKENS = 400
HITS = 20
_LISTED = 6
_FIRST_HITS = 8
"""Hits that are shown before the rows around them."""
_HALF = 0.5
"""What a row says at least of a question, by the weight of its words, when it may answer it."""
_OPEN = "no row says half of this; also shown, as it left the view: the user's words, rare names"
_HEADER_TOKENS = 50
_FOOTER_TOKENS = 90
_ROW_TOKENS = 40
_CHARS_A_TOKEN = 6
_FIRST_READ_ROWS = 4
_ROWS = re.compile(r"\s*#?(\d{1,18})\s*(?:-\s*#?(\d{1,18})\s*)?")


@dataclass(frozen=True)
class Slice:
    """A run of characters of one row's text, from `start`; `total` is that text's length."""

    row: Message
    text: str
    start: int
    total: int

    @property
    def partial(self) -> bool:
        """Whether the row's text is longer than what is shown."""
        return len(self.text) < self.total


@dataclass(frozen=True)
class Recalled:
    """What one call gives, by seq; `left_out` is one line on what it does not, or empty."""

    slices: tuple[Slice, ...]
    left_out: str


def recall_text(
    reader: RowReader,
    query: str | None = None,
    rows: str | None = None,
    offset: int = 0,
    budget_tokens: int = BUDGET_TOKENS,
) -> str:
    """Return rows as text: for each a header line `#SEQ role date`, then its text.

    Raises: ToolUsageError as `recall` does.
    """
    found = recall(reader, query, rows, offset, budget_tokens)
    parts = [f"{_header(piece)}\n{piece.text}" for piece in found.slices]
    return "\n".join([*parts, f"[{found.left_out}]"] if found.left_out else parts)


def recall_rows(
    reader: RowReader,
    query: str | None = None,
    rows: str | None = None,
    offset: int = 0,
    budget_tokens: int = BUDGET_TOKENS,
) -> list[Message]:
    """Return the same rows as messages, by seq.

    Shape: a row shown whole is the accepted message; of a longer one `content` is the slice and
    `_slice` says `offset`, `chars` and `total_chars`. Raises: ToolUsageError as `recall` does.
    """
    return [
        {
            **piece.row,
            "content": piece.text,
            "_slice": {
                "offset": piece.start,
                "chars": len(piece.text),
                "total_chars": piece.total,
            },
        }
        if piece.partial
        else dict(piece.row)
        for piece in recall(reader, query, rows, offset, budget_tokens).slices
    ]


def recall(
    reader: RowReader, query: str | None, rows: str | None, offset: int, budget_tokens: int
) -> Recalled:
    """Return the rows of a range from `offset` characters into its first row on, or those that
    answer a query best, with one row before and after the first of them.

    Raises: ToolUsageError unless exactly one of `query` and `rows` is given, for a range that is
    none or holds no row, an offset past the end, and a budget under `SMALLEST_BUDGET_TOKENS`.
    """
    query, rows = (query or "").strip(), (rows or "").strip()
    if bool(query) == bool(rows):
        given = f"query={query!r} and rows={rows!r}" if query else "neither"
        raise ToolUsageError(f'recall takes a query, or rows like "17" or "40-62"; given: {given}')
    if offset < 0 or (offset and query):
        raise ToolUsageError(f"offset {offset} needs rows, and must be 0 or more")
    if budget_tokens < SMALLEST_BUDGET_TOKENS:
        raise ToolUsageError(
            f"budget_tokens {budget_tokens} is too small; give {SMALLEST_BUDGET_TOKENS} or more"
        )
    if query:
        return _search(reader, query, budget_tokens)
    return _read(reader, *_range(rows), offset, budget_tokens)


def row_text(row: Message) -> str:
    """Return the text of a row that recall shows: its content, then each tool call on a line."""
    calls = [call.get("function") or {} for call in row.get("tool_calls") or ()]
    lines = [f"[calls {call.get('name')} with {call.get('arguments')}]" for call in calls]
    return "\n".join([text for text in (text_of(row.get("content")), *lines) if text])


def _range(rows: str) -> tuple[int, int]:
    """Return first and last seq of "17" or "40-62"."""
    match = _ROWS.fullmatch(rows)
    if match is None:
        raise ToolUsageError(
            f'rows {one_line(rows, limit=80)!r} is no range; write "17" or "40-62"'
        )
    first, last = int(match[1]), int(match[2] or match[1])
    if not 1 <= first <= last:
        raise ToolUsageError(f"rows {rows!r} is empty; rows count from 1, the smaller number first")
    return first, last


# -- a range --------------------------------------------------------------------------------
def _read(reader: RowReader, first: int, last: int, offset: int, budget: int) -> Recalled:
    """Return as much of a range as the budget takes, and the call that goes on."""
    slices: list[Slice] = []
    room = budget - _FOOTER_TOKENS
    for row in _rows(reader, first, last):
        seq, text = int(row["_seq"]), row_text(row)
        start = 0 if slices else offset
        if start and start >= len(text):
            raise ToolUsageError(
                f"row {seq} has {len(text)} characters; offset {start} is past its end"
            )
        if slices and room < _HEADER_TOKENS + _ROW_TOKENS:
            return Recalled(tuple(slices), f"read on with {_call(seq, last, 0, budget)}")
        taken = _fitting(text, start, room - _HEADER_TOKENS)
        end = start + len(taken)
        slices.append(Slice(row, taken, start, len(text)))
        if end < len(text):
            more = f"row {seq} has {len(text) - end} more characters"
            return Recalled(tuple(slices), f"{more}; read on with {_call(seq, last, end, budget)}")
        room -= _HEADER_TOKENS + estimate_text(taken)
    if not slices:
        raise ToolUsageError(
            f"this conversation has no row {first}" + f" to {last}" * (last > first)
        )
    return Recalled(tuple(slices), "")


def _rows(reader: RowReader, first: int, last: int) -> Iterator[Message]:
    """Yield the rows of a range, read in growing portions: a wide range costs what is shown."""
    size = _FIRST_READ_ROWS
    while first <= last:
        yield from reader.rows(first, min(last, first + size - 1))
        first, size = first + size, size * 2


def _fitting(text: str, start: int, room: int) -> str:
    """Return the longest slice from `start` that the estimate puts within `room` tokens."""
    window = text[start : start + max(room, 1) * _CHARS_A_TOKEN]
    if estimate_text(window) <= room:
        return window
    sizes = range(1, len(window) + 1)
    return window[: max(1, bisect_right(sizes, room, key=lambda n: estimate_text(window[:n])))]


def _call(first: int, last: int, offset: int, budget: int) -> str:
    """Return a call as the model can execute it."""
    rows = f"{first}-{last}" if last > first else f"{first}"
    skip = f", offset={offset}" if offset else ""
    size = f", budget_tokens={budget}" if budget != BUDGET_TOKENS else ""
    return f'recall(rows="{rows}"{skip}{size})'


# -- a search -------------------------------------------------------------------------------
def _search(reader: RowReader, query: str, budget: int) -> Recalled:
    """Return the best hits that fit, long rows where they match, and the rows around the best.

    A question of which no row says half goes on with what left the view and stands out.
    """
    rows = {int(row["_seq"]): row for row in reader.search(query, limit=HITS)}
    hits = list(rows)
    whole_room = room = budget - _FOOTER_TOKENS
    weights = _weights(query, rows.values())
    others = dict(reader.unseen(limit=HITS)) if _is_open(query, rows.values(), weights) else {}
    if others:
        room -= estimate_text(_OPEN)
    elif not hits:
        return Recalled((), f"no row holds a word of {one_line(query, limit=200)!r}; try others")
    slices: dict[int, Slice] = {}
    unshown: list[int] = []
    for seq in _in_turn(hits, others):
        if seq in slices or (unshown and seq in rows):
            continue
        for row in reader.rows(seq, seq):
            hit = seq in rows
            if hit:
                piece = _passage(row, weights, whole_room)
            else:
                piece = _beginning(row, whole_room, others.get(seq, ""))
            cost = _HEADER_TOKENS + estimate_text(piece.text)
            if cost <= room or not slices:
                slices[seq] = piece
                room -= cost
            elif hit:
                unshown = [hit for hit in hits if hit not in slices]
    note = _OPEN if any(seq in slices for seq in others) else ""
    return Recalled(_by_seq(slices), "; ".join(filter(None, (note, _unread(slices, unshown)))))


def _in_turn(hits: list[int], others: Iterable[int]) -> Iterator[int]:
    """Yield seqs in the order in which they are shown: the first hits, what may answer without
    the words, the rows around the hits."""
    yield from hits[:_FIRST_HITS]
    yield from others
    for seq in hits[:_FIRST_HITS]:
        yield from (seq - 1, seq + 1)
    yield from hits[_FIRST_HITS:]


def _is_open(query: str, rows: Iterable[Message], weights: Mapping[str, float]) -> bool:
    """Return whether no row says half of a question; phrases and names are there or are not."""
    if '"' in query or relevance.is_named(query):
        return False
    scores = [relevance.best_passage(row_text(row).casefold(), weights).score for row in rows]
    return max(scores, default=0.0) < _HALF * sum(weights.values())


def _weights(query: str, rows: Iterable[Message]) -> dict[str, float]:
    """Return what the words of a query count among the hits."""
    words = relevance.words_of(query.replace('"', " "))
    texts = [row_text(row).casefold() for row in rows]
    counts = {word: sum(word in text for text in texts) for word in words}
    return relevance.weights_of(words, counts, len(texts))


def _passage(row: Message, weights: Mapping[str, float], room: int) -> Slice:
    """Return a hit, cut to its share of a search around the passage that answers best."""
    text = row_text(row)
    share = max(_ROW_TOKENS, room // 6 - _HEADER_TOKENS)
    begin = _fitting(text, 0, share)
    if len(begin) == len(text):
        return Slice(row, begin, 0, len(text))
    found = relevance.best_passage(text.casefold(), weights)
    start = max(0, min(found.start, len(text) - 1) - len(begin) // 4)
    return Slice(row, _fitting(text, start, share), start, len(text))


def _beginning(row: Message, room: int, part: str) -> Slice:
    """Return a row that is no hit, cut to a tenth of a search, from shortly before `part` on."""
    text = row_text(row)
    share = max(_ROW_TOKENS, room // 10 - _HEADER_TOKENS)
    begin = _fitting(text, 0, share)
    start = max(0, text.find(part) - len(begin) // 2) if len(begin) < len(text) else 0
    return Slice(row, _fitting(text, start, share), start, len(text))


def _by_seq(slices: Mapping[int, Slice]) -> tuple[Slice, ...]:
    """Return slices, oldest row first."""
    return tuple(slices[seq] for seq in sorted(slices))


def _unread(slices: Mapping[int, Slice], hits: list[int]) -> str:
    """Return the line about rows that are cut and `hits` that did not fit; empty for neither."""
    cut = [seq for seq, piece in slices.items() if piece.partial]
    notes = [f'row {cut[0]} is cut: recall(rows="{cut[0]}")'] if cut else []
    if hits:
        listed = ", ".join(str(seq) for seq in hits[:_LISTED])
        others = f" and {len(hits) - _LISTED} others" if len(hits) > _LISTED else ""
        notes.append(f'more hits in rows {listed}{others}: recall(rows="{hits[0]}")')
    return "; ".join(notes)


# -- as text --------------------------------------------------------------------------------
def _header(piece: Slice) -> str:
    """Return `#SEQ role date`, and which characters are shown when it is not all of them."""
    row = piece.row
    role = str(row.get("role", ""))
    if name := row.get("tool_name") or row.get("name"):
        role = f"{role} {one_line(str(name), limit=40)}"
    date = datetime.fromtimestamp(float(row.get("_at") or 0), tz=UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    header = f"#{row['_seq']} {role} {date}"
    if not piece.partial:
        return header
    end = piece.start + len(piece.text)
    return f"{header} (characters {piece.start} to {end} of {piece.total})"


# -- the tool -------------------------------------------------------------------------------
def _run(arguments: Mapping[str, Any], context: ToolContext) -> str:
    """Return rows of this conversation's archive."""
    if context.rows is None:
        raise ToolError("this run keeps no archive; there is nothing to recall")
    return recall_text(
        context.rows,
        arguments.get("query"),
        arguments.get("rows"),
        arguments.get("offset", 0),
        arguments.get("budget_tokens", BUDGET_TOKENS),
    )


RECALL = Tool(
    name="recall",
    description=(
        "Read back earlier messages of this conversation word for word, also those that were "
        "summarised away: search with query, or expand rows by their numbers."
    ),
    parameters={
        "type": "object",
        "properties": {
            "query": {
                "type": "string",
                "description": "What to look for: some words of it, or a quoted phrase.",
            },
            "rows": {"type": "string", "description": 'A number such as "17", or a range "40-62".'},
            "offset": {
                "type": "integer",
                "minimum": 0,
                "description": "Characters to skip in the first of the rows.",
            },
            "budget_tokens": {
                "type": "integer",
                "minimum": SMALLEST_BUDGET_TOKENS,
                "description": f"Most tokens to return, {BUDGET_TOKENS} if left out.",
            },
        },
        "additionalProperties": False,
    },
    access=Access.READ,
    run=_run,
    describe=lambda arguments: f"recall {arguments.get('rows') or arguments.get('query', '')}",
)
