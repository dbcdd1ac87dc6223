"""Reads the body of an answer of any wire: events or one JSON object, whichever was sent.

Servers ignore what was asked for, so the body itself decides. Read next: `reply.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from itertools import chain
from typing import Any, Protocol

from agent.base.errors import CallStalled, NetworkError, ProviderError
from agent.providers.failures import Complaint, is_early_end
from agent.providers.protocol import CallWatch, Delta, ModelReply
from agent.providers.stream import EventDecoder
from agent.providers.text import load_json
from agent.providers.transport import Incoming

_DONE = b"[DONE]"
_SHOWN_BYTES = 200


class AnswerPieces(Protocol):
    """Puts one answer of one wire together from the JSON objects that arrive."""

    @property
    def begun(self) -> bool:
        """Whether anything of an answer has arrived."""
        ...

    @property
    def finished(self) -> bool:
        """Whether a finish reason has arrived: a connection that breaks now loses nothing."""
        ...

    @property
    def ended(self) -> bool:
        """Whether nothing more can follow, on wires that say so in an object."""
        ...

    def complaint(self, part: Mapping[str, Any]) -> Complaint | None:
        """Return the error that an object carries in place of an answer, None for none."""
        ...

    def add(self, part: Mapping[str, Any]) -> Delta | None:
        """Take in one object; return the new text, None for none."""
        ...

    def whole(self) -> ModelReply:
        """Return the answer so far; without a finish reason it counts as truncated."""
        ...


class AnswerReader:
    """Reads one answer into `pieces` and passes on each new piece of text.

    `on_complaint` makes the error of an error object that stands in place of an answer, and
    `on_unreadable` that of a body which is no answer at all.
    """

    def __init__(
        self,
        pieces: AnswerPieces,
        watch: CallWatch,
        *,
        on_complaint: Callable[[Complaint], ProviderError],
        on_unreadable: Callable[[str], ProviderError],
    ) -> None:
        self._pieces = pieces
        self._watch = watch
        self._on_complaint = on_complaint
        self._on_unreadable = on_unreadable

    def read(self, incoming: Incoming) -> ModelReply:
        """Return the answer.

        Raises: ProviderError when the server reports one, when the connection breaks before the
        answer is complete, or when the body is no answer.
        """
        chunks = incoming.chunks()
        head = b""
        for chunk in chunks:
            head = (head + chunk).lstrip()
            if head:
                break
        if head.startswith((b"{", b"[")):
            self._take(b"".join([head, *chunks]))
        else:
            self._read_events(incoming, chain([head], chunks))
        if not self._pieces.begun:
            raise self._on_unreadable(_shown(head))
        return self._pieces.whole()

    def _read_events(self, incoming: Incoming, chunks: Iterator[bytes]) -> None:
        """Read a stream to its end.

        A connection that breaks after the finish reason loses nothing; one that the server
        closes before it leaves an answer without a finish, which counts as truncated.
        """
        decoder = EventDecoder()
        is_done = False
        try:
            for chunk in chunks:
                for event in decoder.feed(chunk):
                    if is_done:
                        continue
                    is_done = event.data.strip() == _DONE
                    if not is_done:
                        self._take(event.data)
                        is_done = self._pieces.ended
                    if is_done:
                        incoming.expect_end()
        except (NetworkError, CallStalled) as fault:
            is_end = self._pieces.finished or (self._pieces.begun and is_early_end(fault))
            if not is_end:
                raise
        for event in () if is_done else decoder.end():
            if event.data.strip() != _DONE:
                self._take(event.data)

    def _take(self, data: bytes) -> None:
        """Take in one JSON object and pass on what is new in it; an empty event says nothing."""
        if not data.strip():
            return
        try:
            part = load_json(data)
        except ValueError:
            raise self._on_unreadable(_shown(data)) from None
        if not isinstance(part, dict):
            raise self._on_unreadable(_shown(data))
        complaint = self._pieces.complaint(part)
        if complaint is not None:
            raise self._on_complaint(complaint)
        delta = self._pieces.add(part)
        if delta is not None and self._watch.on_delta is not None:
            self._watch.on_delta(delta)


def _shown(data: bytes) -> str:
    return data[:_SHOWN_BYTES].decode("utf-8", "replace")
