"""The chat-completions wire: any OpenAI-compatible endpoint, streaming and not.

What goes out is made by `encode.py`, what comes back put together by `reply.py`; what every wire
shares stands in `http_model.py`.
"""

from __future__ import annotations

from typing import Any, ClassVar

from agent.base.messages import Message
from agent.providers.encode import write_chat_row
from agent.providers.http_model import HttpModel, Quirks
from agent.providers.protocol import ModelRequest
from agent.providers.reply import ReplyPieces


class ChatCompletions(HttpModel):
    """One model behind one chat-completions endpoint."""

    path: ClassVar[str] = "/chat/completions"
    learnable: ClassVar[tuple[str, ...]] = (
        "max_completion_tokens",
        "stream_options",
        "temperature",
    )

    def _write_row(self, message: Message, replays: bool) -> bytes:
        return write_chat_row(message, replays, route=self.route)

    def _body(self, request: ModelRequest, quirks: Quirks) -> bytes:
        is_renamed = "max_completion_tokens" in quirks
        fields: dict[str, Any] = {
            "model": self._model,
            "max_completion_tokens" if is_renamed else "max_tokens": request.max_tokens,
            "stream": request.stream,
        }
        if request.stream and "stream_options" not in quirks:
            fields["stream_options"] = {"include_usage": True}
        if request.temperature is not None and "temperature" not in quirks:
            fields["temperature"] = request.temperature
        if request.tools:
            fields["tools"] = list(request.tools)
        return self._encoder.body(request.messages, fields, replay_from=request.replay_from)

    def _pieces(self) -> ReplyPieces:
        return ReplyPieces(self._model, self.route)
