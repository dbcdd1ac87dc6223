"""Untrusted text on one line: what a person is asked about has no hidden part."""

from __future__ import annotations

LONGEST_CHARS = 2_000
_END_CHARS = 400


def one_line(text: str, *, limit: int = LONGEST_CHARS) -> str:
    """Return `text` on one line, control, bidirectional and other unprintable characters escaped.

    A longer text keeps its begin and its end, with the number of characters between them.
    """
    if len(text) > limit:
        end = min(_END_CHARS, limit // 2)
        left_out = len(text) - limit
        text_begin, text_end = text[: limit - end], text[len(text) - end :]
        return f"{_escape(text_begin)} [{left_out} characters not shown] {_escape(text_end)}"
    return _escape(text)


def _escape(text: str) -> str:
    """Return `text` with each unprintable character as its escape sequence."""
    if text.isprintable():
        return text
    return "".join(
        char if char.isprintable() else char.encode("unicode_escape").decode() for char in text
    )
