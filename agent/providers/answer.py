"""Reads the body of a chat-completions answer: events or one JSON object, whichever was sent.

Servers ignore what was asked for, so the body itself decides. Read next: `reply.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from itertools import chain
from typing import Any

from agent.base.errors import CallStalled, NetworkError, ProviderError
from agent.providers.failures import Complaint, complaint_of, is_early_end
from agent.providers.protocol import CallWatch, ModelReply
from agent.providers.reply import ReplyPieces
from agent.providers.stream import EventDecoder
from agent.providers.text import load_json
from agent.providers.transport import Incoming

_DONE = b"[DONE]"
_SHOWN_BYTES = 200


class AnswerReader:
    """Reads one answer into `pieces` and passes on each new piece of text.

    `on_complaint` makes the error of an error object that stands in place of an answer, and
    `on_unreadable` that of a body which is no answer at all.
    """

    def __init__(
        self,
        pieces: ReplyPieces,
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
                    if not is_done and event.data.strip() == _DONE:
                        is_done = True
                        incoming.expect_end()
                    if not is_done:
                        self._take(event.data)
        except (NetworkError, CallStalled) as fault:
            is_end = self._pieces.finished or (self._pieces.begun and is_early_end(fault))
            if not is_end:
                raise
        for event in () if is_done else decoder.end():
            if event.data.strip() != _DONE:
                self._take(event.data)

    def _take(self, data: bytes) -> None:
        """Take in one JSON object and pass on what is new in it."""
        try:
            part = load_json(data)
        except ValueError:
            raise self._on_unreadable(_shown(data)) from None
        if not isinstance(part, dict):
            raise self._on_unreadable(_shown(data))
        complaint = _complaint_in(part)
        if complaint is not None:
            raise self._on_complaint(complaint)
        delta = self._pieces.add(part)
        if delta is not None and self._watch.on_delta is not None:
            self._watch.on_delta(delta)


def _complaint_in(part: Mapping[str, Any]) -> Complaint | None:
    """Return the error that a chunk or a whole answer carries, at its top or in its choice."""
    if part.get("error"):
        return complaint_of(part)
    choices = part.get("choices")
    choice = choices[0] if isinstance(choices, list) and choices else None
    if isinstance(choice, Mapping) and (
        choice.get("error") or choice.get("finish_reason") == "error"
    ):
        return complaint_of({"error": choice.get("error") or "the provider ended it with an error"})
    return None


def _shown(data: bytes) -> str:
    return data[:_SHOWN_BYTES].decode("utf-8", "replace")
