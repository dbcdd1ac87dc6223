"""The Anthropic Messages wire, streaming and not, with breakpoints for the prompt cache.

Rows and requests are `anthropic_rows.py`'s, answers `anthropic_reply.py`'s; what every wire shares
stands in `http_model.py`.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from agent.base.errors import RequestRefused
from agent.base.messages import Message, call_ids
from agent.providers.anthropic_reply import AnthropicPieces
from agent.providers.anthropic_rows import (
    WIRE,
    RowJoiner,
    behind_compaction,
    choose_cuts,
    cut,
    holds_compaction,
    ids_apart,
    is_compacted,
    joined,
    may_think,
    plain_answers,
    system_blocks,
    tool_blocks,
    write_row,
)
from agent.providers.call import Call
from agent.providers.encode import encode_json
from agent.providers.http_model import HttpModel, Quirks
from agent.providers.protocol import ModelReply, ModelRequest
from agent.providers.reasoning import bound_to

DEFAULT_URL = "https://api.anthropic.com"
HEADERS = (("anthropic-version", "2026-10-21"),)

_BETAS = {
    "compact_20260112": "compact-2026-01-12",
    "clear_tool_uses_20250919": "context-management-2025-06-27",
    "clear_thinking_20251015": "context-management-2025-06-27",
}
"""Each edit that a request may ask for, and the name under which the service offers it."""
_COMPACTS, _CLEARS_TOOLS, _CLEARS_THINKING = _BETAS
_KEPT_TOOL_USES = 3
_LEAST_CLEARED_SHARE = 0.1
"""A clearing breaks the prompt cache: less than this part of where it begins is not worth it."""
_SMALLEST_THINKING_TOKENS = 1_024
_SPEAKS_OF_THINKING = re.compile(r"(?i)^(?!.*compaction).*(?:thinking|signature)")
"""A compaction is never left out like this: without it a request would lose what it stands for."""


def _lets_compact(request: ModelRequest, quirks: Quirks) -> bool:
    """Return whether a request lets the service compact by itself."""
    return request.compact_at > 0 and not quirks & {"context_management", "anthropic-beta"}


def _edits(request: ModelRequest, quirks: Quirks, *, thinks: bool) -> list[dict[str, Any]]:
    """Return how the service may change what it reads, in the order that it wants."""
    edits: list[dict[str, Any]] = []
    if request.clear_at > 0 and not quirks & {"context_management", "anthropic-beta"}:
        if request.clear_thinking and thinks:
            keep = {"type": "thinking_turns", "value": 1}
            edits.append({"type": _CLEARS_THINKING, "keep": keep})
        edits.append(
            {
                "type": _CLEARS_TOOLS,
                "trigger": _input_tokens(request.clear_at),
                "keep": {"type": "tool_uses", "value": _KEPT_TOOL_USES},
                "clear_at_least": _input_tokens(int(request.clear_at * _LEAST_CLEARED_SHARE)),
            }
        )
    if _lets_compact(request, quirks):
        edits.append({"type": _COMPACTS, "trigger": _input_tokens(request.compact_at)})
    return edits


def _input_tokens(tokens: int) -> dict[str, Any]:
    return {"type": "input_tokens", "value": tokens}


def versioned_url(base_url: str) -> str:
    """Return the root of the API with its version, whichever way it was given."""
    root = (base_url or DEFAULT_URL).rstrip("/")
    return root if root.endswith("/v1") else f"{root}/v1"


class AnthropicMessages(HttpModel):
    """One model behind one Anthropic Messages endpoint.

    `thinking_tokens` is how much of an answer may be thinking; 0 asks for none.
    """

    path: ClassVar[str] = "/messages"
    headers: ClassVar[tuple[tuple[str, str], ...]] = HEADERS
    learnable: ClassVar[tuple[str, ...]] = (
        "temperature",
        "thinking.type",
        "context_management",
        "anthropic-beta",
    )

    def __init__(self, *, base_url: str, thinking_tokens: int = 0, **settings: Any) -> None:
        super().__init__(base_url=versioned_url(base_url), **settings)
        self._thinking_tokens = thinking_tokens
        self._joiner = RowJoiner()
        self._forgotten = 0
        self._has_compactions = False
        self._seqs_of_ids: dict[str, int] = {}
        self._repeated_ids: set[str] = set()

    def holds_compaction(self, message: Message) -> bool:
        """Return whether an answer of this model, endpoint and wire brought a compaction block."""
        return holds_compaction(message, self.route)

    def _write_row(self, message: Message, replays: bool) -> bytes:
        seq = message.get("_seq", 0)
        for call_id in call_ids(message) if seq else ():
            if self._seqs_of_ids.setdefault(call_id, seq) != seq:
                self._repeated_ids.add(call_id)
        self._has_compactions |= self.holds_compaction(message)
        return write_row(message, replays, route=self.route)

    def _send(self, request: ModelRequest, call: Call) -> ModelReply:
        """Send; when the endpoint refuses thinking of earlier answers, once more without it."""
        try:
            return super()._send(request, call)
        except RequestRefused as refusal:
            newest = max((message.get("_seq", 0) for message in request.messages), default=0)
            if newest < self._forgotten or not _SPEAKS_OF_THINKING.search(str(refusal)):
                raise
            self._forgotten = newest + 1
        return super()._send(request, call)

    def _body(self, request: ModelRequest, quirks: Quirks) -> bytes:
        system, count = system_blocks(request.messages)
        messages: Sequence[Message] = request.messages[count:]
        replay_from = max(request.replay_from, self._forgotten)
        rows = self._encoder.rows(messages, replay_from)
        repeated = self._repeated_ids | self._repeated_in(messages)
        if repeated:
            messages = ids_apart(messages, repeated, self._seqs_of_ids)
            rows = self._encoder.rows(messages, replay_from)
        if self._has_compactions:
            asks = _lets_compact(request, quirks)
            messages = plain_answers(messages, rows, but_newest=asks)
            rows = self._encoder.rows(messages, replay_from)
            if asks and is_compacted(rows):
                messages = behind_compaction(messages, rows)
                rows = self._encoder.rows(messages, replay_from)
        keep = any("_row_id" in message for message in messages)
        parts, stable = self._joiner.join(rows, keep=keep)
        cuts = choose_cuts(messages, stable)
        fields = self._fields(request, quirks, thinks=may_think(messages, rows))
        tools = tool_blocks(request.tools)
        if system:
            fields["system"] = cut(system)
        elif tools:
            tools = cut(tools)
        if tools:
            fields["tools"] = tools
        return b"".join([b'{"messages":', *joined(parts, cuts), b",", encode_json(fields)[1:]])

    def _fields(self, request: ModelRequest, quirks: Quirks, *, thinks: bool) -> dict[str, Any]:
        fields: dict[str, Any] = {
            "model": self._model,
            "max_tokens": request.max_tokens,
            "stream": request.stream,
        }
        budget = min(self._thinking_tokens, request.max_tokens - _SMALLEST_THINKING_TOKENS)
        if thinks and budget >= _SMALLEST_THINKING_TOKENS:
            is_manual = "thinking.type" not in quirks
            fields["thinking"] = (
                {"type": "enabled", "budget_tokens": budget} if is_manual else {"type": "adaptive"}
            )
        elif request.temperature is not None and "temperature" not in quirks:
            fields["temperature"] = request.temperature
        edits = _edits(request, quirks, thinks="thinking" in fields)
        if edits:
            fields["context_management"] = {"edits": edits}
        return fields

    def _more_headers(self, request: ModelRequest, quirks: Quirks) -> Mapping[str, str]:
        edits = _edits(request, quirks, thinks=False)
        betas = sorted({_BETAS[edit["type"]] for edit in edits})
        return {"anthropic-beta": ",".join(betas)} if betas else {}

    def _repeated_in(self, messages: Sequence[Message]) -> set[str]:
        """Return the ids that calls of messages without a seq share with any other call."""
        unstored = [message for message in messages if "_seq" not in message]
        counts = Counter(call_id for message in unstored for call_id in call_ids(message))
        return {name for name, n in counts.items() if n > 1 or name in self._seqs_of_ids}

    def _pieces(self) -> AnthropicPieces:
        return AnthropicPieces(self._model, bound_to(self.route, WIRE))
