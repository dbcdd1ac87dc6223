"""Puts an answer of the Anthropic Messages wire together, from a stream or from one whole body.

Thinking is kept as it came, signature and all, with the place it stood in. Pure.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import field
from typing import Any

from agent.base.messages import Message, clean_text
from agent.base.record import dataclass
from agent.providers.anthropic_rows import COMPACTION, LAYOUT, THINKING
from agent.providers.failures import Complaint, complaint_of
from agent.providers.protocol import Cleared, Delta, ModelReply
from agent.providers.reasoning import keep_fields
from agent.providers.reply import calls_apart, new_call_id
from agent.providers.text import join_text
from agent.providers.usage import count_of, later_usage, read_usage

_FINISH = {
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
    "pause_turn": "length",
    "refusal": "content_filter",
}
"""Reasons to stop that are not the end of an answer; calls tell `tool_use` from the rest."""

_SEALS = {"thinking": "signature", "redacted_thinking": "data"}
_GROWING = {
    "text_delta": ("text", "text"),
    "thinking_delta": ("thinking", "thinking"),
    "signature_delta": ("signature", "signature"),
    "input_json_delta": ("partial_json", "arguments"),
}
"""For each kind of delta: its field, and what it makes grow."""


@dataclass
class _Block:
    """One block while it arrives: what it began as, and what grew."""

    opened: dict[str, Any]
    grown: dict[str, list[str]] = field(default_factory=dict)

    @property
    def kind(self) -> str:
        return str(self.opened.get("type"))

    def text(self, name: str) -> str:
        """Return a text field, as it began and as it grew."""
        began = self.opened.get(name)
        return join_text([began if isinstance(began, str) else "", *self.grown.get(name, ())])

    def compaction(self) -> dict[str, Any] | None:
        """Return a compaction as it goes back, None for one that failed."""
        block = {name: value for name, value in self.opened.items() if value is not None}
        return {"type": self.kind, **block} if block.get("content") else None

    def sealed(self) -> dict[str, Any] | None:
        """Return a thinking block as it goes back, None while its seal has not arrived."""
        grown = {name: self.text(name) for name in self.grown}
        block = {"type": self.kind, **self.opened, **grown}
        return block if block.get(_SEALS[self.kind]) else None

    def call(self) -> dict[str, Any]:
        """Return a call in the shape of messages."""
        given = self.opened.get("input")
        written = self.text("arguments") or json.dumps(given or {}, ensure_ascii=False)
        return {
            "id": str(self.opened.get("id") or new_call_id()),
            "type": "function",
            "function": {
                "name": clean_text(str(self.opened.get("name", ""))),
                "arguments": written,
            },
        }


class AnthropicPieces:
    """Collects an answer; `add` takes each object that arrives and returns what is new in it.

    `route` is what its thinking is bound to.
    """

    def __init__(self, model: str, route: str) -> None:
        self._model = model
        self._route = route
        self._id = ""
        self._blocks: dict[Any, _Block] = {}
        self._usage: dict[str, Any] = {}
        self._stop = ""
        self._edits: list[Any] = []
        self.begun = False
        self.ended = False

    @property
    def finished(self) -> bool:
        """Whether a reason to stop has arrived: a connection that breaks now loses nothing."""
        return bool(self._stop)

    def complaint(self, part: Mapping[str, Any]) -> Complaint | None:
        """Return the error that an object carries in place of an answer, None for none."""
        return complaint_of(part) if part.get("error") else None

    def add(self, part: Mapping[str, Any]) -> Delta | None:
        """Take in one event, or a whole answer; return the new text, None for none."""
        kind = part.get("type")
        if kind == "message":
            return self._begin(part)
        if kind == "message_start":
            return self._begin(_mapping(part.get("message")))
        if kind == "content_block_start":
            return self._open(part.get("index"), part.get("content_block"))
        if kind == "content_block_delta":
            return self._grow(part.get("index"), _mapping(part.get("delta")))
        if kind == "message_delta":
            self._end(_mapping(part.get("delta")), part)
        elif kind == "message_stop":
            self.ended = True
        return None

    def _begin(self, message: Mapping[str, Any]) -> Delta | None:
        """Take in the message that opens a stream, or all of one that is not streamed."""
        self.begun = True
        self._id = str(message.get("id") or "")
        self._model = str(message.get("model") or self._model)
        self._end(message, message)
        content = message.get("content")
        blocks = content if isinstance(content, list) else []
        deltas = [self._open(index, block) for index, block in enumerate(blocks)]
        text = "".join(delta.text for delta in deltas if delta)
        reasoning = "".join(delta.reasoning for delta in deltas if delta)
        return Delta(text=text, reasoning=reasoning) if text or reasoning else None

    def _end(self, said: Mapping[str, Any], counted: Mapping[str, Any]) -> None:
        self._stop = str(said.get("stop_reason") or self._stop)
        self._usage = later_usage(self._usage, counted.get("usage"))
        edits = _mapping(counted.get("context_management")).get("applied_edits")
        if isinstance(edits, list):
            self._edits = edits

    def _open(self, index: Any, block: Any) -> Delta | None:
        self.begun = True
        opened = _Block(dict(_mapping(block)))
        self._blocks[index] = opened
        return _delta(opened.kind, opened.text("text"), opened.text("thinking"))

    def _grow(self, index: Any, delta: Mapping[str, Any]) -> Delta | None:
        block = self._blocks.get(index)
        if block is not None and delta.get("type") == "compaction_delta":
            said = {name: value for name, value in delta.items() if name != "type" and value}
            block.opened.update(said)
            return None
        source, name = _GROWING.get(str(delta.get("type")), ("", ""))
        piece = delta.get(source)
        if block is None and source in ("text", "thinking"):
            block = self._blocks[index] = _Block({"type": source})
        if block is None or not isinstance(piece, str) or not piece:
            return None
        block.grown.setdefault(name, []).append(piece)
        is_shown = name in ("text", "thinking")
        return _delta(block.kind, piece, piece) if is_shown else None

    def whole(self) -> ModelReply:
        """Return the answer so far; without a reason to stop it counts as truncated."""
        blocks = list(self._blocks.values())
        text = "".join(block.text("text") for block in blocks if block.kind == "text")
        message: Message = {"role": "assistant", "content": text}
        called = [b.call() for b in blocks if b.kind == "tool_use" and b.opened.get("name")]
        calls = calls_apart(called)
        if calls:
            message["tool_calls"] = calls
        reasoning = keep_fields(self._layout(blocks), self._route)
        if reasoning:
            message["_reasoning"] = reasoning
        finish = _FINISH.get(self._stop) or ("tool_calls" if calls else "stop")
        return ModelReply(
            message,
            finish if self._stop else None,
            read_usage(self._usage),
            self._model,
            self._id,
            self._cleared(),
        )

    def _cleared(self) -> Cleared:
        edits = [edit for edit in self._edits if isinstance(edit, Mapping)]
        tokens, tool_uses, thinking_turns = (
            sum(count_of(edit, name) for edit in edits)
            for name in ("cleared_input_tokens", "cleared_tool_uses", "cleared_thinking_turns")
        )
        return Cleared(tokens, tool_uses, thinking_turns)

    def _layout(self, blocks: list[_Block]) -> dict[str, Any]:
        """Return where each block stood; nothing where none is opaque, or one was cut off."""
        layout: list[Any] = []
        for block in blocks:
            if block.kind in THINKING:
                layout.append(block.sealed())
                if layout[-1] is None:
                    return {}
            elif block.kind == COMPACTION:
                layout += filter(None, [block.compaction()])
            elif block.kind == "text":
                layout.append(len(block.text("text")))
            elif block.kind == "tool_use":
                layout.append(None)
        return {LAYOUT: layout} if any(isinstance(piece, dict) for piece in layout) else {}


def _delta(kind: str, text: str, thinking: str) -> Delta | None:
    """Return what a reader sees of a new piece of a block."""
    if kind == "text" and text:
        return Delta(text=clean_text(text))
    return Delta(reasoning=clean_text(thinking)) if kind == "thinking" and thinking else None


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}
