"""How a response looks: the object, its output items, and the events that build them up."""

from __future__ import annotations

import uuid
from collections.abc import AsyncGenerator, Iterator
from typing import Any

from agent.base.events import Event, TextDelta, Usage
from agent.base.messages import text_of
from agent.base.record import dataclass
from agent.server.agents import Served
from agent.server.chat import client_calls, said_text
from agent.server.faults import answer_of
from agent.server.jobs import Job
from agent.server.response_items import ResponseRequest
from agent.server.stream import frame

Item = dict[str, Any]


@dataclass(frozen=True)
class Head:
    """What a response says from its first event to its last."""

    id: str
    created_at: int
    session_id: str
    request: ResponseRequest

    def shape(self, status: str, output: list[Item], **more: Any) -> dict[str, Any]:
        """Return the response object."""
        request = self.request
        return {
            "id": self.id,
            "object": "response",
            "created_at": self.created_at,
            "status": status,
            "error": None,
            "incomplete_details": None,
            "instructions": request.instructions,
            "max_output_tokens": request.max_output_tokens,
            "model": request.model,
            "output": output,
            "parallel_tool_calls": True,
            "previous_response_id": request.previous_response_id,
            "conversation": {"id": self.session_id},
            "reasoning": {"effort": None, "summary": None},
            "store": True,
            "temperature": request.temperature,
            "text": {"format": {"type": "text"}},
            "tool_choice": request.tool_choice or "auto",
            "tools": request.tools or [],
            "top_p": None,
            "truncation": "disabled",
            "usage": None,
            "metadata": {},
            **more,
        }

    def ended(self, served: Served, output: list[Item]) -> dict[str, Any]:
        """Return the response object of a turn that ended."""
        usage = served.result.usage
        reason = _INCOMPLETE.get(served.result.stop_reason)
        return self.shape(
            "incomplete" if reason else "completed",
            output,
            incomplete_details={"reason": reason} if reason else None,
            usage={
                "input_tokens": usage.prompt,
                "input_tokens_details": {"cached_tokens": usage.cached},
                "output_tokens": usage.completion,
                "output_tokens_details": {"reasoning_tokens": 0},
                "total_tokens": usage.prompt + usage.completion,
            },
        )


_INCOMPLETE = {
    "length": "max_output_tokens",
    "iterations": "max_output_tokens",
    "interrupted": "interrupted",
}


def whole_response(head: Head, served: Served) -> dict[str, Any]:
    """Return the response of a turn that ended: one message for each answer, then the calls."""
    texts = [text_of(row.get("content")) for row in served.rows if row["role"] == "assistant"]
    output = [_message(_new_id("msg"), text, "completed") for text in texts if text]
    return head.ended(served, output + [_call(call) for call in client_calls(served)])


async def stream_response(head: Head, job: Job[Served]) -> AsyncGenerator[bytes, None]:
    """Yield the events of a response as its turn goes on."""
    writing = _Writing()
    started = head.shape("in_progress", [])
    yield writing.event("response.created", response=started)
    yield writing.event("response.in_progress", response=started)
    try:
        async for event in job.events():
            for piece in writing.take(event):
                yield piece
        served = await job.result()
    except Exception as error:
        answer = answer_of(error)
        failed = head.shape(
            "failed", writing.output, error={"code": answer.code, "message": answer.message}
        )
        yield writing.event("response.failed", response=failed)
        return
    if not writing.has_said and (text := said_text(served.rows)):
        for piece in writing.say(text):
            yield piece
    for piece in writing.close():
        yield piece
    for call in client_calls(served):
        for piece in writing.call(call):
            yield piece
    ended = head.ended(served, writing.output)
    yield writing.event(f"response.{ended['status']}", response=ended)


class _Writing:
    """The output of a response while it is streamed; each event carries its number."""

    def __init__(self) -> None:
        self.output: list[Item] = []
        self.has_said = False
        self._number = 0
        self._open_id = ""
        self._text: list[str] = []

    def event(self, kind: str, **fields: Any) -> bytes:
        """Return one event as it is sent."""
        shape = {"type": kind, "sequence_number": self._number, **fields}
        self._number += 1
        return frame(shape, event=kind)

    def take(self, event: Event) -> Iterator[bytes]:
        """Yield what an event of the turn means here: text, or the end of one answer."""
        if isinstance(event, TextDelta):
            yield from self.say(event.text)
        elif isinstance(event, Usage):
            yield from self.close()

    def say(self, text: str) -> Iterator[bytes]:
        """Yield a piece of the message that is open, which begins with it when none is."""
        if not self._open_id:
            self._open_id, self.has_said = _new_id("msg"), True
            yield self._added({**_message(self._open_id, "", "in_progress"), "content": []})
            yield self._of_part("response.content_part.added", part=_part(""))
        self._text.append(text)
        yield self._of_part("response.output_text.delta", delta=text, logprobs=[])

    def close(self) -> Iterator[bytes]:
        """Yield the end of the message that is open, if one is."""
        if not self._open_id:
            return
        text = "".join(self._text)
        yield self._of_part("response.output_text.done", text=text, logprobs=[])
        yield self._of_part("response.content_part.done", part=_part(text))
        yield self._done(_message(self._open_id, text, "completed"))
        self._open_id, self._text = "", []

    def call(self, call: Item) -> Iterator[bytes]:
        """Yield a call that the client has to run."""
        item = _call(call)
        place = {"item_id": item["id"], "output_index": len(self.output)}
        arguments = item["arguments"]
        yield self._added({**item, "arguments": "", "status": "in_progress"})
        yield self.event("response.function_call_arguments.delta", **place, delta=arguments)
        yield self.event(
            "response.function_call_arguments.done",
            **place,
            name=item["name"],
            arguments=arguments,
        )
        yield self._done(item)

    def _added(self, item: Item) -> bytes:
        index = len(self.output)
        return self.event("response.output_item.added", output_index=index, item=item)

    def _done(self, item: Item) -> bytes:
        index = len(self.output)
        self.output.append(item)
        return self.event("response.output_item.done", output_index=index, item=item)

    def _of_part(self, kind: str, **fields: Any) -> bytes:
        index = len(self.output)
        return self.event(
            kind, item_id=self._open_id, output_index=index, content_index=0, **fields
        )


def _new_id(kind: str) -> str:
    return f"{kind}_{uuid.uuid4().hex}"


def _part(text: str) -> Item:
    return {"type": "output_text", "text": text, "annotations": [], "logprobs": []}


def _message(item_id: str, text: str, status: str) -> Item:
    return {
        "id": item_id,
        "type": "message",
        "role": "assistant",
        "status": status,
        "content": [_part(text)],
    }


def _call(call: Item) -> Item:
    function = call["function"]
    return {
        "id": _new_id("fc"),
        "type": "function_call",
        "call_id": call["id"],
        "name": function["name"],
        "arguments": function["arguments"],
        "status": "completed",
    }
