"""The Anthropic Messages shape of the stub server, with a prompt cache that works on real prefixes.

What a request may look like is `stub_anthropic_strict.py`'s.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import orjson

from agent.testing.stub_anthropic_blocks import count_block, count_prompt, hidden, sign
from agent.testing.stub_anthropic_edits import compact_trigger, edited
from agent.testing.stub_anthropic_strict import check_anthropic, prompt_blocks
from agent.testing.stub_chat import pieces_of
from agent.testing.stub_reply import Frame, RecordedRequest, Reply, Shape
from agent.testing.stub_strict import MESSAGE_TOKENS, count_text

LOOKBACK_BLOCKS = 20
"""How many blocks before a breakpoint the cache is searched."""

_ERROR_TYPES = {
    400: "invalid_request_error",
    401: "authentication_error",
    402: "billing_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    504: "timeout_error",
    529: "overloaded_error",
}
_STOP = {
    "stop": "end_turn",
    "length": "max_tokens",
    "tool_calls": "tool_use",
    "content_filter": "refusal",
}


def _stream(reply: Reply, request: RecordedRequest, number: int) -> Sequence[Frame]:
    usage = _usage(reply, request)
    opening = _message(request, number, [], None, usage and {**usage, "output_tokens": 1})
    frames = [_event({"type": "message_start", "message": opening})]
    for index, block in enumerate(_content(reply, request)):
        frames += _block_frames(index, block, reply)
    if reply.close_without_finish:
        return frames
    ending: dict[str, Any] = {
        "type": "message_delta",
        "delta": {"stop_reason": _stop_reason(reply), "stop_sequence": None},
    }
    if usage is not None:
        ending["usage"] = {"output_tokens": usage["output_tokens"]}
    if "context_management" in request.body:
        ending["context_management"] = {"applied_edits": edited(request.body)[1]}
    return [*frames, _event(ending), _event({"type": "message_stop"})]


def _block_frames(index: int, block: Mapping[str, Any], reply: Reply) -> Iterator[Frame]:
    """Yield the events of one block: what grows begins empty and comes in deltas."""
    empty, deltas = _DELTAS[block["type"]](block, reply)
    yield _event({"type": "content_block_start", "index": index, "content_block": empty})
    for delta, chars in deltas:
        yield _event({"type": "content_block_delta", "index": index, "delta": delta}, chars)
    if index == 0:
        yield _event({"type": "ping"})
    yield _event({"type": "content_block_stop", "index": index})


_Deltas = tuple[dict[str, Any], list[tuple[dict[str, Any], int]]]


def _text_deltas(block: Mapping[str, Any], reply: Reply) -> _Deltas:
    pieces = reply.chunks if reply.chunks is not None else pieces_of(block["text"])
    deltas = [({"type": "text_delta", "text": piece}, len(piece)) for piece in pieces]
    return {"type": "text", "text": ""}, deltas


def _thinking_deltas(block: Mapping[str, Any], _reply: Reply) -> _Deltas:
    deltas: list[tuple[dict[str, Any], int]] = [
        ({"type": "thinking_delta", "thinking": piece}, len(piece))
        for piece in pieces_of(block["thinking"])
    ]
    deltas.append(({"type": "signature_delta", "signature": block["signature"]}, 0))
    return {"type": "thinking", "thinking": "", "signature": ""}, deltas


def _hidden_deltas(block: Mapping[str, Any], _reply: Reply) -> _Deltas:
    return dict(block), []


def _compaction_deltas(block: Mapping[str, Any], _reply: Reply) -> _Deltas:
    delta = {"type": "compaction_delta", "content": block["content"]}
    return {**block, "content": None}, [(delta, 0)]


def _call_deltas(block: Mapping[str, Any], reply: Reply) -> _Deltas:
    written = next(
        call["function"]["arguments"] for call in reply.tool_calls if call["id"] == block["id"]
    )
    deltas = [
        ({"type": "input_json_delta", "partial_json": piece}, len(piece))
        for piece in pieces_of(written)
    ]
    return {**block, "input": {}}, deltas


_DELTAS = {
    "text": _text_deltas,
    "thinking": _thinking_deltas,
    "redacted_thinking": _hidden_deltas,
    "compaction": _compaction_deltas,
    "tool_use": _call_deltas,
}


def _whole(reply: Reply, request: RecordedRequest, number: int) -> bytes:
    usage = _usage(reply, request)
    message = _message(request, number, _content(reply, request), _stop_reason(reply), usage)
    if "context_management" in request.body:
        message["context_management"] = {"applied_edits": edited(request.body)[1]}
    return orjson.dumps(message)


def _message(
    request: RecordedRequest,
    number: int,
    content: list[dict[str, Any]],
    stop_reason: str | None,
    usage: Mapping[str, Any] | None,
) -> dict[str, Any]:
    message: dict[str, Any] = {
        "id": f"msg_stub_{number}",
        "type": "message",
        "role": "assistant",
        "model": request.model,
        "content": content,
        "stop_reason": stop_reason,
        "stop_sequence": None,
    }
    return message if usage is None else {**message, "usage": dict(usage)}


def _content(reply: Reply, request: RecordedRequest) -> list[dict[str, Any]]:
    """Return the blocks of the answer; `reasoning_key` "redacted" hides the reasoning.

    A compaction comes first when a request has reached the tokens that it names.
    """
    if reply.choices_empty:
        return []
    blocks: list[dict[str, Any]] = []
    trigger = compact_trigger(request.body)
    if trigger and count_prompt(edited(request.body)[0]) >= trigger:
        said = f"everything up to message {len(request.messages)}"
        blocks.append({"type": "compaction", "content": said, "signature": sign(said)})
    if reply.reasoning and reply.reasoning_key == "redacted":
        blocks.append({"type": "redacted_thinking", "data": hidden(reply.reasoning)})
    elif reply.reasoning:
        signature = sign(reply.reasoning)
        blocks.append({"type": "thinking", "thinking": reply.reasoning, "signature": signature})
    if reply.whole_text:
        blocks.append({"type": "text", "text": reply.whole_text})
    for call in reply.tool_calls:
        function = call["function"]
        given = {"id": call["id"], "name": function["name"], "input": _read(function["arguments"])}
        blocks.append({"type": "tool_use", **given})
    return blocks


def _read(arguments: str) -> Any:
    try:
        return orjson.loads(arguments)
    except orjson.JSONDecodeError:
        return {}


def _stop_reason(reply: Reply) -> str | None:
    if reply.finish == "auto":
        return "tool_use" if reply.tool_calls else "end_turn"
    return None if reply.finish is None else _STOP.get(reply.finish, reply.finish)


def _error(reply: Reply) -> bytes:
    given = {"message": reply.error} if isinstance(reply.error, str) else dict(reply.error)
    kind = _ERROR_TYPES.get(reply.status, "api_error")
    error = {
        "type": given.get("type") or kind,
        "message": given.get("message") or f"status {reply.status}",
    }
    return orjson.dumps({"type": "error", "error": error, "request_id": "req_stub"})


def _event(data: Mapping[str, Any], chars: int = 0) -> Frame:
    return Frame(
        b"event: " + data["type"].encode() + b"\ndata: " + orjson.dumps(data) + b"\n\n", chars
    )


# -- usage and the prompt cache -------------------------------------------------------------------
def _usage(reply: Reply, request: RecordedRequest) -> Mapping[str, Any] | None:
    if isinstance(reply.usage, Mapping) or reply.usage is None:
        return reply.usage
    body, _applied = edited(request.body)
    prompt = count_prompt(body)
    read, written = _through_cache(request, body)
    reasoning = count_text(reply.reasoning)
    output = reasoning + sum(
        count_block(block) for block in _content(reply, request) if not _thinks(block)
    )
    return {
        "input_tokens": prompt - read - written,
        "cache_read_input_tokens": read,
        "cache_creation_input_tokens": written,
        "output_tokens": output,
        "output_tokens_details": {"thinking_tokens": reasoning},
    }


def _thinks(block: Mapping[str, Any]) -> bool:
    return "thinking" in block["type"]


def _through_cache(request: RecordedRequest, body: Mapping[str, Any]) -> tuple[int, int]:
    """Return the tokens of a body that are read from the cache and written to it.

    The cache knows the prefixes that ended in a breakpoint. Each breakpoint is looked for, and
    the 20 blocks before it; everything up to the last breakpoint that was not found is written.
    """
    kept: set[bytes] = request.memory.setdefault("prefixes", set())
    who = request.headers.get("authorization") or request.headers.get("x-api-key", "")
    digest = hashlib.sha256(f"{who}\n{request.model}".encode())
    prefixes: list[tuple[bytes, int]] = []
    cuts: list[int] = []
    tokens, opening, last_place = 0, 0, ""
    for index, (place, block) in enumerate(prompt_blocks(body)):
        plain = {key: value for key, value in block.items() if key != "cache_control"}
        if place != last_place and place in ("user", "assistant"):
            tokens += MESSAGE_TOKENS
            if last_place not in ("user", "assistant"):
                digest.update(orjson.dumps(body.get("thinking")))
                opening = tokens - MESSAGE_TOKENS
        if block.get("type") == "compaction":
            tokens = opening  # what stands before it is not part of the prompt
        last_place = place
        digest.update(place.encode() + orjson.dumps(plain, option=orjson.OPT_SORT_KEYS))
        is_tool = place == "tools"
        tokens += count_text(orjson.dumps(block).decode()) if is_tool else count_block(block)
        prefixes.append((digest.copy().digest(), tokens))
        if "cache_control" in block:
            cuts.append(index)
    found = [
        prefixes[index][1]
        for cut in cuts
        for index in range(max(0, cut - LOOKBACK_BLOCKS), cut + 1)
        if prefixes[index][0] in kept
    ]
    read = max(found, default=0)
    written = max((prefixes[cut][1] for cut in cuts), default=0)
    kept.update(prefixes[cut][0] for cut in cuts)
    return read, max(0, written - read)


ANTHROPIC = Shape(check=check_anthropic, stream=_stream, whole=_whole, error=_error)
