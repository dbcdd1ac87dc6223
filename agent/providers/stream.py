"""Server-sent events, decoded by hand: the HTTP client's own iterator drops comments unseen and a
last event without its blank line.

Source: https://html.spec.whatwg.org/multipage/server-sent-events.html#event-stream-interpretation
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from agent.base.record import dataclass

_LARGEST_EVENT_BYTES = 64 * 1024 * 1024
_LINE_END = re.compile(rb"\r\n|\n|\r")


@dataclass(frozen=True)
class ServerEvent:
    """One event: its name (`message` when it has none) and its data, lines joined by newlines."""

    name: str
    data: bytes


class EventDecoder:
    """Turns chunks of any size into events, in order; comments and unknown fields are dropped."""

    def __init__(self) -> None:
        self._pending = b""
        self._pieces: list[bytes] = []
        self._size = 0
        self._begun = False
        self._name = ""
        self._data: list[bytes] = []

    def feed(self, chunk: bytes) -> Iterator[ServerEvent]:
        """Yield the events that `chunk` completes.

        Raises: ValueError when one event is larger than 64 MiB.
        """
        self._pieces.append(chunk)
        self._size += len(chunk)
        if self._size > _LARGEST_EVENT_BYTES:
            raise ValueError(f"one event is larger than {_LARGEST_EVENT_BYTES} bytes")
        if b"\n" not in chunk and b"\r" not in chunk and not self._pending.endswith(b"\r"):
            return
        yield from self._lines(self._take(), final=False)

    def end(self) -> Iterator[ServerEvent]:
        """Yield what the end of the body completes: a last event without its blank line."""
        yield from self._lines(self._take() + b"\n\n", final=True)

    def _take(self) -> bytes:
        text = self._pending + b"".join(self._pieces)
        self._pending, self._pieces = b"", []
        if not self._begun and text:
            self._begun = True
            text = text.removeprefix(b"\xef\xbb\xbf")
        return text

    def _lines(self, text: bytes, *, final: bool) -> Iterator[ServerEvent]:
        start = 0
        for end in _LINE_END.finditer(text):
            if end.end() == len(text) and end.group() == b"\r" and not final:
                break  # the other half of this line end may be in the next chunk
            event = self._line(text[start : end.start()])
            start = end.end()
            if event is not None:
                yield event
        self._pending = text[start:]

    def _line(self, line: bytes) -> ServerEvent | None:
        """Take one line in; return the event that a blank one closes."""
        if not line:
            event = ServerEvent(self._name or "message", b"\n".join(self._data))
            has_data = bool(self._data)
            self._name, self._data, self._size = "", [], 0
            return event if has_data else None
        field, _colon, value = line.partition(b":")
        value = value.removeprefix(b" ")
        if field == b"data":
            self._data.append(value)
        elif field == b"event":
            self._name = value.decode("utf-8", "replace")
        return None
