"""What the Anthropic Messages shape of the stub lets a request edit: compaction, and old tool
results and thinking that are left out of what is read, anew in each request. Pure.

Source: the service's documentation of context editing, and the types of its official client.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from agent.testing.stub_anthropic_blocks import Block, blocks_of, count_prompt

SMALLEST_TRIGGER_TOKENS = 1_000
CLEARED = "[cleared to save context]"

_COMPACTS = "compact_20260112"
_CLEARS_TOOLS = "clear_tool_uses_20250919"
_CLEARS_THINKING = "clear_thinking_20251015"
_BETAS = {
    _COMPACTS: "compact-2026-01-12",
    _CLEARS_TOOLS: "context-management-2025-06-27",
    _CLEARS_THINKING: "context-management-2025-06-27",
}
_FIELDS = {
    _COMPACTS: {"trigger"},
    _CLEARS_TOOLS: {"trigger", "keep", "clear_at_least", "clear_tool_inputs", "exclude_tools"},
    _CLEARS_THINKING: {"keep"},
}
_KEPT_TOOL_USES = 3

_Place = tuple[int, int]
_Edited = tuple[Mapping[str, Any], list[dict[str, Any]]]


def _edits_of(body: Mapping[str, Any]) -> Sequence[Mapping[str, Any]]:
    return (body.get("context_management") or {}).get("edits") or ()


def compact_trigger(body: Mapping[str, Any]) -> int:
    """Return the tokens from which on the service may compact; 0 when it was not asked to."""
    return next((e["trigger"]["value"] for e in _edits_of(body) if e.get("type") == _COMPACTS), 0)


def edits_fault(headers: Mapping[str, str], body: Mapping[str, Any]) -> str:
    """Return what is wrong with the edits that a request asks for, empty for nothing."""
    if "context_management" not in body:
        return ""
    betas = headers.get("anthropic-beta", "").split(",")
    for index, edit in enumerate(_edits_of(body)):
        kind = str(edit.get("type"))
        if _BETAS.get(kind) not in betas:
            return "context_management: Extra inputs are not permitted"
        place = f"context_management.edits.{index}"
        unknown = edit.keys() - _FIELDS[kind] - {"type"}
        if unknown:
            return f"{place}.{min(unknown)}: Extra inputs are not permitted"
        if kind == _CLEARS_THINKING and index:
            return f"{place}: {kind} must be the first of the edits"
        if kind == _CLEARS_THINKING and (body.get("thinking") or {}).get("type") != "enabled":
            return f"{place}: {kind} needs `thinking` to be enabled"
    if _COMPACTS in {edit["type"] for edit in _edits_of(body)} and (
        compact_trigger(body) < SMALLEST_TRIGGER_TOKENS
    ):
        return f"context_management.edits: a trigger of {SMALLEST_TRIGGER_TOKENS} or more is needed"
    return ""


def edited(body: Mapping[str, Any]) -> _Edited:
    """Return a request as it is read, and the edits that were applied to it."""
    applied: list[dict[str, Any]] = []
    for edit in _edits_of(body):
        if edit["type"] == _CLEARS_THINKING:
            body, done = _without_thinking(body, edit)
        elif edit["type"] == _CLEARS_TOOLS:
            body, done = _without_results(body, edit)
        else:
            continue
        applied += done
    return body, applied


def _without_results(body: Mapping[str, Any], edit: Mapping[str, Any]) -> _Edited:
    """Clear the results of all but the newest calls once the trigger is reached."""
    results = [
        place
        for place, block in _placed(body)
        if block.get("type") == "tool_result" and block.get("content") != CLEARED
    ]
    trigger = edit.get("trigger") or {"type": "input_tokens", "value": 100_000}
    held = len(results) if trigger["type"] == "tool_uses" else count_prompt(body)
    kept = (edit.get("keep") or {}).get("value", _KEPT_TOOL_USES)
    old = set(results[: max(0, len(results) - kept)])
    if held < trigger["value"] or not old:
        return body, []
    changed = _changed(body, {place: {"content": CLEARED} for place in old})
    tokens = count_prompt(body) - count_prompt(changed)
    if tokens < (edit.get("clear_at_least") or {}).get("value", 0):
        return body, []
    done = {"type": edit["type"], "cleared_tool_uses": len(old), "cleared_input_tokens": tokens}
    return changed, [done]


def _without_thinking(body: Mapping[str, Any], edit: Mapping[str, Any]) -> _Edited:
    """Leave the thinking of all but the newest turns out, so many as the edit keeps."""
    turns: list[list[_Place]] = [[]]
    for place, block in _placed(body):
        if body["messages"][place[0]]["role"] == "user":
            if block.get("type") != "tool_result" and turns[-1]:
                turns.append([])
        elif "thinking" in block["type"]:
            turns[-1].append(place)
    keep = edit.get("keep") or {"type": "thinking_turns", "value": 1}
    thinking = [turn for turn in turns if turn]
    if keep == "all" or keep["type"] == "all" or len(thinking) <= keep["value"]:
        return body, []
    old = [place for turn in thinking[: len(thinking) - keep["value"]] for place in turn]
    changed = _changed(body, dict.fromkeys(old))
    done = {
        "type": edit["type"],
        "cleared_thinking_turns": len(thinking) - keep["value"],
        "cleared_input_tokens": count_prompt(body) - count_prompt(changed),
    }
    return changed, [done]


def _placed(body: Mapping[str, Any]) -> Iterator[tuple[_Place, Block]]:
    for index, message in enumerate(body.get("messages") or ()):
        for number, block in enumerate(blocks_of(message["content"])):
            yield (index, number), block


def _changed(
    body: Mapping[str, Any], changes: Mapping[_Place, Mapping[str, Any] | None]
) -> Mapping[str, Any]:
    """Return a body with changed blocks; None takes one away."""
    messages: list[dict[str, Any]] = []
    for index, message in enumerate(body["messages"]):
        blocks = [
            {**block, **(changes.get((index, number)) or {})}
            for number, block in enumerate(blocks_of(message["content"]))
            if changes.get((index, number), {}) is not None
        ]
        messages.append({**message, "content": blocks})
    return {**body, "messages": messages}
