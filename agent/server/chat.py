"""`POST /v1/chat/completions`: what clients of OpenAI's chat API send and expect."""

from __future__ import annotations

import time
import uuid
from collections.abc import AsyncGenerator, Sequence
from typing import Annotated, Any, Literal

from pydantic import BaseModel, Field
from starlette.responses import Response

from agent.base.events import ReasoningDelta, TextDelta, Usage
from agent.base.messages import Message, text_of
from agent.base.record import dataclass
from agent.server.agents import Served, Wishes, new_messages
from agent.server.faults import refused
from agent.server.jobs import Job
from agent.server.routing import Asked, Nothing
from agent.server.stream import DONE, frame
from agent.server.turns import (
    SESSION_HEADER,
    choose,
    reply,
    require_model,
    require_tools,
    start_turn,
)
from agent.server.wire import offered_tools, read_content, text_of_parts, unsupported

BETWEEN = "\n\n"
"""Stands between two answers of one turn: what was said before a tool ran, and after."""

_FINISH = {"stop": "stop", "interrupted": "stop", "iterations": "length"}
Limit = Annotated[int, Field(ge=1, le=10_000_000)]


class FunctionCall(BaseModel):
    """What a call names and gives."""

    name: str
    arguments: str = "{}"


class ToolCall(BaseModel):
    """One call of an assistant message."""

    id: str = Field(min_length=1)
    type: Literal["function"] = "function"
    function: FunctionCall


class ChatMessage(BaseModel):
    """One message of the history that a client sends."""

    role: Literal["system", "developer", "user", "assistant", "tool"]
    content: str | list[dict[str, Any]] | None = None
    name: str | None = None
    tool_calls: list[ToolCall] | None = None
    tool_call_id: str | None = None


class FunctionSpec(BaseModel):
    """A function that a client offers."""

    name: str = Field(min_length=1, max_length=64, pattern=r"^[a-zA-Z0-9_-]+$")
    description: str | None = None
    parameters: dict[str, Any] | None = None


class ToolSpec(BaseModel):
    """A tool that a client offers."""

    type: Literal["function"] = "function"
    function: FunctionSpec


class StreamOptions(BaseModel):
    """What a stream tells beside the answer."""

    include_usage: bool = False


class ChatRequest(BaseModel):
    """A chat completion. Fields that are not listed are accepted and have no effect."""

    model: str
    messages: list[ChatMessage] = Field(min_length=1)
    stream: bool = False
    stream_options: StreamOptions | None = None
    tools: list[ToolSpec] | None = None
    tool_choice: str | dict[str, Any] | None = None
    n: int | None = None
    max_tokens: Limit | None = None
    max_completion_tokens: Limit | None = None
    temperature: Annotated[float, Field(ge=0, le=2)] | None = None
    response_format: dict[str, Any] | None = None
    stop: str | list[str] | None = None
    logprobs: bool | None = None


async def complete_chat(asked: Asked[ChatRequest, Nothing]) -> Response:
    """Run the turn that a chat request asks for."""
    body, desk = asked.body, asked.desk
    _refuse_unserved(body)
    require_model(desk, body.model)
    wishes = _wishes(body)
    require_tools(desk, wishes)
    messages = [_message(item) for item in body.messages if item.role in _CONVERSATION]
    conversation = await choose(asked.request, desk, messages)
    if SESSION_HEADER in asked.request.headers:
        messages = list(new_messages(messages))
    job = start_turn(desk, conversation, messages, wishes)
    head = _Head(f"chatcmpl-{uuid.uuid4().hex}", int(time.time()), body.model)
    if not body.stream:
        return await reply(
            asked.request, conversation, job, whole=lambda served: _whole(head, served)
        )
    with_usage = body.stream_options is not None and body.stream_options.include_usage
    return await reply(
        asked.request,
        conversation,
        job,
        frames=lambda job: _frames(head, job, with_usage=with_usage),
    )


_CONVERSATION = frozenset(("user", "assistant", "tool"))


def _refuse_unserved(body: ChatRequest) -> None:
    if body.n not in (None, 1):
        raise unsupported("n", f"{body.n!r} answers at once are not served; ask for 1")
    if body.response_format is not None and body.response_format.get("type") != "text":
        raise unsupported("response_format", "only 'text' is served")
    if body.stop:
        raise unsupported("stop", "stop sequences are not served")
    if body.logprobs:
        raise unsupported("logprobs", "log probabilities are not served")


def _wishes(body: ChatRequest) -> Wishes:
    said = [
        text_of_parts(read_content(message.content))
        for message in body.messages
        if message.role in ("system", "developer")
    ]
    specs = (
        None if body.tools is None else [tool.model_dump(exclude_none=True) for tool in body.tools]
    )
    return Wishes(
        tools=offered_tools(specs, body.tool_choice),
        instructions="\n\n".join(said) if said else None,
        max_tokens=body.max_completion_tokens or body.max_tokens or 0,
        temperature=body.temperature,
    )


def _message(item: ChatMessage) -> Message:
    """Return a message as it is stored. Raises: Fault when its role lacks something."""
    message: Message = {"role": item.role, "content": read_content(item.content)}
    if item.name is not None:
        message["name"] = item.name
    if item.role == "assistant" and item.tool_calls:
        message["tool_calls"] = [call.model_dump() for call in item.tool_calls]
    if item.role == "tool":
        if not item.tool_call_id:
            raise refused("messages: a message of role 'tool' needs tool_call_id")
        message["tool_call_id"] = item.tool_call_id
    return message


# -- answers --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Head:
    """What every piece of one answer says."""

    id: str
    created: int
    model: str

    def chunk(self, delta: dict[str, Any], finish: str | None = None) -> dict[str, Any]:
        choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}
        return self._object("chat.completion.chunk", [choice])

    def whole(self, message: dict[str, Any], finish: str) -> dict[str, Any]:
        choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": finish}
        return self._object("chat.completion", [choice])

    def usage(self, served: Served) -> dict[str, Any]:
        return {**self._object("chat.completion.chunk", []), "usage": _usage(served)}

    def _object(self, name: str, choices: list[dict[str, Any]]) -> dict[str, Any]:
        return {
            "id": self.id,
            "object": name,
            "created": self.created,
            "model": self.model,
            "choices": choices,
        }


def said_text(rows: Sequence[Message]) -> str:
    """Return everything that the answers of a turn say."""
    texts = [text_of(row.get("content")) for row in rows if row["role"] == "assistant"]
    return BETWEEN.join(text for text in texts if text)


def client_calls(served: Served) -> list[dict[str, Any]]:
    """Return the calls that the client has to run, as the model made them."""
    if served.result.stop_reason != "tool_calls":
        return []
    return list(served.rows[-1]["tool_calls"])


def _whole(head: _Head, served: Served) -> dict[str, Any]:
    text, calls = said_text(served.rows), client_calls(served)
    message: dict[str, Any] = {"role": "assistant", "content": text, "refusal": None}
    if calls:
        message |= {"content": text or None, "tool_calls": calls}
    return {**head.whole(message, _finish(served)), "usage": _usage(served)}


async def _frames(
    head: _Head, job: Job[Served], *, with_usage: bool
) -> AsyncGenerator[bytes, None]:
    yield frame(head.chunk({"role": "assistant", "content": ""}))
    has_said = is_new = False
    async for event in job.events():
        if isinstance(event, TextDelta):
            text = BETWEEN + event.text if has_said and is_new else event.text
            has_said, is_new = True, False
            yield frame(head.chunk({"content": text}))
        elif isinstance(event, ReasoningDelta):
            yield frame(head.chunk({"reasoning_content": event.text}))
        elif isinstance(event, Usage):
            is_new = True
    served = await job.result()
    if not has_said and (text := said_text(served.rows)):
        yield frame(head.chunk({"content": text}))
    for index, call in enumerate(client_calls(served)):
        yield frame(head.chunk({"tool_calls": [{"index": index, **call}]}))
    yield frame(head.chunk({}, _finish(served)))
    if with_usage:
        yield frame(head.usage(served))
    yield DONE


def _finish(served: Served) -> str:
    reason = served.result.stop_reason
    return _FINISH.get(reason, reason)


def _usage(served: Served) -> dict[str, Any]:
    usage = served.result.usage
    return {
        "prompt_tokens": usage.prompt,
        "completion_tokens": usage.completion,
        "total_tokens": usage.prompt + usage.completion,
        "prompt_tokens_details": {"cached_tokens": usage.cached},
    }
