"""Requests as bytes: each stored row is encoded once and its bytes are kept.

At 10,000 rows a request then costs one join, not an encoding of the whole history.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import orjson

from agent.base.images import images_apart
from agent.base.messages import Message, clean_text, clean_value, wire_message
from agent.providers.reasoning import replayed

_Key = tuple[int, Any]

_UNNAMEABLE = re.compile(r"[^a-zA-Z0-9_-]")
_LONGEST_NAME = 64
_SPARE_BYTES = 8 * 1024 * 1024


class RowEncoder:
    """Encodes messages for one route and keeps the bytes of stored rows.

    A row that stands where it stood in the request before costs one comparison of identity;
    one that moved or was loaded again, one look-up.
    Memory: at most twice the bytes of the last request with rows, and 8 MiB.
    Concurrency: safe; a race costs an encoding.
    """

    def __init__(self, route: str) -> None:
        self._route = route
        self._last: tuple[list[Message | None], list[bytes]] = ([], [])
        self._kept: dict[_Key, tuple[Any, bytes]] = {}
        self._kept_bytes = 0

    def body(self, messages: Sequence[Message], fields: Mapping[str, Any]) -> bytes:
        """Return the JSON object of `fields` and `messages`."""
        rows = self._rows(messages)
        if rows:
            rows[0] = rows[0][1:]
        return b"".join([b'{"messages":[', *rows, b"],", _encode(fields)[1:]])

    def _rows(self, messages: Sequence[Message]) -> list[bytes]:
        """Return the bytes of each message, each with a comma before it."""
        last, last_rows = self._last
        rows = [
            row if message is before else self._row(message)
            for message, before, row in zip(messages, last, last_rows, strict=False)
        ]
        rows += [self._row(message) for message in messages[len(rows) :]]
        stored = [message if "_row_id" in message else None for message in messages]
        if any(stored):
            self._last = (stored, list(rows))
            self._forget(messages, sum(map(len, rows)))
        return rows

    def _row(self, message: Message) -> bytes:
        row_id = message.get("_row_id")
        if row_id is None:
            return self._encode_message(message)
        key = (row_id, message.get("_masked_by"))
        content = message.get("content")
        entry = self._kept.get(key)
        # The comparison guards against a row of another store with the same id.
        if entry is None or entry[0] != content:
            entry = (content, self._encode_message(message))
            self._kept[key] = entry
            self._kept_bytes += len(entry[1])
        return entry[1]

    def _forget(self, messages: Sequence[Message], size: int) -> None:
        """Drop rows that the request does not hold, once they are as many as those it does."""
        if self._kept_bytes <= 2 * size + _SPARE_BYTES:
            return
        kept = self._kept
        keys = [(message.get("_row_id"), message.get("_masked_by")) for message in messages]
        self._kept = {key: kept[key] for key in keys if key in kept}
        self._kept_bytes = sum(len(row) for _content, row in self._kept.values())

    def _encode_message(self, message: Message) -> bytes:
        wire = wire_message(message)
        if wire.get("tool_calls"):
            wire["tool_calls"] = [_valid_call(call) for call in wire["tool_calls"]]
            if wire.get("content") == "":
                wire["content"] = None  # an empty text beside calls is refused by some providers
        if message.get("role") == "tool" and "name" in wire:
            wire["name"] = _valid_name(str(wire["name"]))
        if isinstance(wire.get("content"), list):
            wire["content"] = images_apart(wire["content"])
        if message.get("role") == "assistant":
            wire |= replayed(message.get("_reasoning"), self._route)
        return b"," + _encode(wire)


def _valid_call(call: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a call as strict servers take it, whatever the model wrote.

    They refuse a name with other characters and arguments that are no JSON object, such as those
    of a call that was cut off; one such row would then fail every later request.
    """
    function = call.get("function") or {}
    name, arguments = str(function.get("name", "")), function.get("arguments")
    valid = {"name": _valid_name(name), "arguments": arguments}
    if not _is_json_object(arguments):
        text = arguments if isinstance(arguments, str) else ""
        unreadable = {"unreadable": clean_text(text)} if text.strip() else {}
        valid["arguments"] = orjson.dumps(unreadable).decode()
    return call if valid.items() <= function.items() else {**call, "function": function | valid}


def _valid_name(name: str) -> str:
    return _UNNAMEABLE.sub("_", name)[:_LONGEST_NAME]


def _is_json_object(text: Any) -> bool:
    try:
        return isinstance(orjson.loads(text), dict)
    except orjson.JSONDecodeError:
        return False


def _encode(value: Any) -> bytes:
    """Return the JSON bytes; text that is no valid Unicode is repaired first."""
    try:
        return orjson.dumps(value)
    except TypeError:
        return orjson.dumps(clean_value(value))
