"""Puts an answer of the Responses API together, from the events of a stream or from one object.

An item that is done counts as it is then; until it is, as the final output has it, else as far as
its deltas came. Tolerant of servers that leave out deltas, indexes or the final output. Pure.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import orjson

from agent.base.messages import Message, clean_text
from agent.providers.failures import Complaint, complaint_of
from agent.providers.items import keep_items, message_text
from agent.providers.protocol import Delta, ModelReply, TokenUsage
from agent.providers.reply import calls_apart, new_call_id
from agent.providers.text import join_text
from agent.providers.usage import read_usage

_INCOMPLETE = {"content_filter": "content_filter"}
"""Why an answer is incomplete to its finish; every other reason is a limit."""
_TERMINAL = frozenset({"response.completed", "response.incomplete"})
_FAILED = frozenset({"response.failed", "error"})


class ResponsePieces:
    """Collects an answer; `add` takes each object that arrives and returns what is new in it."""

    def __init__(self, model: str, route: str) -> None:
        self._model = model
        self._route = route
        self._id = ""
        self._items: dict[Any, dict[str, Any]] = {}
        self._deltas: dict[Any, list[str]] = {}
        self._keys: dict[str, Any] = {}
        self._done: set[Any] = set()
        self._refusal: list[str] = []
        self._usage: TokenUsage | None = None
        self._finish: str | None = None
        self.begun = False
        self.ended = False

    @property
    def finished(self) -> bool:
        return self._finish is not None

    def complaint(self, part: Mapping[str, Any]) -> Complaint | None:
        """Return the error of an error event, of a failed answer, or in place of an answer."""
        kind = part.get("type")
        answer = part.get("response") if kind == "response.failed" else part
        failed = kind in _FAILED or part.get("status") == "failed"
        if not isinstance(answer, Mapping) or not (failed or answer.get("error")):
            return None
        error = answer.get("error")
        if kind == "error" and not error:
            return complaint_of({name: part.get(name) for name in ("message", "code", "param")})
        return complaint_of({"error": error or "the provider ended it with an error"})

    def add(self, part: Mapping[str, Any]) -> Delta | None:
        """Take in one event of a stream, or a whole answer; return the new text, None for none."""
        kind = part.get("type")
        if not isinstance(kind, str):
            is_answer = part.get("object") == "response" or "output" in part
            return self._end(part) if is_answer else None
        self.begun = True
        if kind in _TERMINAL:
            return self._end(part.get("response") or {})
        if kind in _EVENTS:
            return _EVENTS[kind](self, part)
        return None

    def whole(self) -> ModelReply:
        """Return the answer so far; without a finish it counts as truncated."""
        output = [self._so_far(key) for key in self._items]
        text = join_text([message_text(item) for item in output if item.get("type") == "message"])
        finish = self._finish
        if self._refusal:
            text = text or join_text(self._refusal)
            finish = "content_filter"
        message: Message = {"role": "assistant", "content": text}
        called = [i for i in output if i.get("type") == "function_call" and i.get("name")]
        if called:
            message["tool_calls"] = calls_apart(map(_call, called))
        if finish == "stop" and called:
            finish = "tool_calls"
        reasoning = keep_items(output, self._route) if finish else ""
        if reasoning:
            message["_reasoning"] = reasoning
        return ModelReply(message, finish, self._usage, self._model, self._id)

    # -- events -----------------------------------------------------------------------------------
    def _open(self, part: Mapping[str, Any]) -> Delta | None:
        item = part.get("item")
        if isinstance(item, Mapping):
            key = self._key(part)
            self._keys.setdefault(_string(item.get("id")), key)
            self._items.setdefault(key, dict(item))
        return None

    def _close(self, part: Mapping[str, Any]) -> Delta | None:
        """Take an item as it ended; text of which no delta came is new."""
        item = part.get("item")
        if not isinstance(item, Mapping):
            return None
        key = self._key(part)
        is_new = key not in self._deltas
        self._done.add(key)
        self._items[key] = _with_call_id(item)
        self._deltas.pop(key, None)
        return self._told(item) if is_new else None

    def _text(self, part: Mapping[str, Any]) -> Delta | None:
        piece = _string(part.get("delta"))
        key = self._key(part)
        self._items.setdefault(key, {"type": "message"})
        self._deltas.setdefault(key, []).append(piece)
        return Delta(text=clean_text(piece)) if piece else None

    def _refused(self, part: Mapping[str, Any]) -> Delta | None:
        piece = _string(part.get("delta"))
        self._refusal.append(piece)
        self._deltas.setdefault(self._key(part), [])
        return Delta(text=clean_text(piece)) if piece else None

    def _arguments(self, part: Mapping[str, Any]) -> Delta | None:
        self._deltas.setdefault(self._key(part), []).append(_string(part.get("delta")))
        return None

    def _reasoned(self, part: Mapping[str, Any]) -> Delta | None:
        piece = _string(part.get("delta"))
        self._deltas.setdefault(self._key(part), [])
        return Delta(reasoning=clean_text(piece)) if piece else None

    def _next_part(self, part: Mapping[str, Any]) -> Delta | None:
        return Delta(reasoning="\n\n") if part.get("summary_index") else None

    def _key(self, part: Mapping[str, Any]) -> Any:
        """Return what names the item that an event is about: its place where one was told."""
        index = part.get("output_index")
        if isinstance(index, int):
            return index
        item = part.get("item")
        name = part.get("item_id") or (item.get("id") if isinstance(item, Mapping) else None)
        return self._keys.get(name, name) if isinstance(name, str) else None

    # -- whole ------------------------------------------------------------------------------------
    def _end(self, answer: Mapping[str, Any]) -> Delta | None:
        """Take in a response object; its output counts where no event told an item to its end."""
        self.begun = True
        self._id = _string(answer.get("id"))
        self._model = _string(answer.get("model")) or self._model
        self._usage = read_usage(answer.get("usage")) or self._usage
        self._finish = _finish_of(answer)
        self.ended = self._finish is not None
        output = answer.get("output")
        has_places = all(isinstance(key, int) for key in self._items)
        if not has_places or not isinstance(output, list):
            return None
        told = [
            self._close({"item": item, "output_index": index})
            for index, item in enumerate(output)
            if index not in self._done
        ]
        self._items = dict(sorted(self._items.items()))
        text = "".join(delta.text for delta in told if delta)
        reasoning = "\n\n".join(delta.reasoning for delta in told if delta and delta.reasoning)
        return Delta(text=text, reasoning=reasoning) if text or reasoning else None

    def _told(self, item: Mapping[str, Any]) -> Delta | None:
        """Return the readable text of a whole item, and keep its refusal."""
        if item.get("type") == "reasoning":
            reasoning = "\n\n".join(_texts(item.get("summary")) or _texts(item.get("content")))
            return Delta(reasoning=clean_text(reasoning)) if reasoning else None
        if item.get("type") != "message":
            return None
        refusals = _texts(item.get("content"), "refusal")
        self._refusal += refusals
        text = message_text(item) + "".join(refusals)
        return Delta(text=clean_text(text)) if text else None

    def _so_far(self, key: Any) -> dict[str, Any]:
        """Return an item, with its deltas in place while it is not done."""
        item = self._items[key]
        deltas = self._deltas.get(key)
        if deltas is None:
            return item
        text = join_text(deltas)
        if item.get("type") == "function_call":
            return _with_call_id(item) | {"arguments": text or item.get("arguments") or "{}"}
        return item | {"content": text}


_EVENTS: dict[str, Callable[[ResponsePieces, Mapping[str, Any]], Delta | None]] = {
    "response.output_item.added": ResponsePieces._open,
    "response.output_item.done": ResponsePieces._close,
    "response.output_text.delta": ResponsePieces._text,
    "response.refusal.delta": ResponsePieces._refused,
    "response.function_call_arguments.delta": ResponsePieces._arguments,
    "response.reasoning_summary_part.added": ResponsePieces._next_part,
    "response.reasoning_summary_text.delta": ResponsePieces._reasoned,
    "response.reasoning_text.delta": ResponsePieces._reasoned,
}


def _finish_of(answer: Mapping[str, Any]) -> str | None:
    status = answer.get("status")
    if status == "incomplete":
        details = answer.get("incomplete_details")
        reason = details.get("reason") if isinstance(details, Mapping) else None
        return _INCOMPLETE.get(str(reason), "length")
    return "stop" if status in (None, "completed") else None


def _with_call_id(item: Mapping[str, Any]) -> dict[str, Any]:
    """Return an item whose call, if it is one, has an id by which its result can name it."""
    if item.get("type") != "function_call" or item.get("call_id"):
        return dict(item)
    return {**item, "call_id": item.get("id") or new_call_id()}


def _call(item: Mapping[str, Any]) -> dict[str, Any]:
    arguments = item.get("arguments")
    text = arguments if isinstance(arguments, str) else orjson.dumps(arguments or {}).decode()
    function = {"name": clean_text(_string(item.get("name"))), "arguments": clean_text(text)}
    return {"id": item["call_id"], "type": "function", "function": function}


def _texts(parts: Any, name: str = "text") -> list[str]:
    found = [part.get(name) for part in parts or () if isinstance(part, Mapping)]
    return [text for text in found if isinstance(text, str) and text]


def _string(value: Any) -> str:
    return value if isinstance(value, str) else ""
