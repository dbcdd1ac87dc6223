"""Messages as input items of the Responses API, and what of an answer must go back as it came.

One message is one or several items. An answer that held opaque items (reasoning, compaction) is
kept in `_reasoning` as the order of its items: opaque ones whole, the others by what the message
says already. They go back all together or not at all. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from agent.base.images import is_image
from agent.base.messages import Message, text_of
from agent.providers.encode import encode_json, valid_call
from agent.providers.parts import plain_parts
from agent.providers.reasoning import bound_to, keep_fields, kept_fields

Item = dict[str, Any]

COMPACTION = "compaction"
_WIRE = "responses"
_ITEMS = "items"
_SENT = {
    "reasoning": ("type", "id", "summary", "content", "encrypted_content"),
    COMPACTION: ("type", "id", "encrypted_content"),
}
"""Opaque items and the fields that a server takes back."""


def write_item_row(message: Message, replays: bool, *, route: str) -> bytes:
    """Return the items of a message, a comma before each; see `agent.providers.encode.WriteRow`."""
    role = message["role"]
    if role == "assistant":
        items = _replayed(message, replays, route) or _answer_items(message)
    elif role == "tool":
        items = [_output_item(message)]
    else:
        items = [{"role": role, "content": _parts(message.get("content"))}]
    return b"".join(b"," + encode_json(item) for item in items)


def function_tool(schema: Mapping[str, Any]) -> Item:
    """Return a chat function schema as a tool of the Responses API, with lenient arguments."""
    function = schema.get("function") or {}
    return {"type": "function", "strict": False, "parameters": {"type": "object"}, **function}


# -- answers --------------------------------------------------------------------------------------
def keep_items(output: Sequence[Mapping[str, Any]], route: str) -> str:
    """Return the value of `_reasoning` for the output items of an answer; empty when nothing in
    them is opaque.

    Reasoning that no item follows is dropped: it cannot go back.
    """
    kept: list[Item] = []
    for item in output:
        kind = item.get("type")
        if kind in _SENT:
            kept += [dict(item)] if _can_return(item) else []
        elif kind == "message":
            said = {"type": kind, "chars": len(message_text(item)), "phase": item.get("phase")}
            kept.append({key: value for key, value in said.items() if value is not None})
        elif kind == "function_call":
            kept.append({"type": kind, "call_id": item.get("call_id")})
    while kept and kept[-1]["type"] == "reasoning":
        del kept[-1]
    is_needed = any(item["type"] in _SENT or "phase" in item for item in kept)
    return keep_fields({_ITEMS: kept}, bound_to(route, _WIRE)) if is_needed else ""


def message_text(item: Mapping[str, Any]) -> str:
    """Return the text of an output message; a refusal is not part of it."""
    parts = item.get("content")
    if not isinstance(parts, list):
        return parts if isinstance(parts, str) else ""
    texts = (part.get("text") for part in parts if isinstance(part, Mapping))
    return "".join(text for text in texts if isinstance(text, str))


def holds_compaction(message: Message, route: str) -> bool:
    """Return whether a message of that route brought a compaction item that may go back."""
    reasoning = message.get("_reasoning")
    if not isinstance(reasoning, str) or f'"{COMPACTION}"' not in reasoning:
        return False
    kept = kept_fields(reasoning, bound_to(route, _WIRE)).get(_ITEMS, ())
    return any(item["type"] == COMPACTION for item in kept) and _fits(message, kept)


def _can_return(item: Mapping[str, Any]) -> bool:
    """Return whether an opaque item means anything to a server that stored nothing."""
    return bool(item.get("encrypted_content") or item.get("content"))


def _replayed(message: Message, replays: bool, route: str) -> list[Item]:
    """Return the items of an answer in their own order, none when they cannot go back."""
    kept = kept_fields(message.get("_reasoning"), bound_to(route, _WIRE)).get(_ITEMS, ())
    is_bound = any(item.get("encrypted_content") for item in kept)
    if (is_bound and not replays) or not _fits(message, kept):
        return []
    calls = {call["call_id"]: call for call in _call_items(message)}
    text, said = text_of(message.get("content")), 0
    items: list[Item] = []
    for item in kept:
        kind = item["type"]
        if kind == "message":
            piece = text[said : said + item["chars"]]
            said += item["chars"]
            phase = {"phase": item["phase"]} if "phase" in item else {}
            items += [{"role": "assistant", "content": piece, **phase}] if piece.strip() else []
        elif kind == "function_call":
            items.append(calls[item["call_id"]])
        else:
            items.append({name: item[name] for name in _SENT[kind] if item.get(name) is not None})
    return items


def _fits(message: Message, kept: Iterable[Item]) -> bool:
    """Return whether the message still says what the answer said: nothing joined, cut or renamed.

    A blank text is no item, so what stands before it would stand alone.
    """
    pieces = [item["chars"] for item in kept if item["type"] == "message"]
    named = [item["call_id"] for item in kept if item["type"] == "function_call"]
    text = text_of(message.get("content"))
    calls = [str(call.get("id", "")) for call in message.get("tool_calls") or ()]
    says = bool(text.strip()) or (bool(calls) and not pieces)
    return says and sum(pieces) == len(text) and named == calls


def _answer_items(message: Message) -> list[Item]:
    text = text_of(message.get("content"))
    said = [{"role": "assistant", "content": text}] if text.strip() else []
    return [*said, *_call_items(message)]


def _call_items(message: Message) -> list[Item]:
    calls = [valid_call(call) for call in message.get("tool_calls") or ()]
    return [
        {
            "type": "function_call",
            "call_id": str(call.get("id", "")),
            "name": call["function"]["name"],
            "arguments": call["function"]["arguments"],
        }
        for call in calls
    ]


# -- results and requests -------------------------------------------------------------------------
def _output_item(message: Message) -> Item:
    output = _parts(message.get("content"))
    call_id = message.get("tool_call_id")
    return {"type": "function_call_output", "call_id": call_id, "output": output}


def _parts(content: Any) -> Any:
    if not isinstance(content, list):
        return content or ""
    return [_part(part) for part in plain_parts(content)]


def _part(part: Mapping[str, Any]) -> Any:
    if is_image(part):
        return _image(part)
    if part["type"] == "text":
        return {"type": "input_text", "text": part["text"]}
    return {"type": "input_file", **part["file"]} if isinstance(part.get("file"), Mapping) else part


def _image(part: Mapping[str, Any]) -> Item:
    image = part.get("image_url")
    given = image if isinstance(image, Mapping) else {"url": image}
    detail = given.get("detail") or part.get("detail") or "auto"
    if "file_id" in part:
        return {"type": "input_image", "file_id": part["file_id"], "detail": detail}
    return {"type": "input_image", "image_url": given.get("url"), "detail": detail}
