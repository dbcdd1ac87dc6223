"""Numbers, widths and tables as people read them. Pure; every surface of the terminal uses these.

Widths are terminal cells: a CJK character or an emoji takes two, a combining mark none.
"""

from __future__ import annotations

import re
import time
import unicodedata
from collections.abc import Collection, Sequence

_CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f]")
_ELLIPSIS = "…"


def count(number: int | None) -> str:
    """Return a whole number with separators, or `?` when it is not known."""
    return "?" if number is None else f"{number:,}"


def counted(number: int, noun: str) -> str:
    """Return a number with its noun, `1 message` or `3 messages`."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def percent(part: float, whole: float) -> str:
    """Return a share as whole percent; nothing of nothing is 0 %."""
    return f"{round(100 * part / whole) if whole else 0} %"


def duration(seconds: float) -> str:
    """Return a duration: tenths below a minute, then minutes and seconds."""
    if seconds < 59.95:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest:02d} s"


def size(byte_count: int) -> str:
    """Return a size in B, KB or MB (powers of 1,000)."""
    if byte_count < 1_000:
        return f"{byte_count} B"
    if byte_count < 999_950:
        return f"{byte_count / 1_000:.1f} KB"
    return f"{byte_count / 1_000_000:.1f} MB"


def dollars(cost: float | None) -> str:
    """Return a cost in US dollars, or `price unknown`."""
    return "price unknown" if cost is None else f"${cost:.4f}"


def moment(at: float) -> str:
    """Return an instant (Unix epoch seconds) in local time, to the minute."""
    return time.strftime("%Y-%m-%d %H:%M", time.localtime(at))


def bar(part: float, whole: float, width: int) -> str:
    """Return a bar of `width` cells, filled by the share and never past its end."""
    filled = min(width, max(0, round(width * part / whole))) if whole else 0
    return "█" * filled + "░" * (width - filled)


def printable(text: str) -> str:
    """Return `text` with control characters made visible, so that no stored text drives a terminal.

    Line feeds and tabs stay; carriage returns before a line feed go.
    """
    return _CONTROL.sub(lambda found: f"\\x{ord(found.group()):02x}", text.replace("\r\n", "\n"))


def one_line(text: str) -> str:
    """Return `text` on one line: white space collapsed, control characters made visible."""
    return printable(" ".join(text.split()))


def cells(text: str) -> int:
    """Return how many terminal cells a line takes."""
    return sum(_cell_width(character) for character in text)


def _cell_width(character: str) -> int:
    if unicodedata.combining(character) or character in "\u200b\u200d\ufe0e\ufe0f":
        return 0
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1


def clip(text: str, width: int) -> str:
    """Return `text` cut to `width` cells, an ellipsis in the last one when something was cut."""
    if cells(text) <= width:
        return text
    kept, used = [], 0
    for character in text:
        used += _cell_width(character)
        if used > width - 1:
            break
        kept.append(character)
    return "".join(kept) + _ELLIPSIS if width > 0 else ""


def pad(text: str, width: int) -> str:
    """Return `text` filled with blanks to `width` cells."""
    return text + " " * max(0, width - cells(text))


def table(
    headers: Sequence[str],
    rows: Sequence[Sequence[str]],
    width: int = 0,
    *,
    right: Collection[str] = (),
) -> list[str]:
    """Return aligned lines, headers first, columns two blanks apart.

    `right` names the headers of columns that are set to the right. Lines longer than `width`
    cells are cut; 0 cuts nothing.
    """
    grid = [list(headers), *(list(row) for row in rows)]
    widths = [max(cells(line[column]) for line in grid) for column in range(len(headers))]
    lines = []
    for line in grid:
        parts = [
            " " * (widths[column] - cells(value)) + value
            if headers[column] in right
            else pad(value, widths[column])
            for column, value in enumerate(line)
        ]
        text = "  ".join(parts).rstrip()
        lines.append(clip(text, width) if width else text)
    return lines
