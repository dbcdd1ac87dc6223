"""The chat completions shape of the stub server: frames of a stream, a whole answer, an error."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import orjson

from agent.testing.stub_reply import Frame, RecordedRequest, Reply, Shape
from agent.testing.stub_strict import check_chat, count_text, count_tokens

PIECE_CHARS = 12
_DETAILS = "reasoning_details"

_ERROR_TYPES = {
    400: "invalid_request_error",
    401: "authentication_error",
    402: "insufficient_quota",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
}


def _stream(reply: Reply, request: RecordedRequest, number: int) -> Sequence[Frame]:
    envelope = _envelope(request, number, "chat.completion.chunk")
    if reply.choices_empty:
        return [_event({**envelope, "choices": []}), Frame(b"data: [DONE]\n\n")]
    frames = [
        _event({**envelope, "choices": [_choice(delta, None)]}, chars)
        for delta, chars in _deltas(reply)
    ]
    if reply.close_without_finish:
        return frames
    frames.append(_event({**envelope, "choices": [_choice({}, _finish(reply))]}))
    options = request.body.get("stream_options") or {}
    if options.get("include_usage") and reply.usage is not None:
        frames.append(_event({**envelope, "choices": [], "usage": _usage(reply, request)}))
    frames.append(Frame(b"data: [DONE]\n\n"))
    return frames


def _whole(reply: Reply, request: RecordedRequest, number: int) -> bytes:
    message: dict[str, Any] = {
        "role": "assistant",
        "content": reply.whole_text if reply.chunks is not None else reply.text,
    }
    if reply.reasoning:
        message |= _reasoned(reply, reply.reasoning, seal=True)
    if reply.tool_calls:
        message["tool_calls"] = [dict(call) for call in reply.tool_calls]
    choice = {"index": 0, "message": message, "finish_reason": _finish(reply)}
    answer = _envelope(request, number, "chat.completion")
    answer["choices"] = [] if reply.choices_empty else [choice]
    if reply.usage is not None:
        answer["usage"] = _usage(reply, request)
    return orjson.dumps(answer)


def _error(reply: Reply) -> bytes:
    given = {"message": reply.error} if isinstance(reply.error, str) else dict(reply.error)
    kind = _ERROR_TYPES.get(reply.status, "server_error")
    error = {"message": f"status {reply.status}", "type": kind, "param": None, "code": None}
    return orjson.dumps({"error": {**error, **{key: given[key] for key in given if given[key]}}})


def _envelope(request: RecordedRequest, number: int, kind: str) -> dict[str, Any]:
    return {
        "id": f"chatcmpl-stub-{number}",
        "object": kind,
        "created": int(time.time()),
        "model": request.model,
    }


def _deltas(reply: Reply) -> Iterator[tuple[dict[str, Any], int]]:
    """Yield each delta with the characters of text or reasoning it carries."""
    yield {"role": "assistant", "content": None if reply.text is None else ""}, 0
    for piece in pieces_of(reply.reasoning):
        yield _reasoned(reply, piece), len(piece)
    if reply.reasoning and reply.reasoning_key == _DETAILS:
        yield _reasoned(reply, "", seal=True), 0
    for piece in reply.chunks if reply.chunks is not None else pieces_of(reply.text or ""):
        yield {"content": piece}, len(piece)
    for index, call in enumerate(reply.tool_calls):
        function = call["function"]
        head = {"name": function["name"], "arguments": ""}
        opened = {"index": index, "id": call["id"], "type": "function", "function": head}
        yield {"tool_calls": [opened]}, 0
        for piece in pieces_of(function["arguments"]):
            yield {"tool_calls": [{"index": index, "function": {"arguments": piece}}]}, len(piece)


def _reasoned(reply: Reply, piece: str, *, seal: bool = False) -> dict[str, Any]:
    """Return a piece of reasoning under its name; as details, signed where it ends."""
    if reply.reasoning_key != _DETAILS:
        return {reply.reasoning_key: piece}
    detail = {"type": "reasoning.text", "index": 0, "text": piece}
    signature = f"signed: {reply.reasoning}"
    return {"reasoning": piece, _DETAILS: [detail | {"signature": signature} if seal else detail]}


def pieces_of(text: str) -> Iterator[str]:
    """Return a text in the pieces of a stream."""
    return (text[start : start + PIECE_CHARS] for start in range(0, len(text), PIECE_CHARS))


def _choice(delta: Mapping[str, Any], finish: str | None) -> dict[str, Any]:
    return {"index": 0, "delta": dict(delta), "finish_reason": finish}


def _event(chunk: Mapping[str, Any], chars: int = 0) -> Frame:
    return Frame(b"data: " + orjson.dumps(chunk) + b"\n\n", chars)


def _finish(reply: Reply) -> str | None:
    if reply.finish == "auto":
        return "tool_calls" if reply.tool_calls else "stop"
    return reply.finish


def _usage(reply: Reply, request: RecordedRequest) -> Mapping[str, Any] | None:
    if isinstance(reply.usage, Mapping) or reply.usage is None:
        return reply.usage
    prompt = count_tokens(request.messages, request.body.get("tools") or ())
    reasoning = count_text(reply.reasoning)
    calls = "".join(
        call["function"]["name"] + call["function"]["arguments"] for call in reply.tool_calls
    )
    completion = count_text(reply.whole_text) + reasoning + count_text(calls)
    return {
        "prompt_tokens": prompt,
        "completion_tokens": completion,
        "total_tokens": prompt + completion,
        "prompt_tokens_details": {"cached_tokens": 0},
        "completion_tokens_details": {"reasoning_tokens": reasoning},
    }


CHAT = Shape(check=check_chat, stream=_stream, whole=_whole, error=_error)
