"""Head and tail of a text too long to show, with a line between that says how to read the rest."""

from __future__ import annotations


def excerpt_chars(text: str, *, head: int, tail: int, seq: int) -> str:
    """Return `text`, or its first `head` and last `tail` characters around one line of reference.

    The line names what was left out and a `recall` call that works when executed literally.
    """
    omitted = len(text) - head - tail
    if omitted <= 0:
        return text
    reference = (
        f"[{omitted} of {len(text)} characters left out here; "
        f'read on with recall(rows="{seq}", offset={head})]'
    )
    return f"{text[:head]}\n{reference}\n{text[len(text) - tail :]}"
