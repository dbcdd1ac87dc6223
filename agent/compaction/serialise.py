"""Rows as text for a summariser: labelled, redacted, and cut so that every request fits.

Nothing is skipped unseen: each row stands in some piece, whole or with its beginning and end.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from typing import Any

from agent.auxiliary_client import without_thoughts
from agent.base.images import IMAGE_WORD, images_apart, is_image
from agent.base.messages import Message, text_of
from agent.base.record import dataclass
from agent.base.redact import redact
from agent.base.tokens import estimate_text
from agent.compaction.budget import row_tokens

BODY_LIMITS_CHARS = (None, 16_000, 8_000, 4_000, 2_000, 1_000, 500, 240, 120)
"""How long a tool result or a call's arguments may be, tried in this order until the pieces are
few enough; what people and the assistant wrote may be `SPEECH_FACTOR` times as long."""
SPEECH_FACTOR = 4
WIDE_FACTOR = 1.18
"""How much more the strictest counters make of text that is not plain ASCII than we do."""
_HEAD_SHARE = 0.7
_SPLIT_SHARE = 8
"""A line of more than a piece's eighth is split over two pieces rather than moved to the next."""
_NAME_MAX_CHARS = 60


@dataclass(frozen=True)
class Line:
    """One labelled text of a row. `speech` marks what a person or the assistant wrote."""

    label: str
    body: str
    tokens: int
    speech: bool

    def cut(self, limit_chars: int | None) -> Line:
        """Return the line with its body shortened to head and tail."""
        if limit_chars is None:
            return self
        limit = limit_chars * SPEECH_FACTOR if self.speech else limit_chars
        if len(self.body) <= limit:
            return self
        body = clip(self.body, limit)
        return Line(self.label, body, strict_tokens(body) + estimate_text(self.label), self.speech)


def strict_tokens(text: str) -> int:
    """Return what the strictest counters make of `text`; what is sent must fit by these."""
    return _by_strict_count(estimate_text(text), text)


def _by_strict_count(tokens: int, text: str) -> int:
    """Return the strictest count of a text that we take for `tokens`: of ASCII four characters a
    token, which for prose is more than ours."""
    if text.isascii():
        return max(tokens, math.ceil(len(text) / 4))
    return math.ceil(tokens * WIDE_FACTOR)


def clip(text: str, limit_chars: int) -> str:
    """Return `text`, or its head and tail around a line that counts what is left out."""
    if len(text) <= limit_chars:
        return text
    head = int(limit_chars * _HEAD_SHARE)
    tail = limit_chars - head
    return f"{text[:head]}\n[… {len(text) - limit_chars:,} characters left out …]\n{text[-tail:]}"


def spoken(text: str) -> str:
    """Return what an assistant said, without the thoughts that some models write into it."""
    return without_thoughts(text) if "think" in text else text.strip()


def lines_of(rows: list[Message]) -> list[Line]:
    """Return the rows as labelled lines, oldest first, with a line where a new day begins."""
    lines: list[Line] = []
    names: dict[str, str] = {}
    day = ""
    for row in rows:
        at = row.get("_at")
        date = time.strftime("%Y-%m-%d", time.localtime(at)) if isinstance(at, int | float) else ""
        if date and date != day:
            day = date
            lines.append(Line("", f"({date})", 8, speech=True))
        lines.extend(_lines_of_row(row, names))
    return lines


def pack(lines: list[Line], *, piece_tokens: int, max_pieces: int) -> list[str]:
    """Return the lines in at most `max_pieces` pieces of at most `piece_tokens` each.

    Bodies are cut to head and tail as little as that takes; when even the shortest cut does not
    reach it there are more pieces.
    """
    pieces: list[str] = []
    for limit in BODY_LIMITS_CHARS:
        cut = [line.cut(limit) for line in lines]
        last = limit == BODY_LIMITS_CHARS[-1]
        if not last and sum(line.tokens for line in cut) > piece_tokens * max_pieces:
            continue
        pieces = list(_pieces(cut, piece_tokens))
        if len(pieces) <= max_pieces:
            break
    return pieces


def _lines_of_row(row: Message, names: dict[str, str]) -> Iterator[Line]:
    """Yield the lines of one row; `names` remembers what tool each open call is of."""
    role, seq = row.get("role"), row.get("_seq")
    number = f"{seq} " if seq is not None else ""
    content = row.get("content")
    tokens = row_tokens(row) if isinstance(content, str) else 0
    if role == "tool":
        name = names.get(str(row.get("tool_call_id", "")), "a tool")
        yield _line(f"[{number}result of {name}]", _readable(content), tokens, speech=False)
        return
    text = _readable(content)
    if role == "assistant":
        text = spoken(text)
    calls = row.get("tool_calls") or ()
    if text:
        yield _line(f"[{number}{role}]", text, 0 if calls else tokens, speech=True)
    for call in calls:
        function = call.get("function") or {}
        name = str(function.get("name", ""))[:_NAME_MAX_CHARS]
        names[str(call.get("id", ""))] = name
        arguments = function.get("arguments")
        shown = arguments if isinstance(arguments, str) else str(arguments)
        yield _line(f"[{number}assistant calls {name}]", shown, 0, speech=False)


def _line(label: str, text: str, tokens: int, *, speech: bool) -> Line:
    """Return a redacted line; `tokens` is the stored estimate, 0 when it does not apply."""
    body = redact(text)
    if not tokens or body is not text:
        tokens = strict_tokens(body) + estimate_text(label) + 1
    else:
        tokens = _by_strict_count(tokens, body)
    return Line(label, body, tokens, speech)


def _readable(content: Any) -> str:
    """Return the text of a content value, images and other parts as short labels in place."""
    if not isinstance(content, list):
        return text_of(content)
    return "\n".join(filter(None, map(_readable_part, images_apart(content))))


def _readable_part(part: Any) -> str:
    if isinstance(part, str):
        return part
    if not isinstance(part, dict):
        return ""
    if is_image(part):
        source = part.get("image_url")
        url = source.get("url") if isinstance(source, dict) else source
        return f"[image {url}]" if isinstance(url, str) and url.startswith("http") else IMAGE_WORD
    text = part.get("text")
    return text if isinstance(text, str) else f"[{part.get('type', 'attachment')}]"


def _pieces(lines: list[Line], piece_tokens: int) -> Iterator[str]:
    """Yield pieces filled in order; long lines continue in the next piece under their label."""
    piece: list[str] = []
    free = piece_tokens
    small = piece_tokens // _SPLIT_SHARE
    for line in lines:
        label, body, tokens = line.label, line.body, line.tokens
        while tokens > free:
            if tokens > small and free > small:
                head, body = _split(body, free - estimate_text(label) - 1)
                piece.append(f"{label} {head}")
                label = f"{line.label[:-1]}, continued]" if line.label else ""
                tokens = strict_tokens(body) + estimate_text(label) + 1 if body else 0
            yield "\n".join(piece)
            piece, free = [], piece_tokens
        if body:
            piece.append(f"{label} {body}" if label else body)
            free -= tokens
    if piece:
        yield "\n".join(piece)


def _split(text: str, tokens: int) -> tuple[str, str]:
    """Return a beginning of at most `tokens`, ended at white space if any is near, and the rest."""
    chars = max(1, int(len(text) * tokens / max(1, strict_tokens(text))))
    while chars > 1 and strict_tokens(text[:chars]) > tokens:
        chars = chars * 9 // 10
    near = max(text.rfind("\n", 0, chars), text.rfind(" ", 0, chars))
    if near > chars * 9 // 10:
        chars = near + 1
    return text[:chars], text[chars:]
