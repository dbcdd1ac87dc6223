"""The first rung: show old bulk as one line each, without a model. What is masked stays stored.

Only stored rows are masked, and none twice: the store keeps one stub a place.
"""

from __future__ import annotations

import json
import re
from typing import Any

from agent.base.images import images_apart, is_image
from agent.base.messages import Message, last_user_index, text_of
from agent.base.pattern import pattern
from agent.base.tokens import estimate_message
from agent.compaction.budget import Budget, shown_sizes
from agent.compaction.cut import group_rows, standing_rows, tail_start

RESULT_MIN_CHARS = 200
"""A tool result shorter than this is shown as it is."""
ARGUMENTS_MIN_CHARS = 500
LEAF_MAX_CHARS = 200
"""A string inside long tool arguments is cut to this."""

_EXIT_CODE = pattern(r"exit(?:ed)?[ _](?:with )?(?:code|status)\"?[ :=]+(-?\d+)", re.IGNORECASE)
_WHOLE_CHARS = pattern(r"\[\d+ of (\d+) characters left out here")
_SHOWN_ARGUMENTS = 3
_ARGUMENT_CHARS = 60
_SHORT_JSON = json.JSONEncoder(ensure_ascii=False)


def mask_rows(messages: list[Message], budget: Budget) -> list[Message]:
    """Return the view with old bulk masked; rows that stay as they are are the same objects.

    Before the tail: tool results become one line that says how to read them, images a word, long
    call arguments shorter JSON. Anywhere: a tool result that a later one repeats becomes a
    reference to it. The newest request and the last assistant row with its results stay.
    """
    groups = group_rows(messages)
    start = tail_start(shown_sizes(messages, budget), groups, budget.tail_tokens)
    standing = standing_rows(messages, groups)
    repeats = _repeats(messages)
    calls = _calls_of_results(messages)
    newest = last_user_index(messages)
    masked = list(messages)
    for index, message in enumerate(messages):
        if index in standing or index == newest or "_row_id" not in message or "_stub" in message:
            continue
        stub: dict[str, Any] = {}
        if index in repeats:
            stub = {"content": _reference(messages[repeats[index]])}
        elif index < start:
            stub = _stub(message, calls.get(index, {}))
        if stub:
            masked[index] = _apply(message, stub)
    return masked


def _apply(message: Message, stub: dict[str, Any]) -> Message:
    shown = {**message, **stub, "_stub": stub}
    shown["_tokens"] = estimate_message(shown)
    return shown


def _stub(message: Message, call: dict[str, Any]) -> dict[str, Any]:
    """Return the fields that stand for an old row's; empty when it has nothing to mask."""
    content = message.get("content")
    if message.get("role") == "tool":
        text = text_of(content)
        if len(text) >= RESULT_MIN_CHARS or _has_images(content):
            line = _describe(message, text, call)
            return {"content": line} if len(line) < len(text) or _has_images(content) else {}
        return {}
    stub: dict[str, Any] = {}
    if isinstance(content, list) and _has_images(content):
        stub["content"] = [_without_image(part, message) for part in images_apart(content)]
    if message.get("tool_calls"):
        shortened = [_shorten_call(call) for call in message["tool_calls"]]
        if shortened != message["tool_calls"]:
            stub["tool_calls"] = shortened
    return stub


# -- tool results ---------------------------------------------------------------------------------
def _repeats(messages: list[Message]) -> dict[int, int]:
    """Return for each tool result the index of the newest later one with the same long text."""
    newest: dict[str, int] = {}
    repeats: dict[int, int] = {}
    for index in range(len(messages) - 1, -1, -1):
        message = messages[index]
        content = message.get("content")
        if message.get("role") != "tool" or not isinstance(content, str) or "_stub" in message:
            continue
        if len(content) >= RESULT_MIN_CHARS and newest.setdefault(content, index) != index:
            repeats[index] = newest[content]
    return repeats


def _calls_of_results(messages: list[Message]) -> dict[int, dict[str, Any]]:
    """Return for the index of each tool result the function part of the call it answers."""
    open_calls: dict[str, dict[str, Any]] = {}
    answered: dict[int, dict[str, Any]] = {}
    for index, message in enumerate(messages):
        for call in message.get("tool_calls") or ():
            open_calls[str(call.get("id", ""))] = call.get("function") or {}
        if message.get("role") == "tool":
            answered[index] = open_calls.get(str(message.get("tool_call_id", "")), {})
    return answered


def _reference(newest: Message) -> str:
    return f"[the same output as row {newest.get('_seq', '?')}, further down]"


def _describe(message: Message, text: str, call: dict[str, Any]) -> str:
    """Return the line for a tool result: the call, how it ended, its size, how to read it."""
    name = str(call.get("name") or message.get("name") or "tool")
    whole = _WHOLE_CHARS.search(text) if "characters left out here" in text else None
    chars = int(whole[1]) if whole else len(text)
    facts = [f"{chars:,} characters"]
    if not whole:
        facts.insert(0, f"{text.count(chr(10)) + 1:,} lines")
    edges = text if len(text) <= 800 else f"{text[:400]}\n{text[-400:]}"
    exit_code = _EXIT_CODE.search(edges) if "exit" in edges.lower() else None
    if exit_code:
        facts.insert(0, f"exit code {exit_code[1]}")
    if _has_images(message.get("content")):
        facts.append("an image")
    shown = ", ".join(_key_arguments(call.get("arguments")))
    return (
        f"[{name}({shown}): {', '.join(facts)}, put aside; "
        f'recall(rows="{message.get("_seq", "?")}") shows it]'
    )


def _key_arguments(arguments: Any) -> list[str]:
    """Return the first short arguments of a call as `name="value"`."""
    try:
        parsed = json.loads(arguments) if isinstance(arguments, str) else arguments
    except ValueError:
        return []
    if not isinstance(parsed, dict):
        return []
    shown: list[str] = []
    for key, value in parsed.items():
        if isinstance(value, str | int | float):
            shown.append(f"{key}={_short(value)}")
            if len(shown) == _SHOWN_ARGUMENTS:
                break
    return shown


def _short(value: Any) -> str:
    text = " ".join(value.split()) if isinstance(value, str) else value
    if isinstance(text, str) and len(text) > _ARGUMENT_CHARS:
        text = text[: _ARGUMENT_CHARS - 1] + "…"
    return _SHORT_JSON.encode(text)


# -- images and arguments -------------------------------------------------------------------------
def _has_images(content: Any) -> bool:
    return isinstance(content, list) and any(map(is_image, images_apart(content)))


def _without_image(part: Any, message: Message) -> Any:
    if not is_image(part):
        return part
    return {"type": "text", "text": f"[an image stood here, in row {message.get('_seq', '?')}]"}


def _shorten_call(call: dict[str, Any]) -> dict[str, Any]:
    """Return the call with long strings in its arguments cut; the JSON stays valid JSON."""
    function = call.get("function") or {}
    arguments = function.get("arguments")
    if not isinstance(arguments, str) or len(arguments) <= ARGUMENTS_MIN_CHARS:
        return call
    try:
        parsed = json.loads(arguments)
    except ValueError:
        return call
    shortened = json.dumps(_shorten_leaves(parsed), ensure_ascii=False)
    if len(shortened) >= len(arguments):
        return call
    return {**call, "function": {**function, "arguments": shortened}}


def _shorten_leaves(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _shorten_leaves(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_shorten_leaves(item) for item in value]
    if isinstance(value, str) and len(value) > LEAF_MAX_CHARS:
        left_out = len(value) - LEAF_MAX_CHARS
        return f"{value[:LEAF_MAX_CHARS]}… [{left_out:,} characters more]"
    return value
