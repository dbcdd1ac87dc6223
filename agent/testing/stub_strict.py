"""What the strictest chat provider refuses, and the token counter it refuses by.

The counter is its own on purpose: it shares nothing with the estimates of the product.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import orjson

from agent.testing.stub_reply import RecordedRequest, Refusal, Strictness

IMAGE_TOKENS = 1_000
MESSAGE_TOKENS = 4

_QUARTERS = {
    "cjk": 4,
    "emoji": 8,
    "arabic": 2,
}
_PRICED = re.compile(
    "(?P<cjk>[\u1100-\u11ff\u2e80-\u2fdf\u3000-\u30ff\u3100-\u31ff\u3400-\u4dbf\u4e00-\u9fff"
    "\ua960-\ua97f\uac00-\ud7ff\uf900-\ufaff\uff00-\uffef\U00020000-\U0003ffff]+)"
    "|(?P<emoji>[\u2600-\u27bf\U0001f000-\U0001faff]+)"
    "|(?P<arabic>[\u0600-\u06ff\u0750-\u077f\u08a0-\u08ff\ufb50-\ufdff\ufe70-\ufefe]+)"
)
_SURROGATE = re.compile("[\ud800-\udfff]")
_RAW_SURROGATE = re.compile(b"\xed[\xa0-\xbf]")
_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")
_PARTS = {"text": "text", "image_url": "image_url", "input_audio": "input_audio", "file": "file"}
"""Types of parts, and the field that each needs."""
_TEXT_TYPES = frozenset({"text", "input_text", "output_text"})
_ROLES = frozenset({"system", "developer", "user", "assistant", "tool"})


def count_text(text: str) -> int:
    """Return the tokens of a text: 1 a CJK, kana or Hangul character, 2 an emoji, 2 Arabic
    letters a token, 4 other characters a token; rounded up once."""
    quarters = len(text)
    if not text.isascii():
        for match in _PRICED.finditer(text):
            quarters += (_QUARTERS[match.lastgroup or ""] - 1) * (match.end() - match.start())
    return -(-quarters // 4)


def count_message(message: Mapping[str, Any]) -> int:
    """Return the tokens of one message: its text, calls and reasoning, 1,000 an image, 4 on top."""
    tokens = MESSAGE_TOKENS
    content = message.get("content")
    if isinstance(content, str):
        tokens += count_text(content)
    elif isinstance(content, list):
        tokens += sum(_count_part(part) for part in content)
    for call in message.get("tool_calls") or ():
        function = call.get("function", {})
        tokens += count_text(f"{function.get('name', '')}{function.get('arguments', '')}")
    for key in ("reasoning_content", "reasoning"):
        if isinstance(message.get(key), str):
            tokens += count_text(message[key])
    return tokens


def _count_part(part: Any) -> int:
    if not isinstance(part, Mapping):
        return count_text(str(part))
    if "image" in str(part.get("type", "")):
        return IMAGE_TOKENS
    return count_text(str(part.get("text", "")))


def count_tokens(
    messages: Iterable[Mapping[str, Any]], tools: Iterable[Mapping[str, Any]] = ()
) -> int:
    """Return the tokens of a request by the strict counter; a tool counts as its JSON text."""
    return sum(count_message(message) for message in messages) + sum(
        count_text(orjson.dumps(tool).decode()) for tool in tools
    )


def check_chat(request: RecordedRequest, strictness: Strictness) -> Refusal | None:
    """Return why the strictest chat provider refuses this request, or None when it answers."""
    refusal = check_body(request, strictness)
    if refusal is not None:
        return refusal
    messages = request.body.get("messages")
    if not isinstance(messages, list):
        return Refusal(f"messages must be a list, not {messages!r:.80}")
    tokens = count_tokens(messages, request.body.get("tools") or ())
    return check_messages(messages) or check_window(tokens, strictness.window_tokens)


def check_window(tokens: int, window_tokens: int) -> Refusal | None:
    """Return why a request of that many tokens is refused; a window of 0 takes any."""
    if not window_tokens or tokens <= window_tokens:
        return None
    return Refusal(
        f"This model's maximum context length is {window_tokens} tokens. "
        f"However, your messages resulted in {tokens} tokens.",
        "context_length_exceeded",
    )


def check_body(request: RecordedRequest, strictness: Strictness) -> Refusal | None:
    """Return why a body of any shape is refused: too many bytes, or a lone surrogate."""
    if len(request.raw) > strictness.max_body_bytes:
        return Refusal(
            f"the body has {len(request.raw)} bytes; the limit is {strictness.max_body_bytes}",
            "request_too_large",
        )
    if _may_hold_surrogate(request.raw) and _holds_surrogate(request.body):
        return Refusal("the body holds a lone surrogate, which is no valid Unicode text")
    return None


def check_messages(messages: Sequence[Mapping[str, Any]]) -> Refusal | None:
    """Return why a message list is not valid for the strictest provider, or None when it is."""
    if not messages:
        return Refusal("messages is empty; at least one message is needed")
    side = ""
    open_calls: list[str] = []
    for index, message in enumerate(messages):
        fault = _fields_fault(message) or _order_fault(message, index, side, open_calls)
        if fault:
            return Refusal(f"messages[{index}]: {fault}")
        role = str(message["role"])
        if role == "tool":
            open_calls.remove(str(message["tool_call_id"]))
        elif role == "assistant":
            open_calls = [str(call["id"]) for call in message.get("tool_calls") or ()]
        side = role
    if open_calls:
        return Refusal(f"calls without a result at the end of messages: {open_calls!r}")
    return None


def _fields_fault(message: Mapping[str, Any]) -> str:
    role = message.get("role")
    if role not in _ROLES:
        return f"unknown role {role!r}"
    private = [key for key in message if key.startswith("_")]
    if private:
        return f"unknown fields {private!r}"
    content, calls = message.get("content"), message.get("tool_calls")
    if not isinstance(content, str | list | None):
        return f"content must be text, a list of parts or null, not {type(content).__name__}"
    fault = _parts_fault(content if isinstance(content, list) else ())
    if fault:
        return fault
    if role in ("user", "assistant") and is_blank(content) and not calls:
        return f"empty content of a message of role {role!r}"
    if calls is not None and (role != "assistant" or not calls):
        return "tool_calls must be a list of at least one call of an assistant message"
    return _calls_fault(calls or ())


def _parts_fault(parts: Sequence[Any]) -> str:
    for index, part in enumerate(parts):
        kind = part.get("type") if isinstance(part, Mapping) else None
        value = part.get(_PARTS[kind]) if kind in _PARTS else None
        said = value.get("url") if kind == "image_url" and isinstance(value, Mapping) else value
        if said is None or (kind in ("text", "image_url") and not isinstance(said, str)):
            return f"content.{index} is no part of a known type"
    return ""


def _calls_fault(calls: Sequence[Mapping[str, Any]]) -> str:
    ids = [call.get("id") for call in calls]
    if not all(isinstance(call_id, str) and call_id for call_id in ids):
        return f"a call without an id: {ids!r}"
    if len(set(ids)) < len(ids):
        return f"two calls share an id: {ids!r}"
    for call in calls:
        fault = function_fault(call.get("function") or {}, str(call.get("id")))
        if fault:
            return fault
    return ""


def function_fault(function: Mapping[str, Any], call_id: str) -> str:
    """Return what is wrong with the name and the arguments of a call, nothing for valid ones."""
    if not function.get("name") or not isinstance(function.get("arguments"), str):
        return f"call {call_id!r} needs a function name and arguments as JSON text"
    if not _NAME.fullmatch(function["name"]):
        return f"function name {function['name']!r} does not match {_NAME.pattern!r}"
    if not _is_object(function["arguments"]):
        return f"arguments {function['arguments']!r:.80} are no JSON object"
    return ""


def _is_object(text: str) -> bool:
    try:
        return isinstance(json.loads(text), dict)
    except (ValueError, RecursionError):
        return False


def _order_fault(message: Mapping[str, Any], index: int, side: str, open_calls: list[str]) -> str:
    role = message["role"]
    if role == "tool":
        call_id = message.get("tool_call_id")
        if call_id not in open_calls:
            return f"tool result {call_id!r} answers no open call of the message before it"
        return ""
    if open_calls:
        return f"calls without a result before it: {open_calls!r}"
    if role in ("system", "developer"):
        return "a system message may only be the first" if index else ""
    if side in ("", "system", "developer") and role != "user":
        return f"the first turn must be of role 'user', not {role!r}"
    if role == side:
        return f"roles must alternate: two messages of role {role!r} in a row"
    return ""


def is_blank(content: Any) -> bool:
    """Return whether a content says nothing: no text but blanks, and no part but text."""
    if isinstance(content, list):
        return not any(
            not isinstance(part, Mapping)
            or part.get("type") not in _TEXT_TYPES
            or part.get("text", "").strip()
            for part in content
        )
    return not (content or "").strip()


def _may_hold_surrogate(raw: bytes) -> bool:
    """Without an escape and without the bytes of a surrogate the slow walk finds nothing."""
    return b"\\u" in raw or _RAW_SURROGATE.search(raw) is not None


def _holds_surrogate(value: Any) -> bool:
    if isinstance(value, str):
        return _SURROGATE.search(value) is not None
    if isinstance(value, Mapping):
        return any(_holds_surrogate(key) or _holds_surrogate(item) for key, item in value.items())
    return isinstance(value, list) and any(_holds_surrogate(item) for item in value)
