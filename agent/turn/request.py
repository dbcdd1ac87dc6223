"""Turn the live view into the messages of a request: valid for the strictest provider, and bounded.

Pure. Nothing that is made here is ever stored: framing of summaries, the restated request,
synthetic results, merged neighbours and excerpts exist only on the wire.
"""

from __future__ import annotations

from collections.abc import Sequence

from agent.base.excerpt import excerpt_chars
from agent.base.images import is_image, labelled
from agent.base.messages import Message, call_ids, is_user_text, last_user_index, text_of
from agent.base.record import dataclass
from agent.base.tokens import estimate_message
from agent.compaction.budget import SMALLEST_RESULT_TOKENS
from agent.compaction.pins import render_pins, unsaid_pins
from agent.sessions.records import Pin
from agent.turn.framing import frame_marker, frame_summary, without_recall

LOST_RESULT = (
    "[interrupted: the outcome of this call is unknown; it may have taken effect. "
    "Look before you run it again.]"
)
EMPTY = "(empty)"
OPENING = "(The conversation goes on.)"
_SMALLEST_EXCERPT_CHARS = 80
_WIRE_ROLES = frozenset({"user", "assistant", "tool"})
_SUMMARIES = frozenset({"summary", "mechanical"})


@dataclass(frozen=True)
class ShapeLimits:
    """What one request may show, in estimated tokens.

    `round_tokens` bounds the results of one tool round, `message_tokens` one user message;
    `recall` says whether the request offers the recall tool, so that the footer may name it;
    without `images` a label stands for each image.
    """

    round_tokens: int
    message_tokens: int
    recall: bool = True
    images: bool = True


@dataclass(frozen=True)
class Shaped:
    """Messages of a request without the system message, and their estimated tokens.

    `excerpted` holds the seqs of user messages that are shown only in part.
    """

    messages: list[Message]
    tokens: int
    excerpted: tuple[int, ...] = ()


def shape(
    view: Sequence[Message],
    limits: ShapeLimits,
    *,
    current_from_seq: int | None = None,
    pins: Sequence[Pin] = (),
) -> Shaped:
    """Return the wire form of a live view.

    `current_from_seq` is the first user row of the running turn: user rows from there on are
    requests in progress; without it only the newest user row is. `pins` are those that every
    request carries; one that a message of the view says already is not shown twice. Linear in the
    view's length.
    """
    rows, excerpted = [], []
    for row in view if limits.images else map(_without_images, view):
        if row["role"] not in _WIRE_ROLES:
            rows.append(row | {"role": "user", "_kind": "note"})
        elif row.get("_kind") == "micro":
            rows.append(frame_marker(row, recall=limits.recall))
        elif _is_long_request(row, limits):
            excerpted.append(row.get("_seq", 0))
            rows.append(_excerpt(row, limits.message_tokens))
        else:
            rows.append(row)
    block = render_pins(unsaid_pins(rows, pins))
    folded = _fold_summary(rows, limits, current_from_seq, block)
    ordered = _pair_results(folded, limits)
    merged = _merge_neighbours(ordered)
    if not limits.recall:
        merged = [without_recall(message) for message in merged]
    return Shaped(merged, sum(tokens_of(message) for message in merged), tuple(excerpted))


def _without_images(row: Message) -> Message:
    """Return a row as it is, or a copy in which a label stands for each image."""
    content = row.get("content")
    shown = labelled(content) if isinstance(content, list) else content
    if shown is content:
        return row
    told = _without_identity(row) | {"content": shown}
    return told | {"_tokens": estimate_message(told)}


def replay_from(view: Sequence[Message], generation: int) -> int:
    """Return the first seq whose bound reasoning may go back while a view has that generation.

    An answer keeps the generation under which it was asked for; a pass, an undo or a rewind since
    then has replaced what stood before it. A fork keeps both numbers.
    """
    if not generation:
        return 0
    bound = (row for row in reversed(view) if "_reasoning" in row)
    stale = (row.get("_seq", 0) for row in bound if row.get("_generation") != generation)
    return int(next(stale, -1)) + 1


def tokens_of(message: Message) -> int:
    """Return the stored estimate of a message, or a new one."""
    tokens = message.get("_tokens")
    return tokens if isinstance(tokens, int) else estimate_message(message)


def _is_long_request(row: Message, limits: ShapeLimits) -> bool:
    return (
        row.get("_tokens", 0) > limits.message_tokens
        and is_user_text(row)
        and len(text_of(row.get("content"))) > _SMALLEST_EXCERPT_CHARS
    )


def _excerpt(row: Message, tokens: int) -> Message:
    """Return a copy whose text is cut until it takes at most `tokens`, three quarters its head.

    The images of a user message stay, behind its text.
    """
    content = row.get("content")
    text = text_of(content)
    is_pictured = row["role"] == "user" and isinstance(content, list)
    images = [part for part in content or () if is_image(part)] if is_pictured else []
    cut = _without_identity(row)
    taken = estimate_message(cut | {"content": images}) if images else 0
    chars = int(len(text) * max(0, tokens - taken) / max(1, tokens_of(row) - taken))
    while True:
        chars = max(_SMALLEST_EXCERPT_CHARS, chars * 9 // 10)
        head = chars * 3 // 4
        seq = row.get("_seq", 0)
        shown = excerpt_chars(text, head=head, tail=chars - head, seq=seq)
        cut["content"] = [{"type": "text", "text": shown}, *images] if images else shown
        cut["_tokens"] = estimate_message(cut)
        if cut["_tokens"] <= tokens or chars == _SMALLEST_EXCERPT_CHARS:
            return cut


def _fold_summary(
    rows: list[Message], limits: ShapeLimits, current_from_seq: int | None, pins: str
) -> list[Message]:
    """Put the earlier requests into the newest summary and restate the one in progress after it.

    Pins stand in the same frame, or first of all where there is none.
    """
    newest = next(
        (index for index in range(len(rows) - 1, -1, -1) if rows[index].get("_kind") in _SUMMARIES),
        None,
    )
    if newest is None:
        return [{"role": "user", "content": pins, "_kind": "note"}, *rows] if pins else rows
    last = last_user_index(rows)
    if current_from_seq is None and last is not None:
        current_from_seq = rows[last].get("_seq", 0)
    current: list[Message] = []
    dealt_with: list[Message] = []
    others: list[Message] = []
    for row in rows[:newest]:
        if not is_user_text(row):
            others.append(row)
        elif current_from_seq is not None and row.get("_seq", 0) >= current_from_seq:
            current.append(row)
        else:
            dealt_with.append(row)
    if others:
        others = sorted([*others, *dealt_with], key=lambda row: int(row.get("_seq", 0)))
        dealt_with = []
    framed = frame_summary(
        rows[newest], dealt_with, recall=limits.recall, restated=bool(current), pins=pins
    )
    return [*others, framed, *current, *rows[newest + 1 :]]


def _pair_results(rows: list[Message], limits: ShapeLimits) -> list[Message]:
    """Give each call its result directly after it, and move what came meanwhile behind it."""
    ordered: list[Message] = []
    index, count = 0, len(rows)
    while index < count:
        row = rows[index]
        index += 1
        if row["role"] == "tool":
            continue
        if row["role"] != "assistant":
            ordered.append(row)
            continue
        late = _take_late_requests(ordered, row.get("_seen"))
        ordered.append(_with_ids(row) if row.get("tool_calls") else row)
        if row.get("tool_calls"):
            results: dict[str, list[Message]] = {}
            while index < count and rows[index]["role"] != "assistant":
                following = rows[index]
                if following["role"] == "tool":
                    name = str(following.get("tool_call_id", ""))
                    results.setdefault(name, []).append(following)
                else:
                    late.append(following)
                index += 1
            pairs = zip(call_ids(row), call_ids(ordered[-1]), strict=True)
            answers = [_result_of(results.get(was), call_id) for was, call_id in pairs]
            ordered.extend(_bound_round(answers, limits.round_tokens))
        ordered.extend(late)
    return ordered


def _with_ids(row: Message) -> Message:
    """Return an answer whose calls have ids of their own; the same one when they do already."""
    ids = [call.get("id") for call in row["tool_calls"]]
    if len({name for name in ids if isinstance(name, str) and name}) == len(ids):
        return row
    mark = f"call_{row.get('_seq', 0)}"
    calls = [{**call, "id": f"{mark}_{place}"} for place, call in enumerate(row["tool_calls"])]
    return _without_identity(row) | {"tool_calls": calls}


def _result_of(found: list[Message] | None, call_id: str) -> Message:
    """Return the first result that is left of a call, under the id that the call has now."""
    if not found:
        return _lost_result(call_id)
    result = found.pop(0)
    if result.get("tool_call_id") == call_id:
        return result
    return _without_identity(result) | {"tool_call_id": call_id}


def _take_late_requests(ordered: list[Message], seen: int | None) -> list[Message]:
    """Remove and return the trailing user rows that an answer's request did not carry."""
    if seen is None:
        return []
    start = len(ordered)
    while start and is_user_text(ordered[start - 1]) and ordered[start - 1].get("_seq", 0) > seen:
        start -= 1
    late = ordered[start:]
    del ordered[start:]
    return late


def _lost_result(call_id: str) -> Message:
    return {"role": "tool", "tool_call_id": call_id, "content": LOST_RESULT}


def _bound_round(results: list[Message], round_tokens: int) -> list[Message]:
    """Return results that fit a round's share, the largest cut first, each cut to the same size."""
    sizes = sorted((tokens_of(result) for result in results), reverse=True)
    excess = sum(sizes) - round_tokens
    if excess <= 0:
        return results
    cap, rest = 0, round_tokens
    for place, size in enumerate(reversed(sizes)):
        share = rest // (len(sizes) - place)
        if size > share:
            cap = share
            break
        rest -= size
    cap = max(cap, SMALLEST_RESULT_TOKENS)
    return [_excerpt(result, cap) if tokens_of(result) > cap else result for result in results]


def _merge_neighbours(rows: list[Message]) -> list[Message]:
    """Return rows in which user and assistant alternate, beginning with a user, none blank."""
    merged: list[Message] = []
    for row in rows:
        role = row["role"]
        if not row.get("tool_calls") and not _has_content(row) and role != "tool":
            row = _without_identity(row) | {"content": EMPTY}
        previous = merged[-1] if merged else None
        if previous is None:
            if role != "user":
                merged.append({"role": "user", "content": OPENING})
            merged.append(row)
        elif previous["role"] == role != "tool" and not previous.get("tool_calls"):
            merged[-1] = join(previous, row)
        else:
            merged.append(row)
    return merged


def _has_content(row: Message) -> bool:
    content = row.get("content")
    if isinstance(content, list):
        return any(
            not isinstance(part, dict) or part.get("type") != "text" for part in content
        ) or (bool(text_of(content).strip()))
    return isinstance(content, str) and bool(content.strip())


def _without_identity(row: Message) -> Message:
    return {key: value for key, value in row.items() if key not in {"_row_id", "_tokens"}}


def join(first: Message, second: Message) -> Message:
    """Return one message that says what both say, in order; the later one's other keys win.

    Reasoning of either belongs to what it said alone.
    """
    joined = _without_identity(first) | _without_identity(second)
    joined.pop("_reasoning", None)
    one, two = first.get("content"), second.get("content")
    if isinstance(one, list) or isinstance(two, list):
        joined["content"] = [*_parts(one), *_parts(two)]
    else:
        texts = [text for text in (one, two) if isinstance(text, str) and text.strip()]
        joined["content"] = "\n\n".join(texts)
    return joined


def _parts(content: object) -> list[object]:
    if isinstance(content, list):
        return list(content)
    return [{"type": "text", "text": content}] if isinstance(content, str) and content else []
