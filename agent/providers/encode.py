"""Requests as bytes: each stored row is encoded once and its bytes are kept.

At 10,000 rows a request then costs one join, not an encoding of the whole history.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import orjson

from agent.base.messages import Message, clean_value, wire_message
from agent.providers.reasoning import replayed

_Kept = dict[tuple[int, Any], tuple[Any, bytes]]


class RowEncoder:
    """Encodes messages for one route and remembers the rows of the last request that had any.

    Memory: the bytes of one request. Concurrency: safe; a race costs an encoding.
    """

    def __init__(self, route: str) -> None:
        self._route = route
        self._kept: _Kept = {}

    def body(self, messages: Sequence[Message], fields: Mapping[str, Any]) -> bytes:
        """Return the JSON object of `fields` and `messages`."""
        rows = self._rows(messages)
        if rows:
            rows[0] = rows[0][1:]
        return b"".join([b'{"messages":[', *rows, b"],", _encode(fields)[1:]])

    def _rows(self, messages: Sequence[Message]) -> list[bytes]:
        """Return the bytes of each message, each with a comma before it."""
        kept, now = self._kept, dict[tuple[int, Any], tuple[Any, bytes]]()
        rows: list[bytes] = []
        for message in messages:
            row_id = message.get("_row_id")
            if row_id is None:
                rows.append(self._encode_message(message))
                continue
            key = (row_id, message.get("_masked_by"))
            content = message.get("content")
            entry = kept.get(key)
            # The comparison is free for the same object and guards against a row of another store.
            if entry is None or entry[0] != content:
                entry = (content, self._encode_message(message))
            now[key] = entry
            rows.append(entry[1])
        if now:
            self._kept = now
        return rows

    def _encode_message(self, message: Message) -> bytes:
        wire = wire_message(message)
        if wire.get("tool_calls") and wire.get("content") == "":
            wire["content"] = None  # an empty text beside calls is refused by some providers
        if message.get("role") == "assistant":
            wire |= replayed(message.get("_reasoning"), self._route)
        return b"," + _encode(wire)


def _encode(value: Any) -> bytes:
    """Return the JSON bytes; text that is no valid Unicode is repaired first."""
    try:
        return orjson.dumps(value)
    except TypeError:
        return orjson.dumps(clean_value(value))
