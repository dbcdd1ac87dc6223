"""What the strictest Anthropic Messages endpoint refuses.

Source: the service's documentation of messages, tool use, extended thinking and prompt caching.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from agent.testing.stub_anthropic_blocks import Block, blocks_of, count_prompt, sign
from agent.testing.stub_anthropic_edits import edited, edits_fault
from agent.testing.stub_reply import RecordedRequest, Refusal, Strictness
from agent.testing.stub_strict import check_body

MOST_BREAKPOINTS = 4
SMALLEST_THINKING_TOKENS = 1_024
_FIELDS = frozenset(
    "model messages max_tokens system tools tool_choice stream temperature top_p top_k "
    "stop_sequences metadata thinking service_tier context_management output_config".split()
)
_ID = re.compile(r"[a-zA-Z0-9_-]+")
_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")
_MEDIA_TYPES = frozenset({"image/jpeg", "image/png", "image/gif", "image/webp"})
_THINKING = frozenset({"thinking", "redacted_thinking"})
_ALLOWED: dict[str, frozenset[str]] = {
    "user": frozenset({"text", "image", "tool_result"}),
    "assistant": frozenset({"text", "tool_use", "compaction"}) | _THINKING,
}


def check_anthropic(request: RecordedRequest, strictness: Strictness) -> Refusal | None:
    """Return why the strictest endpoint refuses this request, or None when it answers."""
    refusal = check_body(request, strictness)
    if refusal is not None:
        return refusal
    body = request.body
    fault = _first_fault(request.headers, body)
    if fault:
        return Refusal(fault)
    tokens, window_tokens = count_prompt(edited(body)[0]), strictness.window_tokens
    if window_tokens and tokens > window_tokens:
        return Refusal(f"prompt is too long: {tokens} tokens > {window_tokens} maximum")
    return None


def _first_fault(headers: Mapping[str, str], body: Mapping[str, Any]) -> str:
    if not headers.get("anthropic-version"):
        return "anthropic-version: header is required"
    unknown = sorted(body.keys() - _FIELDS)
    if unknown:
        return f"{unknown[0]}: Extra inputs are not permitted"
    for name in ("model", "max_tokens", "messages"):
        if name not in body:
            return f"{name}: Field required"
    if not isinstance(body["max_tokens"], int) or body["max_tokens"] < 1:
        return "max_tokens: Input should be greater than or equal to 1"
    return (
        _system_fault(body.get("system"))
        or _tools_fault(body.get("tools"))
        or _messages_fault(body["messages"])
        or _breakpoints_fault(body)
        or _thinking_fault(body)
        or edits_fault(headers, body)
    )


def _system_fault(system: Any) -> str:
    if system is None:
        return ""
    if isinstance(system, str):
        return ""
    return next((f"system: {fault}" for block in system if (fault := _text_fault(block))), "")


def _tools_fault(tools: Any) -> str:
    if tools is None:
        return ""
    names = [tool.get("name") for tool in tools]
    if len(set(names)) < len(names):
        return "tools: Tool names must be unique."
    for index, tool in enumerate(tools):
        if not _NAME.fullmatch(str(tool.get("name", ""))):
            return f"tools.{index}.name: String should match pattern {_NAME.pattern!r}"
        if (tool.get("input_schema") or {}).get("type") != "object":
            return f"tools.{index}.input_schema.type: Field required"
        unknown = tool.keys() - {"name", "description", "input_schema", "cache_control", "type"}
        if unknown:
            return f"tools.{index}.{min(unknown)}: Extra inputs are not permitted"
    return ""


# -- messages -------------------------------------------------------------------------------------
def _messages_fault(messages: Sequence[Mapping[str, Any]]) -> str:
    if not messages:
        return "messages: at least one message is required"
    seen: set[str] = set()
    waiting: list[str] = []
    side = ""
    for index, message in enumerate(messages):
        place = f"messages.{index}"
        if set(message) != {"role", "content"} or message["role"] not in _ALLOWED:
            return f"{place}: a role of user or assistant and content are required, nothing else"
        role, blocks = message["role"], blocks_of(message["content"])
        if not side and role != "user":
            return f"{place}: first message must use the user role"
        if role == side:
            return f"{place}: roles must alternate between user and assistant"
        fault = _blocks_fault(role, blocks) or _pairs_fault(role, blocks, waiting, seen)
        if fault:
            return f"{place}: {fault}"
        waiting = [block["id"] for block in blocks if block.get("type") == "tool_use"]
        side = role
    return "" if side == "user" else "the conversation must end with a user message"


def _blocks_fault(role: str, blocks: Sequence[Block]) -> str:
    if not blocks:
        return "content must not be empty"
    for index, block in enumerate(blocks):
        kind = block.get("type")
        if kind not in _ALLOWED[role]:
            return f"content.{index}: {kind!r} blocks are not allowed in {role} messages"
        fault = _CHECKS[kind](block)
        if fault:
            return f"content.{index}: {fault}"
    return ""


def _pairs_fault(role: str, blocks: Sequence[Block], waiting: list[str], seen: set[str]) -> str:
    """Return what is wrong with calls and results; `seen` takes the ids of the calls."""
    for block in blocks:
        if block.get("type") == "tool_use":
            if block["id"] in seen:
                return "`tool_use` ids must be unique"
            seen.add(block["id"])
    if role != "user":
        return ""
    kinds = [block.get("type") for block in blocks]
    results = [block["tool_use_id"] for block in blocks if block.get("type") == "tool_result"]
    if any(kind != "tool_result" for kind in kinds[: len(results)]):
        return "tool_result blocks must stand first in the content"
    if len(set(results)) < len(results):
        return "each tool_use must have a single result"
    missing, unknown = set(waiting) - set(results), set(results) - set(waiting)
    if missing:
        return f"`tool_use` ids were found without `tool_result` blocks: {', '.join(missing)}"
    if unknown:
        return f"unexpected `tool_use_id` found in `tool_result` blocks: {', '.join(unknown)}"
    return ""


def _text_fault(block: Block) -> str:
    if block.get("type") != "text" or not isinstance(block.get("text"), str):
        return "a text block is required"
    if not block["text"].strip():
        return "text content blocks must contain non-whitespace text"
    return _extra_fault(block, {"text"})


def _image_fault(block: Block) -> str:
    source = block.get("source") or {}
    if source.get("type") == "url":
        is_web = str(source.get("url", "")).startswith(("https://", "http://"))
        return "" if is_web else "source.url: only http and https URLs are supported"
    if source.get("type") != "base64" or source.get("media_type") not in _MEDIA_TYPES:
        return f"source: unsupported image source {source.get('media_type')!r}"
    try:
        data = base64.b64decode(source.get("data", ""), validate=True)
    except binascii.Error:
        return "source.base64: invalid base64 data"
    return _extra_fault(block, {"source"}) if data else "image cannot be empty"


def _call_fault(block: Block) -> str:
    if not _ID.fullmatch(str(block.get("id", ""))):
        return f"tool_use.id: String should match pattern '^{_ID.pattern}$'"
    if not _NAME.fullmatch(str(block.get("name", ""))):
        return f"tool_use.name: String should match pattern '^{_NAME.pattern}$'"
    if not isinstance(block.get("input"), Mapping):
        return "tool_use.input: Input should be a valid dictionary"
    return _extra_fault(block, {"id", "name", "input"})


def _result_fault(block: Block) -> str:
    if not isinstance(block.get("tool_use_id"), str):
        return "tool_result.tool_use_id: Field required"
    content = block.get("content")
    for part in content if isinstance(content, list) else ():
        fault = _image_fault(part) if part.get("type") == "image" else _text_fault(part)
        if fault:
            return f"tool_result.content: {fault}"
    return _extra_fault(block, {"tool_use_id", "content", "is_error"})


def _signed_fault(block: Block) -> str:
    text = block.get("thinking")
    if not isinstance(text, str) or block.get("signature") != sign(text):
        return "Invalid `signature` in `thinking` block"
    return _extra_fault(block, {"thinking", "signature"}, may_cache=False)


def _hidden_fault(block: Block) -> str:
    first, _dot, second = str(block.get("data", "")).partition(".")
    if second != sign(first):
        return "Invalid `data` in `redacted_thinking` block"
    return _extra_fault(block, {"data"}, may_cache=False)


def _compaction_fault(block: Block) -> str:
    content = block.get("content")
    if not isinstance(content, str) or block.get("signature") != sign(content):
        return "compaction_signature_invalid"
    return _extra_fault(block, {"content", "signature"})


def _extra_fault(block: Block, fields: set[str], *, may_cache: bool = True) -> str:
    known = fields | {"type"} | ({"cache_control"} if may_cache else set())
    unknown = block.keys() - known
    return f"{min(unknown)}: Extra inputs are not permitted" if unknown else ""


_CHECKS = {
    "text": _text_fault,
    "image": _image_fault,
    "tool_use": _call_fault,
    "tool_result": _result_fault,
    "thinking": _signed_fault,
    "redacted_thinking": _hidden_fault,
    "compaction": _compaction_fault,
}


# -- the cache and thinking -----------------------------------------------------------------------
def prompt_blocks(body: Mapping[str, Any]) -> Iterator[tuple[str, Block]]:
    """Yield every block that a prompt cache knows, in its order, with where it stands."""
    yield from (("tools", tool) for tool in body.get("tools") or ())
    yield from (("system", block) for block in blocks_of(body.get("system")))
    for message in body.get("messages") or ():
        yield from ((message["role"], block) for block in blocks_of(message["content"]))


def _breakpoints_fault(body: Mapping[str, Any]) -> str:
    given = [block["cache_control"] for _place, block in prompt_blocks(body) if _is_cut(block)]
    if len(given) > MOST_BREAKPOINTS:
        return (
            f"A maximum of {MOST_BREAKPOINTS} blocks with cache_control may be provided. "
            f"Found {len(given)}."
        )
    wrong = [cut for cut in given if cut.get("type") != "ephemeral" or cut.keys() - {"type", "ttl"}]
    return f"cache_control: {wrong[0]!r} is not allowed" if wrong else ""


def _is_cut(block: Block) -> bool:
    return "cache_control" in block


def _thinking_fault(body: Mapping[str, Any]) -> str:
    thinking = body.get("thinking") or {"type": "disabled"}
    if thinking.get("type") == "disabled":
        return ""
    if thinking.get("type") != "enabled":
        return f"thinking.type: {thinking.get('type')!r} is not supported by this model"
    budget = thinking.get("budget_tokens")
    if not isinstance(budget, int) or budget < SMALLEST_THINKING_TOKENS:
        return f"thinking.budget_tokens: must be at least {SMALLEST_THINKING_TOKENS}"
    if budget >= body["max_tokens"]:
        return "`max_tokens` must be greater than `thinking.budget_tokens`"
    if body.get("temperature", 1) != 1:
        return "`temperature` may only be set to 1 when thinking is enabled"
    return _open_round_fault(body["messages"])


def _open_round_fault(messages: Sequence[Mapping[str, Any]]) -> str:
    """Return what is wrong when the assistant's turn in an open tool round began unthinking."""
    first: Sequence[Block] = ()
    for message in reversed(messages):
        blocks = blocks_of(message["content"])
        if message["role"] == "assistant":
            first = blocks
        elif not any(block.get("type") == "tool_result" for block in blocks):
            break
    if first and first[0].get("type") not in _THINKING:
        return (
            f"Expected `thinking` or `redacted_thinking`, but found `{first[0].get('type')}`. When "
            "`thinking` is enabled, a final `assistant` message must start with a thinking block"
        )
    return ""
