"""Plays a transcript back through the agent's own loop: its answers, its tools, its passes."""

from __future__ import annotations

import json
import threading
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any

from agent.base.events import Event, ToolFinished
from agent.base.messages import Message, text_of
from agent.providers.protocol import ModelRequest
from agent.testing.scripted import Scripted
from agent.tools.protocol import Access, Tool, ToolContext
from agent.tools.recall import RECALL
from benchmarks.fidelity.summarisers import Nonsense

_CALL = "call"
"""Name of the argument that tells the tool which recorded result is wanted."""

_PATIENCE_S = 30.0


class Replay:
    """The script of one transcript: `answer` for a provider, `tools` and `hear` for the agent.

    Calls of one message end in their order, so that a session is the same each time. `messages`
    are what the agent is going to accept: the transcript with one more argument in each tool call.
    A request without tools asks for a summary and gets nonsense. `requests` counts the turn's
    requests, `kept` those that carried the user's newest message verbatim.
    """

    def __init__(self, transcript: Sequence[Message], nonsense: Nonsense) -> None:
        self.messages = [_with_call_ids(message) for message in transcript]
        self.requests = 0
        self.kept = 0
        self._nonsense = nonsense
        self._results = {
            message["tool_call_id"]: text_of(message["content"])
            for message in transcript
            if message["role"] == "tool"
        }
        self._answers = deque(m for m in self.messages if m["role"] == "assistant")
        self._before = {
            later["id"]: earlier["id"]
            for message in transcript
            for earlier, later in pairwise(message.get("tool_calls") or ())
        }
        self._newest = ""
        self._ended: set[str] = set()
        self._change = threading.Condition()

    def hear(self, event: Event) -> None:
        """Take note of a call that has ended and whose result is stored."""
        if isinstance(event, ToolFinished):
            with self._change:
                self._ended.add(event.call_id)
                self._change.notify_all()

    def turns(self) -> Iterator[str]:
        """Yield what the user says, in order."""
        for message in self.messages:
            if message["role"] == "user":
                self._newest = text_of(message["content"])
                yield self._newest

    def answer(self, request: ModelRequest) -> Scripted:
        """Return the transcript's next answer, or a summary."""
        if not request.tools:
            return Scripted(self._nonsense.write(request.max_tokens), usage=None)
        self.requests += 1
        said = "\n".join(
            text_of(message.get("content"))
            for message in request.messages
            if message["role"] == "user"
        )
        self.kept += self._newest in said
        if not self._answers:
            return Scripted("Done.", usage=None)
        message = self._answers.popleft()
        return Scripted(
            text_of(message.get("content")) or None,
            tool_calls=message.get("tool_calls") or (),
            usage=None,
        )

    def tools(self) -> tuple[Tool, ...]:
        """Return the tools that the transcript uses, each giving back what was recorded."""
        names = {
            call["function"]["name"]
            for message in self.messages
            for call in message.get("tool_calls") or ()
        }
        return (RECALL, *(self._tool(name) for name in sorted(names)))

    def _tool(self, name: str) -> Tool:
        def run(arguments: Mapping[str, Any], _context: ToolContext) -> str:
            before = self._before.get(arguments[_CALL])
            with self._change:
                self._change.wait_for(
                    lambda: before is None or before in self._ended, timeout=_PATIENCE_S
                )
            return self._results[arguments[_CALL]]

        return Tool(
            name=name,
            description=f"Plays back a result of {name}.",
            parameters={"type": "object", "properties": {_CALL: {"type": "string"}}},
            access=Access.READ,
            run=run,
            describe=lambda _arguments: name,
        )


def _with_call_ids(message: Message) -> Message:
    if not message.get("tool_calls"):
        return message
    calls = []
    for call in message["tool_calls"]:
        arguments = json.loads(call["function"]["arguments"]) | {_CALL: call["id"]}
        function = {**call["function"], "arguments": json.dumps(arguments)}
        calls.append({**call, "function": function})
    return {**message, "tool_calls": calls}
