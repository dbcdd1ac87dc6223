"""The Responses wire: any endpoint that serves `/responses`, streaming and not; nothing is stored
at the provider.

What goes out is made by `items.py`, what comes back put together by `responses_reply.py`; what
every wire shares stands in `http_model.py`.
"""

from __future__ import annotations

from typing import Any, ClassVar

from agent.base.messages import Message, text_of
from agent.providers.http_model import HttpModel, Quirks
from agent.providers.items import COMPACTION, function_tool, holds_compaction, write_item_row
from agent.providers.protocol import ModelRequest
from agent.providers.responses_reply import ResponsePieces

_ENCRYPTED = "reasoning.encrypted_content"
_SMALLEST_OUTPUT_TOKENS = 16
_NO_SUMMARY = "reasoning.summary"
_NO_ENCRYPTED = "ncrypted content"
_NO_TEMPERATURE = "temperature"
_NO_COMPACTION = "context_management"
_SMALLEST_THRESHOLD_TOKENS = 1_000


class Responses(HttpModel):
    """One model behind one Responses endpoint."""

    path: ClassVar[str] = "/responses"
    list_name: ClassVar[str] = "input"
    learnable: ClassVar[tuple[str, ...]] = (
        _NO_SUMMARY,
        _NO_ENCRYPTED,
        _NO_TEMPERATURE,
        _NO_COMPACTION,
    )

    def holds_compaction(self, message: Message) -> bool:
        """Return whether an answer of this model, endpoint and wire brought a compaction item."""
        return holds_compaction(message, self.route)

    def _write_row(self, message: Message, replays: bool) -> bytes:
        return write_item_row(message, replays, route=self.route)

    def _body(self, request: ModelRequest, quirks: Quirks) -> bytes:
        messages = request.messages
        fields: dict[str, Any] = {
            "model": self._model,
            "max_output_tokens": max(request.max_tokens, _SMALLEST_OUTPUT_TOKENS),
            "stream": request.stream,
            "store": False,
        }
        if messages and messages[0].get("role") == "system":
            fields["instructions"] = text_of(messages[0].get("content"))
            messages = messages[1:]
        if _NO_ENCRYPTED not in quirks:
            fields["include"] = [_ENCRYPTED]
        if _NO_SUMMARY not in quirks:
            fields["reasoning"] = {"summary": "auto"}
        if request.temperature is not None and _NO_TEMPERATURE not in quirks:
            fields["temperature"] = request.temperature
        if request.compact_at and _NO_COMPACTION not in quirks:
            threshold = max(request.compact_at, _SMALLEST_THRESHOLD_TOKENS)
            asked = {"type": COMPACTION, "compact_threshold": threshold}
            fields["context_management"] = [asked]
        if request.tools:
            fields["tools"] = [function_tool(schema) for schema in request.tools]
        return self._encoder.body(messages, fields, replay_from=request.replay_from)

    def _pieces(self) -> ResponsePieces:
        return ResponsePieces(self._model, self.route)
