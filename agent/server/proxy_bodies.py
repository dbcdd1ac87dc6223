"""Bodies of requests, read in part: a client that goes on sends what it sent before and some more.

Of such a body only the new messages are parsed; that the rest is the same is told by comparing
bytes, which takes a hundredth of the time.
"""

from __future__ import annotations

import re
import threading
from collections import deque
from typing import Any

import orjson

from agent.base.record import dataclass
from agent.providers.text import load_json
from agent.server.proxy_chain import Sent

_MOST_BODIES = 128
_MOST_BYTES = 64 * 1024 * 1024
_TOKEN = re.compile(rb'("[^"\\]*(?:\\.[^"\\]*)*")(\s*:)?|[\[\]{}]', re.DOTALL)
_OPENING = frozenset(b"[{")


@dataclass(frozen=True)
class Reading:
    """What a body says. Its first `known` messages are the very objects of an earlier body, which
    was read as `before`.

    `closes` is where its messages end, where that is known already.
    """

    raw: bytes
    body: Any
    known: int = 0
    closes: int | None = None
    before: Sent | None = None


@dataclass(frozen=True)
class _Kept:
    """A body cut where more messages can be put in: behind its last one."""

    owner: str
    stem: bytes
    tail: bytes
    body: dict[str, Any]
    sent: Sent | None

    @property
    def size(self) -> int:
        return len(self.stem) + len(self.tail)


class Bodies:
    """Reads bodies, and keeps the last ones. What it gives is never changed. Thread-safe."""

    def __init__(self, *, most: int = _MOST_BODIES, most_bytes: int = _MOST_BYTES) -> None:
        self._most = most
        self._most_bytes = most_bytes
        self._lock = threading.Lock()
        self._kept: deque[_Kept] = deque()
        self._bytes = 0

    def read(self, raw: bytes, owner: str) -> Reading:
        """Return what a body says. Raises: ValueError when it is no JSON."""
        with self._lock:
            found = [kept for kept in self._kept if kept.owner == owner]
        for kept in found:
            if raw.startswith(kept.stem) and raw.endswith(kept.tail):
                closes = len(raw) - len(kept.tail)
                added = _added(raw[len(kept.stem) : closes])
                if added is not None:
                    known = kept.body["messages"]
                    body = {**kept.body, "messages": [*known, *added]}
                    return Reading(raw, body, len(known), closes, kept.sent)
        return Reading(raw, load_json(raw))

    def keep(self, reading: Reading, owner: str, sent: Sent | None = None) -> None:
        """Keep a body whose messages are a list, and what it was read as, in place of the one that
        it goes on from."""
        closes = reading.closes
        if closes is None:
            closes = _end_of_messages(reading.raw)
        if closes is None:
            return
        stem, tail = reading.raw[:closes].rstrip(), reading.raw[closes:]
        new = _Kept(owner, stem, tail, reading.body, sent)
        with self._lock:
            for kept in list(self._kept):
                if kept.owner == owner and kept.tail == tail and stem.startswith(kept.stem):
                    self._forget(kept)
            self._kept.appendleft(new)
            self._bytes += new.size
            while len(self._kept) > self._most or self._bytes > self._most_bytes:
                self._forget(self._kept[-1])

    def _forget(self, kept: _Kept) -> None:
        self._kept = deque(one for one in self._kept if one is not kept)
        self._bytes -= kept.size


def _added(piece: bytes) -> list[Any] | None:
    """Return the messages in what stands between a stem and a tail, None where it is no such
    thing."""
    piece = piece.strip()
    if not piece:
        return []
    if not piece.startswith(b","):
        return None
    try:
        added = orjson.loads(b"[%s]" % piece[1:])
    except ValueError:
        return None
    return added or None


def _end_of_messages(raw: bytes) -> int | None:
    """Return where the only list `messages` of a JSON object closes, None for other bodies."""
    depth, closes, is_named, is_inside = 0, -1, False, False
    for token in _TOKEN.finditer(raw):
        if token.group(1) is not None:
            if depth == 1:
                is_named = token.group(2) is not None and _is_messages(token.group(1))
                if is_named and closes >= 0:
                    return None
        elif raw[token.start()] in _OPENING:
            is_inside |= depth == 1 and is_named and token.group() == b"["
            depth += 1
        else:
            depth -= 1
            if depth == 1 and is_inside:
                closes, is_inside, is_named = token.start(), False, False
    return None if closes < 0 else closes


def _is_messages(string: bytes) -> bool:
    return string == b'"messages"' or (b"\\" in string and orjson.loads(string) == "messages")
