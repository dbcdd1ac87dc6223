"""Requests as bytes: each stored row is encoded once and its bytes are kept.

At 10,000 rows a request then costs one join, not an encoding of the whole history.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import orjson

from agent.base.images import IMAGE_WORD, is_image
from agent.base.messages import Message, clean_text, clean_value, wire_message
from agent.providers.parts import plain_parts
from agent.providers.reasoning import replayed

_Key = tuple[int | None, Any, bool]

_UNNAMEABLE = re.compile(r"[^a-zA-Z0-9_-]")
_LONGEST_NAME = 64
_NAMELESS = "unnamed"
_SPARE_BYTES = 8 * 1024 * 1024


WriteRow = Callable[[Message, bool], bytes]
"""Returns a message as a wire has it: JSON with a comma before each value. The flag says whether
reasoning that is bound to what stood before it may go back."""


class RowEncoder:
    """Encodes messages for one route and keeps the bytes of stored rows.

    `list_name` is the field that holds the messages. A row that stands where it stood in the
    request before costs one comparison of identity; one that moved, was loaded again or follows a
    pass, one look-up.
    Memory: at most twice the bytes of the last request with rows, and 8 MiB.
    Concurrency: safe; a race costs an encoding.
    """

    def __init__(self, write_row: WriteRow, list_name: str = "messages") -> None:
        self._write_row = write_row
        self._opening = b'{"%s":[' % list_name.encode()
        self._last: tuple[int, list[Message | None], list[bytes]] = (0, [], [])
        self._kept: dict[_Key, tuple[Any, bytes]] = {}
        self._kept_bytes = 0

    def body(
        self, messages: Sequence[Message], fields: Mapping[str, Any], *, replay_from: int = 0
    ) -> bytes:
        """Return the JSON object of `fields` and `messages`; see `ModelRequest.replay_from`."""
        rows = self.rows(messages, replay_from)
        if rows:
            rows[0] = rows[0][1:]
        return b"".join([self._opening, *rows, b"],", encode_json(fields)[1:]])

    def rows(self, messages: Sequence[Message], replay_from: int) -> list[bytes]:
        """Return the bytes of each message as the wire writes it, in a list of the caller's own."""
        last_from, last, last_rows = self._last
        if last_from != replay_from:
            last, last_rows = [], []
        rows = [
            row if message is before else self._row(message, replay_from)
            for message, before, row in zip(messages, last, last_rows, strict=False)
        ]
        rows += [self._row(message, replay_from) for message in messages[len(rows) :]]
        stored = [message if "_row_id" in message else None for message in messages]
        if any(stored):
            self._last = (replay_from, stored, list(rows))
            self._forget(messages, replay_from, sum(map(len, rows)))
        return rows

    def _row(self, message: Message, replay_from: int) -> bytes:
        key = _key_of(message, replay_from)
        if key[0] is None:
            return self._write_row(message, key[2])
        content = message.get("content")
        entry = self._kept.get(key)
        # The comparison guards against a row of another store with the same id.
        if entry is None or entry[0] != content:
            entry = (content, self._write_row(message, key[2]))
            self._kept[key] = entry
            self._kept_bytes += len(entry[1])
        return entry[1]

    def _forget(self, messages: Sequence[Message], replay_from: int, size: int) -> None:
        """Drop rows that the request does not hold, once they are as many as those it does."""
        if self._kept_bytes <= 2 * size + _SPARE_BYTES:
            return
        kept = self._kept
        keys = [_key_of(message, replay_from) for message in messages]
        self._kept = {key: kept[key] for key in keys if key in kept}
        self._kept_bytes = sum(len(row) for _content, row in self._kept.values())


def _key_of(message: Message, replay_from: int) -> _Key:
    """Return row id, mask and whether bound reasoning goes back: what decides the bytes of a row.

    A message that is not stored yet stands behind every pass.
    """
    get = message.get
    replays = "_reasoning" not in message or get("_seq", replay_from) >= replay_from
    return get("_row_id"), get("_masked_by"), replays


def write_chat_row(message: Message, replays: bool, *, route: str) -> bytes:
    """Return a message as the chat-completions wire has it."""
    wire = wire_message(message)
    if wire.get("tool_calls"):
        wire["tool_calls"] = [valid_call(call) for call in wire["tool_calls"]]
        if wire.get("content") == "":
            wire["content"] = None  # an empty text beside calls is refused by some providers
    else:
        wire.pop("tool_calls", None)
    if "name" in wire:
        wire["name"] = valid_name(str(wire["name"]))
    if isinstance(wire.get("content"), list):
        wire["content"] = [_chat_part(part) for part in plain_parts(wire["content"])]
    if message.get("role") == "assistant":
        wire |= replayed(message.get("_reasoning"), route, bound=replays)
    return b"," + encode_json(wire)


def _chat_part(part: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a part, for an image that another endpoint keeps a word."""
    is_kept = is_image(part) and "image_url" not in part
    return {"type": "text", "text": IMAGE_WORD} if is_kept else part


def valid_call(call: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a call as strict servers take it, whatever the model wrote.

    They refuse a name with other characters and arguments that are no JSON object, such as those
    of a call that was cut off; one such row would then fail every later request.
    """
    function = call.get("function") or {}
    name, arguments = str(function.get("name", "")), function.get("arguments")
    valid = {"name": valid_name(name), "arguments": arguments}
    if not _is_json_object(arguments):
        text = arguments if isinstance(arguments, str) else ""
        unreadable = {"unreadable": clean_text(text)} if text.strip() else {}
        valid["arguments"] = orjson.dumps(unreadable).decode()
    return call if valid.items() <= function.items() else {**call, "function": function | valid}


def valid_name(name: str) -> str:
    """Return the name of a tool or a speaker as strict servers take it."""
    return _UNNAMEABLE.sub("_", name)[:_LONGEST_NAME] or _NAMELESS


def _is_json_object(text: Any) -> bool:
    try:
        return isinstance(orjson.loads(text), dict)
    except orjson.JSONDecodeError:
        return False


def encode_json(value: Any) -> bytes:
    """Return the JSON bytes; text that is no valid Unicode is repaired first."""
    try:
        return orjson.dumps(value)
    except TypeError:
        return orjson.dumps(clean_value(value))
