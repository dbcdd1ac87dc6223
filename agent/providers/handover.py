"""A conversation as one text, for a provider that keeps it itself from then on. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from agent.base.images import is_image
from agent.base.messages import Message, text_of
from agent.base.tokens import estimate_text

OPENING = (
    "This conversation began elsewhere. What was said so far follows, oldest first, for your "
    "information; do not answer it and do not redo what it reports as done."
)
MEANWHILE = (
    "Meanwhile this conversation went on elsewhere. What was said there follows, oldest first, for "
    "your information; do not answer it and do not redo what it reports as done."
)
CLOSING = "[End of what was said so far.] The request to answer now:"
_LONGEST_CHARS = 4_000


def hand_over(
    messages: Sequence[Message], most_tokens: int, opening: str = OPENING
) -> list[dict[str, Any]]:
    """Return the input of a turn: what was said before the newest request, then that request
    whole.

    The newest messages that fit `most_tokens` are told, and how many older ones are not.
    """
    start = _request_start(messages)
    before, request = messages[:start], messages[start:]
    if not before:
        return inputs_of(request)
    told: list[str] = []
    left = most_tokens
    for message in reversed(before):
        line = _told(message)
        left -= estimate_text(line)
        if left < 0:
            break
        told.insert(0, line)
    missing = len(before) - len(told)
    gap = [f"[{missing} older messages are left out.]"] if missing else []
    text = "\n\n".join([opening, *gap, *told, CLOSING])
    return [_text_input(text), *inputs_of(request)]


def inputs_of(messages: Sequence[Message]) -> list[dict[str, Any]]:
    """Return what the user's messages say, as inputs of a turn."""
    inputs: list[dict[str, Any]] = []
    for message in messages:
        if message.get("role") != "user":
            continue
        content = message.get("content")
        text = text_of(content)
        inputs += [_text_input(text)] if text.strip() else []
        for part in content if isinstance(content, list) else ():
            if is_image(part):
                image = part.get("image_url")
                url = image.get("url") if isinstance(image, dict) else image
                inputs += [{"type": "image", "url": url}] if url else []
    return inputs


def _request_start(messages: Sequence[Message]) -> int:
    """Return where the user's messages at the end begin."""
    start = len(messages)
    while start and messages[start - 1].get("role") == "user":
        start -= 1
    return start


def _text_input(text: str) -> dict[str, Any]:
    return {"type": "text", "text": text, "text_elements": []}


def _told(message: Message) -> str:
    text = text_of(message.get("content"))
    if len(text) > _LONGEST_CHARS and message.get("role") != "user":
        half = _LONGEST_CHARS // 2
        text = f"{text[:half]}\n[...]\n{text[-half:]}"
    calls = [call.get("function") or {} for call in message.get("tool_calls") or ()]
    made = [f"(called {call.get('name')} with {call.get('arguments')})" for call in calls]
    return f"{message.get('role')}: " + "\n".join([text, *made]).strip()
