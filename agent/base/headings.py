"""Statements under the heading that they share. Pure.

Words in capitals and a colon before a statement say what sort of thing it is, or where it holds, so
they are never left out. Where several statements stand together, one heading serves all of them.
"""

from __future__ import annotations

from collections.abc import Sequence

_MOST_WORDS = 4
_MOST_CHARS = 60


def split_heading(text: str) -> tuple[str, str]:
    """Return the heading in capitals before a text, "" for none, and what stands behind it.

    The heading, a colon, a space and the rest are the text, letter by letter.
    """
    end = text.find(": ", 1, _MOST_CHARS)
    heading, rest = text[: max(0, end)], text[end + 2 :]
    if not heading.isupper() or not rest.strip():
        return "", text
    words = heading.replace("-", " ").split(" ")
    is_named = len(words) <= _MOST_WORDS and all(len(w) > 1 and w.isalpha() for w in words)
    return (heading, rest) if is_named else ("", text)


def heading_above(text: str) -> str:
    """Return the heading that may stand in a line of its own above a text, "" for none.

    A text of several lines keeps its own: so all that stands between two headings is theirs.
    """
    heading, rest = split_heading(text)
    return heading if rest.isprintable() else ""


def under_headings(said: Sequence[tuple[str, str]]) -> list[str]:
    """Return the lines that show pairs of a mark and a text; what shares no heading comes first,
    then each heading of several texts and below it these without it, in their order."""
    groups: dict[str, list[tuple[str, str]]] = {}
    for mark, text in said:
        groups.setdefault(heading_above(text), []).append((mark, text))
    shared = {heading for heading, group in groups.items() if heading and len(group) > 1}
    lines = [mark + text for mark, text in said if heading_above(text) not in shared]
    for heading, group in groups.items():
        if heading in shared:
            lines += [f"{heading}:", *(mark + split_heading(text)[1] for mark, text in group)]
    return lines
