"""Head and tail of a text too long to show, with a line between that says how to read the rest."""

from __future__ import annotations

import re

_BREAK = re.compile(r"[\s\"',;()\[\]{}<>]")
_GIVE = 4
"""A cut gives up to this part of head and tail so as not to go through a word: half a key would
not be known for one."""


def excerpt_chars(text: str, *, head: int, tail: int, seq: int) -> str:
    """Return `text`, or about its first `head` and last `tail` characters, never more, around one
    line of reference.

    The line names what was left out and a `recall` call that works when executed literally.
    """
    if len(text) <= head + tail:
        return text
    head = _end_of_word(text, head)
    start = _begin_of_word(text, len(text) - tail)
    reference = (
        f"[{start - head} of {len(text)} characters left out here; "
        f'read on with recall(rows="{seq}", offset={head})]'
    )
    return f"{text[:head]}\n{reference}\n{text[start:]}"


def _end_of_word(text: str, head: int) -> int:
    """Return where a head of at most `head` characters ends: behind a break, if one is near."""
    if _BREAK.match(text, head):
        return head
    lowest = head - head // _GIVE
    breaks = [found.end() for found in _BREAK.finditer(text, lowest, head)]
    return breaks[-1] if breaks else head


def _begin_of_word(text: str, start: int) -> int:
    """Return where a tail that begins at `start` or later begins: behind a break, if near."""
    if start == 0 or _BREAK.match(text, start - 1):
        return start
    found = _BREAK.search(text, start, start + (len(text) - start) // _GIVE)
    return found.end() if found else start
