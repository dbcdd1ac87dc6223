"""The summariser's prompts: Markdown files beside this module, filled in one pass."""

from __future__ import annotations

import functools
import re
from enum import StrEnum

_SLOT = re.compile(r"\{\{(\w+)\}\}")
_CLOSING_MARK = re.compile(r"</(?=(?:material|notes)>)")
_WORDS_A_TOKEN = 0.6


class Prompt(StrEnum):
    """What a summary call is asked for; the value is the file's stem."""

    SUMMARY = "summary"
    UPDATE = "update"
    CHUNK = "chunk"
    JOIN = "join"
    MICRO = "micro"


@functools.cache
def template(prompt: Prompt) -> str:
    """Return the text of a prompt with its slots open."""
    # importlib.resources takes 45 ms to import, which a start without a compaction should not pay.
    from importlib.resources import files

    return files("agent.compaction").joinpath("prompts", f"{prompt}.md").read_text("utf-8")


def fill(prompt: Prompt, *, max_tokens: int, focus: str = "", **slots: str) -> str:
    """Return the prompt with its slots filled; what is filled in is never read as a slot.

    `focus` is what the user asked to keep in detail; empty for nothing in particular.
    """
    words = max(40, int(max_tokens * _WORDS_A_TOKEN))
    wish = (
        f"\nThe user wants this above all to be kept in detail; give it about two thirds of the "
        f"notes: {focus}\n"
        if focus
        else ""
    )
    values = {key: _CLOSING_MARK.sub("<\\/", value) for key, value in slots.items()}
    values |= {"words": str(words), "focus": wish}
    return _SLOT.sub(lambda slot: values.get(slot[1], slot[0]), template(prompt))
