"""An answer of the upstream, read on the side while its bytes go on to the client untouched."""

from __future__ import annotations

import dataclasses
from typing import Any

from agent.base.messages import Message
from agent.providers.failures import Complaint, complaint_of
from agent.providers.protocol import TokenUsage
from agent.providers.reply import ReplyPieces
from agent.providers.stream import EventDecoder
from agent.providers.text import load_json

_DONE = b"[DONE]"


class ReplyReader:
    """Puts one answer together from its bytes; what cannot be read is only not stored."""

    def __init__(self, model: str, route: str) -> None:
        self._pieces = ReplyPieces(model, route)
        self._decoder: EventDecoder | None = EventDecoder()
        self.begun = False
        """Whether an event has arrived; comments are none."""
        self.done = False
        """Whether the end of the stream was announced."""
        self.complaint: Complaint | None = None
        """The error that the answer began with, if it did."""

    def feed(self, chunk: bytes) -> None:
        """Take in a piece of an event stream."""
        if self._decoder is None:
            return
        try:
            for event in self._decoder.feed(chunk):
                self._take(event.data)
        except ValueError:
            self._decoder = None

    def whole(self, body: bytes) -> None:
        """Take in an answer that came in one piece."""
        try:
            self._add(load_json(body))
        except ValueError:
            return

    def _take(self, data: bytes) -> None:
        if data.strip() == _DONE:
            self.done = True
        elif data.strip() and not self.done:
            self._add(load_json(data))

    def _add(self, part: Any) -> None:
        if not isinstance(part, dict):
            return
        if part.get("error") and not self.begun:
            self.complaint = complaint_of(part)
        self.begun = True
        self._pieces.add(part)

    @property
    def usage(self) -> TokenUsage | None:
        """The upstream's count, if it has come."""
        return self._pieces.whole().usage

    @property
    def finished(self) -> bool:
        """Whether the answer is complete."""
        return self._pieces.finished

    def message(self) -> Message | None:
        """Return the answer as a row, as far as it came; None when there is nothing of it.

        Calls that were cut off are left out: half a call is none.
        """
        reply = self._pieces.whole()
        message = dict(reply.message)
        if not self.finished:
            message.pop("tool_calls", None)
        if not message.get("tool_calls") and not str(message.get("content") or "").strip():
            return None
        message["_finish_reason"] = reply.finish_reason if self.finished else "interrupted"
        message["_model"] = reply.model
        if reply.usage is not None:
            message["_usage"] = dataclasses.asdict(reply.usage)
        return message
