"""The Responses shape of the stub server: events of a stream, a whole answer, an error."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import orjson

from agent.testing.stub_chat import CHAT, pieces_of
from agent.testing.stub_reply import Frame, RecordedRequest, Reply, Shape
from agent.testing.stub_responses_strict import check_responses, count_request, seal
from agent.testing.stub_strict import count_text

_INCOMPLETE = {"length": "max_output_tokens", "content_filter": "content_filter"}
_SAYS = "reasoning.encrypted_content"

Item = dict[str, Any]


def _stream(reply: Reply, request: RecordedRequest, number: int) -> Sequence[Frame]:
    events = _Events()
    begun = {**_envelope(reply, request, number), "status": "in_progress", "output": []}
    frames = [
        events.frame("response.created", response=begun),
        events.frame("response.in_progress", response=begun),
    ]
    output = _output(reply, request, number)
    for index, item in enumerate(output):
        frames += events.item(index, item, reply)
    if reply.close_without_finish or reply.finish is None:
        return frames
    whole = _response(reply, request, number)
    frames.append(events.frame(f"response.{whole['status']}", response=whole))
    return frames


def _whole(reply: Reply, request: RecordedRequest, number: int) -> bytes:
    return orjson.dumps(_response(reply, request, number))


class _Events:
    """Numbers the events of one stream."""

    def __init__(self) -> None:
        self._number = -1

    def frame(self, kind: str, chars: int = 0, **fields: Any) -> Frame:
        self._number += 1
        event = {"type": kind, "sequence_number": self._number, **fields}
        return Frame(b"event: %s\ndata: %s\n\n" % (kind.encode(), orjson.dumps(event)), chars)

    def item(self, index: int, item: Item, reply: Reply) -> Iterator[Frame]:
        """Yield the events of one output item."""
        kind = item["type"]
        begun = {**item, **_BEGUN.get(kind, {})}
        yield self.frame("response.output_item.added", output_index=index, item=begun)
        if kind in _INSIDE:
            yield from _INSIDE[kind](
                self, {"item_id": item["id"], "output_index": index}, item, reply
            )
        yield self.frame("response.output_item.done", output_index=index, item=item)

    def text(self, where: Item, item: Item, reply: Reply) -> Iterator[Frame]:
        [part] = item["content"]
        where = {**where, "content_index": 0}
        empty = {**part, "text": ""}
        yield self.frame("response.content_part.added", **where, part=empty)
        for piece in reply.chunks if reply.chunks is not None else pieces_of(part["text"]):
            said: Item = {"delta": piece, "logprobs": []}
            yield self.frame("response.output_text.delta", len(piece), **where, **said)
        done = {"text": part["text"], "logprobs": []}
        yield self.frame("response.output_text.done", **where, **done)
        yield self.frame("response.content_part.done", **where, part=part)

    def arguments(self, where: Item, item: Item, _reply: Reply) -> Iterator[Frame]:
        kind = "response.function_call_arguments"
        for piece in pieces_of(item["arguments"]):
            yield self.frame(f"{kind}.delta", len(piece), **where, delta=piece)
        done = {"arguments": item["arguments"], "name": item["name"]}
        yield self.frame(f"{kind}.done", **where, **done)

    def summary(self, where: Item, item: Item, _reply: Reply) -> Iterator[Frame]:
        kind = "response.reasoning_summary"
        for index, part in enumerate(item["summary"]):
            place = {**where, "summary_index": index}
            yield self.frame(f"{kind}_part.added", **place, part={**part, "text": ""})
            for piece in pieces_of(part["text"]):
                yield self.frame(f"{kind}_text.delta", len(piece), **place, delta=piece)
            yield self.frame(f"{kind}_text.done", **place, text=part["text"])
            yield self.frame(f"{kind}_part.done", **place, part=part)


_BEGUN: Mapping[str, Mapping[str, Any]] = {
    "message": {"status": "in_progress", "content": []},
    "function_call": {"status": "in_progress", "arguments": ""},
    "reasoning": {"summary": []},
}
_INSIDE: Mapping[str, Callable[[_Events, Item, Item, Reply], Iterator[Frame]]] = {
    "message": _Events.text,
    "function_call": _Events.arguments,
    "reasoning": _Events.summary,
}


def _envelope(reply: Reply, request: RecordedRequest, number: int) -> Item:
    body = request.body
    return {
        "id": f"resp_stub_{number}",
        "object": "response",
        "created_at": int(time.time()),
        "model": request.model,
        "instructions": body.get("instructions"),
        "error": None,
        "incomplete_details": None,
        "metadata": {},
        "parallel_tool_calls": True,
        "temperature": body.get("temperature", 1.0),
        "tool_choice": "auto",
        "tools": body.get("tools") or [],
        "top_p": 1.0,
        "store": body.get("store", True),
    }


def _response(reply: Reply, request: RecordedRequest, number: int) -> Item:
    reason = _INCOMPLETE.get(reply.finish or "")
    status = "incomplete" if reason else "completed"
    answer = _envelope(reply, request, number)
    answer |= {
        "status": "in_progress" if reply.finish is None else status,
        "output": _output(reply, request, number),
        "incomplete_details": {"reason": reason} if reason else None,
    }
    if reply.usage is not None:
        answer["usage"] = _usage(reply, request)
    return answer


def _output(reply: Reply, request: RecordedRequest, number: int) -> list[Item]:
    if reply.choices_empty:
        return []
    items = _compaction(request, number)
    items += [_reasoning(reply, request, number)] if reply.reasoning else []
    if reply.text is not None or reply.chunks is not None:
        part = {"type": "output_text", "text": reply.whole_text, "annotations": [], "logprobs": []}
        said = {"type": "message", "role": "assistant", "content": [part]}
        items.append({"id": f"msg_{number}", "status": "completed", **said})
    for index, call in enumerate(reply.tool_calls):
        items.append(
            {
                "type": "function_call",
                "id": f"fc_{number}_{index}",
                "call_id": call["id"],
                "name": call["function"]["name"],
                "arguments": call["function"]["arguments"],
                "status": "completed",
            }
        )
    return items


def _compaction(request: RecordedRequest, number: int) -> list[Item]:
    """Return the compaction that comes first when a request has reached its own threshold."""
    asked = [entry["compact_threshold"] for entry in request.body.get("context_management") or ()]
    if not asked or count_request(request.body, request.model) < asked[0]:
        return []
    sealed = seal(f"{number}: everything so far", request.model)
    return [{"type": "compaction", "id": f"cmp_{number}", "encrypted_content": sealed}]


def _reasoning(reply: Reply, request: RecordedRequest, number: int) -> Item:
    summary = [{"type": "summary_text", "text": reply.reasoning}]
    item = {"type": "reasoning", "id": f"rs_{number}", "summary": summary}
    if _SAYS in (request.body.get("include") or ()):
        item["encrypted_content"] = seal(f"{number}: {reply.reasoning}", request.model)
    return item


def _usage(reply: Reply, request: RecordedRequest) -> Mapping[str, Any] | None:
    if isinstance(reply.usage, Mapping) or reply.usage is None:
        return reply.usage
    prompt = count_request(request.body, request.model)
    reasoning = count_text(reply.reasoning)
    calls = "".join(
        call["function"]["name"] + call["function"]["arguments"] for call in reply.tool_calls
    )
    completion = count_text(reply.whole_text) + reasoning + count_text(calls)
    return {
        "input_tokens": prompt,
        "input_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 0},
        "output_tokens": completion,
        "output_tokens_details": {"reasoning_tokens": reasoning},
        "total_tokens": prompt + completion,
    }


RESPONSES = Shape(check=check_responses, stream=_stream, whole=_whole, error=CHAT.error)
