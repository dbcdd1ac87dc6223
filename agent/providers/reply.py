"""Puts a chat-completions answer together, from the pieces of a stream or from one whole body.

Tolerant of what servers do (repeated or missing ids and names, calls without index, usage in any
chunk, other words for a finish); strict about nothing but JSON. Pure.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import field
from typing import Any

import orjson

from agent.base.messages import Message, clean_text
from agent.base.record import dataclass
from agent.providers.failures import Complaint, complaint_of
from agent.providers.protocol import Delta, ModelReply, TokenUsage
from agent.providers.reasoning import ReasoningPieces
from agent.providers.text import join_text
from agent.providers.usage import read_usage

_FINISH = {
    "stop": "stop",
    "length": "length",
    "max_tokens": "length",
    "model_length": "length",
    "tool_calls": "tool_calls",
    "function_call": "tool_calls",
    "tool_use": "tool_calls",
    "content_filter": "content_filter",
    "refusal": "content_filter",
    "safety": "content_filter",
    "sensitive": "content_filter",
}


@dataclass
class _CallPieces:
    """One tool call while it arrives."""

    id: str = ""
    name: str = ""
    arguments: list[str] = field(default_factory=list)

    def add(self, piece: Mapping[str, Any]) -> None:
        self.id = self.id or _text(piece.get("id"))
        function = piece.get("function")
        if not isinstance(function, Mapping):
            return
        name = _text(function.get("name"))
        if name and name != self.name and not self.arguments:
            self.name += name
        arguments = function.get("arguments")
        if arguments:
            is_text = isinstance(arguments, str)
            self.arguments.append(arguments if is_text else orjson.dumps(arguments).decode())

    def is_whole(self) -> bool:
        """Return whether the arguments are a JSON object already, so that nothing can follow."""
        try:
            return isinstance(orjson.loads(join_text(self.arguments)), dict)
        except ValueError:
            return False

    def whole(self) -> dict[str, Any]:
        return {
            "id": self.id or new_call_id(),
            "type": "function",
            "function": {
                "name": clean_text(self.name),
                "arguments": join_text(self.arguments) or "{}",
            },
        }


class ReplyPieces:
    """Collects an answer; `add` takes each object that arrives and returns what is new in it."""

    def __init__(self, model: str, route: str) -> None:
        self._model = model
        self._route = route
        self._id = ""
        self._text: list[str] = []
        self._refusal: list[str] = []
        self._reasoning = ReasoningPieces()
        self._calls: list[_CallPieces] = []
        self._by_index: dict[int, _CallPieces] = {}
        self._usage: TokenUsage | None = None
        self._timings: TokenUsage | None = None
        self._finish: str | None = None
        self.begun = False
        self.ended = False

    @property
    def finished(self) -> bool:
        return self._finish is not None

    def complaint(self, part: Mapping[str, Any]) -> Complaint | None:
        """Return the error that a chunk or a whole answer carries, at its top or in its choice."""
        if part.get("error"):
            return complaint_of(part)
        choices = part.get("choices")
        choice = choices[0] if isinstance(choices, list) and choices else None
        if isinstance(choice, Mapping) and (
            choice.get("error") or choice.get("finish_reason") == "error"
        ):
            ended = "the provider ended it with an error"
            return complaint_of({"error": choice.get("error") or ended})
        return None

    def add(self, part: Mapping[str, Any]) -> Delta | None:
        """Take in one chunk of a stream, or a whole answer; return the new text, None for none."""
        self.begun = True
        self._id = self._id or _text(part.get("id"))
        self._model = _text(part.get("model")) or self._model
        self._usage = read_usage(part.get("usage")) or self._usage
        self._timings = read_usage(part.get("timings")) or self._timings
        choices = part.get("choices")
        choice = choices[0] if isinstance(choices, list) and choices else None
        if not isinstance(choice, Mapping):
            return None
        reason = choice.get("finish_reason")
        if isinstance(reason, str) and reason:
            self._finish = _FINISH.get(reason.lower(), "stop")
        delta, message = choice.get("delta"), choice.get("message")
        said = delta or message
        return self._say(said, whole=not delta) if isinstance(said, Mapping) else None

    def _say(self, said: Mapping[str, Any], *, whole: bool) -> Delta | None:
        text = content_text(said.get("content"))
        refusal = _text(said.get("refusal"))
        reasoning = self._reasoning.add(said)
        if text:
            self._text.append(text)
        if refusal:
            self._refusal.append(refusal)
        calls = said.get("tool_calls")
        if isinstance(calls, list):
            for piece in calls:
                if isinstance(piece, Mapping):
                    call = self._begin_call() if whole else self._call_of(piece)
                    call.add(piece)
        if not (text or refusal or reasoning):
            return None
        return Delta(text=clean_text(text + refusal), reasoning=clean_text(reasoning))

    def _begin_call(self) -> _CallPieces:
        self._calls.append(_CallPieces())
        return self._calls[-1]

    def _call_of(self, piece: Mapping[str, Any]) -> _CallPieces:
        """Return the call that a piece belongs to: by index, by id, or the one before it.

        Some servers send every call with index 0, with the same id or with none, and a whole call
        in each piece: a name begins a new call where the id differs or nothing can follow.
        """
        index, call_id = piece.get("index"), _text(piece.get("id"))
        if isinstance(index, int):
            found = self._by_index.get(index)
        else:
            same_id = (call for call in reversed(self._calls) if call_id and call.id == call_id)
            found = next(same_id, None if call_id or not self._calls else self._calls[-1])
        if found is None or _is_other_call(found, piece, call_id):
            found = self._begin_call()
            if isinstance(index, int):
                self._by_index[index] = found
        return found

    def whole(self) -> ModelReply:
        """Return the answer so far; without a finish reason it counts as truncated."""
        text = join_text(self._text)
        finish = self._finish
        if self._refusal:
            text = text or join_text(self._refusal)
            finish = "content_filter"
        message: Message = {"role": "assistant", "content": text}
        calls = calls_apart(call.whole() for call in self._calls if call.name)
        if calls:
            message["tool_calls"] = calls
        if finish in {"stop", "tool_calls"}:
            finish = "tool_calls" if calls else "stop"
        reasoning = self._reasoning.whole(self._route)
        if reasoning:
            message["_reasoning"] = reasoning
        usage = self._usage or self._timings
        return ModelReply(message, finish, usage, self._model, self._id)


def _is_other_call(found: _CallPieces, piece: Mapping[str, Any], call_id: str) -> bool:
    function = piece.get("function")
    if not isinstance(function, Mapping) or not function.get("name"):
        return False
    if found.id and call_id and found.id != call_id:
        return True
    return bool(function.get("arguments")) and found.is_whole()


def calls_apart(calls: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return calls of which no two share an id; a call that was sent twice is one."""
    by_id: dict[str, dict[str, Any]] = {}
    for call in calls:
        before = by_id.get(call["id"])
        if before is not None and before != call:
            call["id"] = new_call_id()
        by_id[call["id"]] = call
    return list(by_id.values())


def new_call_id() -> str:
    """Return an id for a call that came without one."""
    return f"call_{os.urandom(12).hex()}"


def content_text(content: Any) -> str:
    """Return the text of a content value: a string or, from some servers, a list of parts."""
    if isinstance(content, list):
        parts = (part for part in content if isinstance(part, Mapping))
        return "".join(_text(part.get("text")) for part in parts)
    return _text(content)


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""
