"""What the strictest server of the Responses API refuses, and what it gives and takes back sealed.

Nothing is stored at this server: an item that only names a stored one is refused.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import orjson

from agent.testing.stub_reply import RecordedRequest, Refusal, Strictness
from agent.testing.stub_strict import (
    MESSAGE_TOKENS,
    check_body,
    check_window,
    count_message,
    count_text,
    function_fault,
    is_blank,
)

Item = Mapping[str, Any]

SMALLEST_OUTPUT_TOKENS = 16
_FIELDS = frozenset(
    "context_management include input instructions max_output_tokens metadata model "
    "parallel_tool_calls previous_response_id reasoning store stream temperature tool_choice tools "
    "top_p truncation user".split()
)
_PARTS = {
    "user": {"input_text": "text", "input_image": "image_url", "input_file": "file_data"},
    "system": {"input_text": "text"},
    "developer": {"input_text": "text"},
    "assistant": {"output_text": "text", "refusal": "refusal"},
}
"""Role to the parts that a message of it may hold, each with a field that it needs."""
_KNOWN = {
    "message": {"type", "id", "role", "content", "status", "phase"},
    "function_call": {"type", "id", "call_id", "name", "arguments", "status"},
    "function_call_output": {"type", "id", "call_id", "output", "status"},
    "reasoning": {"type", "id", "summary", "content", "encrypted_content"},
    "compaction": {"type", "id", "encrypted_content"},
}


def seal(text: str, model: str) -> str:
    """Return text that only the model which made it can read again."""
    data = orjson.dumps([model, text])
    return base64.b64encode(binascii.crc32(data).to_bytes(4, "big") + data).decode()


def unseal(sealed: Any, model: str) -> str | None:
    """Return the text, None when it was changed or another model made it."""
    try:
        raw = base64.b64decode(sealed, validate=True)
        maker, text = orjson.loads(raw[4:])
    except (TypeError, ValueError):
        return None
    is_whole = binascii.crc32(raw[4:]).to_bytes(4, "big") == raw[:4]
    return str(text) if is_whole and maker == model else None


def check_responses(request: RecordedRequest, strictness: Strictness) -> Refusal | None:
    """Return why the strictest server refuses this request, or None when it answers."""
    body = request.body
    fault = _body_fault(body)
    refusal = check_body(request, strictness) or (Refusal(fault) if fault else None)
    if refusal is not None:
        return refusal
    return check_items(items_of(body), request.model) or check_window(
        count_request(body, request.model), strictness.window_tokens
    )


def items_of(body: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the input items of a request; a text is one message."""
    given = body.get("input", [])
    return [{"role": "user", "content": given}] if isinstance(given, str) else list(given)


def check_items(items: Sequence[Item], model: str) -> Refusal | None:
    """Return why a list of input items is not valid, or None when it is."""
    if not items:
        return Refusal("input is empty; at least one item is needed")
    state = _State(model)
    for index, item in enumerate(items):
        fault = state.take(item)
        if fault:
            return Refusal(f"input[{index}]: {fault}")
    fault = state.end()
    return Refusal(fault) if fault else None


def count_request(body: Mapping[str, Any], model: str) -> int:
    """Return the tokens of a request: what stands before the newest compaction counts nothing."""
    items = items_of(body)
    for index in range(len(items) - 1, -1, -1):
        if items[index].get("type") == "compaction":
            items = items[index:]
            break
    tokens = MESSAGE_TOKENS + count_text(str(body.get("instructions") or ""))
    tokens += sum(_count_item(item, model) for item in items)
    return tokens + sum(count_text(orjson.dumps(tool).decode()) for tool in body.get("tools") or ())


def _count_item(item: Item, model: str) -> int:
    kind = item.get("type", "message")
    if kind == "function_call":
        return MESSAGE_TOKENS + count_text(f"{item.get('name')}{item.get('arguments')}")
    if kind == "function_call_output":
        return count_message({"content": item.get("output")})
    if kind in ("reasoning", "compaction"):
        return count_text(unseal(item.get("encrypted_content"), model) or "")
    return count_message({"content": item.get("content")})


def _body_fault(body: Mapping[str, Any]) -> str:
    unknown = sorted(body.keys() - _FIELDS)
    if unknown:
        return f"Unknown parameter: {unknown[0]!r}."
    if not isinstance(body.get("input"), str | list):
        return f"input must be a text or a list of items, not {body.get('input')!r:.80}"
    limit = body.get("max_output_tokens")
    if limit is not None and (not isinstance(limit, int) or limit < SMALLEST_OUTPUT_TOKENS):
        return f"max_output_tokens {limit!r} is below the minimum of {SMALLEST_OUTPUT_TOKENS}"
    for entry in body.get("context_management") or ():
        threshold = entry.get("compact_threshold")
        if entry.get("type") != "compaction" or not isinstance(threshold, int) or threshold < 1_000:
            return f"context_management cannot hold {entry!r:.80}"
    for tool in body.get("tools") or ():
        if tool.get("type") != "function" or not tool.get("name") or "parameters" not in tool:
            return f"a tool needs type 'function', a name and parameters: {tool!r:.120}"
    return ""


class _State:
    """A list of items as far as it was read."""

    def __init__(self, model: str) -> None:
        self._model = model
        self._side = ""
        self._open: list[str] = []
        self._reasoning = ""

    def take(self, item: Item) -> str:
        """Take the next item; return what is wrong with it."""
        kind = item.get("type", "message")
        known = _KNOWN.get(kind)
        if known is None:
            return f"unknown item type {kind!r}"
        unknown = sorted(item.keys() - known)
        if unknown:
            return f"Unknown parameter: {unknown[0]!r}."
        can_follow = kind in ("reasoning", "function_call") or item.get("role") == "assistant"
        if self._reasoning and not can_follow:
            return self._alone()
        fault = _TAKERS[kind](self, item)
        if kind != "reasoning":
            self._reasoning = ""
        return fault

    def end(self) -> str:
        """Return what is missing at the end."""
        if self._reasoning:
            return self._alone()
        return f"No tool output found for function call {self._open[0]}." if self._open else ""

    def _alone(self) -> str:
        return (
            f"Item {self._reasoning!r} of type 'reasoning' was provided without its required "
            "following item."
        )

    def message(self, item: Item) -> str:
        role = item.get("role")
        fault = _message_fault(item)
        if fault:
            return fault
        if role != "assistant" and self._open:
            return f"No tool output found for function call {self._open[0]}."
        if role == "assistant" and not self._side:
            return "the first item must be of the user"
        if role == self._side == "user":
            return "two messages of role 'user' in a row"
        self._side = str(role)
        return ""

    def call(self, item: Item) -> str:
        call_id = item.get("call_id")
        if not isinstance(call_id, str) or not call_id or call_id in self._open:
            return f"call_id {call_id!r} is missing or in use"
        if not self._side:
            return "the first item must be of the user"
        self._open.append(call_id)
        self._side = "assistant"
        return function_fault(item, call_id)

    def output(self, item: Item) -> str:
        call_id, output = item.get("call_id"), item.get("output")
        if call_id not in self._open:
            return f"No tool call found for function call output with call_id {call_id}."
        if not isinstance(output, str | list):
            return f"output must be a text or a list of parts, not {output!r:.80}"
        self._open.remove(str(call_id))
        self._side = "tool"
        return _parts_fault(output, "user") if isinstance(output, list) else ""

    def reason(self, item: Item) -> str:
        if not item.get("id") or not isinstance(item.get("summary"), list):
            return "a reasoning item needs an id and a summary"
        if self._open:
            return f"No tool output found for function call {self._open[0]}."
        self._reasoning = str(item["id"])
        return self._sealed(item)

    def compact(self, item: Item) -> str:
        self._side = self._side or "user"
        return self._sealed(item)

    def _sealed(self, item: Item) -> str:
        if unseal(item.get("encrypted_content"), self._model) is None:
            return f"The encrypted content for item {item.get('id')} could not be verified."
        return ""


_TAKERS: dict[str, Callable[[_State, Item], str]] = {
    "message": _State.message,
    "function_call": _State.call,
    "function_call_output": _State.output,
    "reasoning": _State.reason,
    "compaction": _State.compact,
}


def _message_fault(item: Item) -> str:
    role, content = item.get("role"), item.get("content")
    if role not in _PARTS:
        return f"unknown role {role!r}"
    if not isinstance(content, str | list):
        return f"content must be a text or a list of parts, not {content!r:.80}"
    if is_blank(content):
        return f"empty content of a message of role {role!r}"
    return _parts_fault(content, role) if isinstance(content, list) else ""


def _parts_fault(parts: Sequence[Any], role: str) -> str:
    for part in parts:
        needed = _PARTS[role].get(str(part.get("type"))) if isinstance(part, Mapping) else None
        if needed and "file_id" in part:
            needed = "file_id"
        if needed is None or not isinstance(part.get(needed), str):
            return f"a message of role {role!r} cannot hold the part {part!r:.80}"
        if part["type"] == "input_image" and not part.get("detail"):
            return "an image needs a detail"
    return ""
