"""Messages and small histories for tests, in the shape of `agent/base/messages.py`."""

from __future__ import annotations

import itertools
import json
from collections.abc import Mapping, Sequence
from typing import Any

from agent.base.messages import Message

_call_numbers = itertools.count(1)


def system(text: str = "You are a helpful assistant.") -> Message:
    """Return a system message."""
    return {"role": "system", "content": text}


def user(content: str | list[dict[str, Any]]) -> Message:
    """Return a user message of text or of content parts."""
    return {"role": "user", "content": content}


def assistant(text: str | None = None, *calls: Mapping[str, Any]) -> Message:
    """Return an assistant message; `calls` are made by `call`."""
    message: Message = {"role": "assistant", "content": text}
    if calls:
        message["tool_calls"] = [dict(each) for each in calls]
    return message


def call(
    name: str, arguments: Mapping[str, Any] | str | None = None, *, call_id: str = ""
) -> dict[str, Any]:
    """Return a tool call; arguments given as text go out as they are, valid JSON or not."""
    text = arguments if isinstance(arguments, str) else json.dumps(dict(arguments or {}))
    return {
        "id": call_id or f"call_{next(_call_numbers)}",
        "type": "function",
        "function": {"name": name, "arguments": text},
    }


def result(of: Mapping[str, Any] | str, content: str) -> Message:
    """Return the result of a call, given the call or its id."""
    call_id = of if isinstance(of, str) else str(of["id"])
    return {"role": "tool", "tool_call_id": call_id, "content": content}


def image(url: str = "data:image/png;base64,aGVsbG8=") -> dict[str, Any]:
    """Return an image as a content part."""
    return {"type": "image_url", "image_url": {"url": url}}


def turn(
    request: str, answer: str = "Done.", *, rounds: Sequence[Mapping[str, str]] = ()
) -> list[Message]:
    """Return one whole turn: request, rounds of calls with their results, answer.

    Shape: each round maps a tool's name to the text of its result; calls of a round are parallel.
    """
    messages = [user(request)]
    for each in rounds:
        calls = [(call(name, {"of": request}), text) for name, text in each.items()]
        messages.append(assistant(None, *(made for made, _text in calls)))
        messages.extend(result(made, text) for made, text in calls)
    messages.append(assistant(answer))
    return messages


def conversation(turns: int, *, with_tools: bool = False) -> list[Message]:
    """Return a small valid history of numbered turns, without a system message."""
    return [
        message
        for number in range(1, turns + 1)
        for message in turn(
            f"request {number}",
            f"answer {number}",
            rounds=[{"read_file": f"content {number}"}] if with_tools else (),
        )
    ]
