"""Messages are plain dicts in the OpenAI chat shape.

Keys that begin with `_` are ours and never reach the wire:
`_row_id`, `_seq` (set once the row is stored), `_tokens` (stored estimate), `_kind`
(message, summary, micro, mechanical; absent means message), `_stub` (the row is shown masked),
`_reasoning` (opaque, byte-exact), `_blob` (sha256 of the whole content when `content` is an
excerpt), `_at` (Unix epoch seconds of acceptance), `_usage`, `_model`, `_finish_reason`,
`_seen` (on an assistant row: the highest seq that its request carried; user rows accepted after it
and before the answer are shown after the answer), `_generation` (on an assistant row with
`_reasoning`: the generation of the view that its request was made of), `_from_seq` (on a micro
row: the first row that it stands for).
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from agent.base.images import replace_images

Message = dict[str, Any]
Content = str | list[Any]
"""What a message says: a text, or parts in the chat-completions shape."""

_UNSTORABLE = re.compile("[\x00\ud800-\udfff]")
PASS_KINDS = frozenset({"summary", "micro", "mechanical"})


def clean_text(text: str) -> str:
    """Return `text` with lone surrogates and NUL replaced by U+FFFD; the same object when clean."""
    if text.isascii() and "\x00" not in text:
        return text
    return _UNSTORABLE.sub("\ufffd", text) if _UNSTORABLE.search(text) else text


def clean_value(value: Any) -> Any:
    """Return a deep copy of a JSON value in which every string, keys too, is clean."""
    if isinstance(value, str):
        return clean_text(value)
    if isinstance(value, dict):
        return {clean_text(str(key)): clean_value(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [clean_value(item) for item in value]
    return value


def copy_message(message: Message) -> Message:
    """Return an independent copy; strings are shared, containers are not."""
    return {key: _copy_value(value) for key, value in message.items()}


def _copy_value(value: Any) -> Any:
    """Return a deep copy of a JSON value; `copy.deepcopy` keeps a memo that none needs."""
    if value.__class__ is dict:
        return {key: _copy_value(item) for key, item in value.items()}
    if value.__class__ is list:
        return [_copy_value(item) for item in value]
    return value


def copy_messages(messages: Iterable[Message]) -> list[Message]:
    """Return independent copies of all messages, in order."""
    return [copy_message(message) for message in messages]


def wire_message(message: Message) -> Message:
    """Return the message without our `_` keys (a shallow copy)."""
    return {key: value for key, value in message.items() if not key.startswith("_")}


def text_of(content: Any) -> str:
    """Return the readable text of a `content` value: a string, a list of parts, or None.

    An image that is a data URL in the text of a part is a word there.
    """
    if isinstance(content, str):
        return content
    if isinstance(content, list):
        texts = [
            part.get("text", "") if isinstance(part, dict) else part
            for part in content
            if isinstance(part, dict | str)
        ]
        return "\n".join(
            replace_images(text)[0] for text in texts if isinstance(text, str) and text
        )
    return ""


def call_ids(message: Message) -> list[str]:
    """Return the ids of the tool calls that an assistant message makes, in order."""
    return [str(call.get("id", "")) for call in message.get("tool_calls") or ()]


def is_user_text(message: Message) -> bool:
    """Return whether this is a real user's message: role user, not made by a pass, not blank."""
    if message.get("role") != "user" or message.get("_kind", "message") != "message":
        return False
    content = message.get("content")
    return bool(text_of(content).strip()) or (isinstance(content, list) and bool(content))


def last_user_index(messages: list[Message]) -> int | None:
    """Return the index of the newest real user message, or None."""
    for index in range(len(messages) - 1, -1, -1):
        if is_user_text(messages[index]):
            return index
    return None
