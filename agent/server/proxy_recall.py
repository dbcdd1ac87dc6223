"""Recall inside the proxy: calls of our tool are answered here, and the client never sees them.

Only where a conversation was compacted and `proxy.recall` is on; the client's own tools stay its
own. Read next: `proxy_exchange.py`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import orjson

from agent.base.errors import ToolError
from agent.base.messages import Message
from agent.base.tokens import estimate_message, estimate_tools
from agent.providers.stream import EventDecoder
from agent.providers.text import load_json
from agent.server.proxy_reply import ReplyReader
from agent.tools.recall import BUDGET_TOKENS, RECALL, SMALLEST_BUDGET_TOKENS, recall_text
from agent.turn.reader import StoredRows

ROUNDS = 3
NOT_RUN = "[not run: recall was answered first. Make this call again if it is still wanted.]"
_DONE = b"[DONE]"


def recall_tokens() -> int:
    """Return what offering the tool takes of the window."""
    return estimate_tools([RECALL.schema()])


def may_offer(body: Mapping[str, Any]) -> bool:
    """Return whether a request leaves the name of our tool free and lets the model choose."""
    tools = body.get("tools") or []
    if not isinstance(tools, list):
        return False
    functions = [tool.get("function") for tool in tools if isinstance(tool, dict)]
    names = [function.get("name") for function in functions if isinstance(function, dict)]
    return RECALL.name not in names and body.get("tool_choice", "auto") in ("auto", None)


class Rounds:
    """The rounds of one request; `body` is what is sent next."""

    def __init__(
        self, body: Mapping[str, Any], messages: Sequence[Any], rows: StoredRows, room_tokens: int
    ) -> None:
        self._body = body
        self._messages = list(messages)
        self._rows = rows
        self._room_tokens = room_tokens
        self.left = ROUNDS
        """Recalls that are still answered."""
        self.said: list[str] = []
        """What the client was already shown in rounds that ended with a recall."""

    def body(self) -> dict[str, Any]:
        """Return the request of this round; after the last round without the tool."""
        tools = [*(self._body.get("tools") or ()), *([RECALL.schema()] if self.left else ())]
        body = {**self._body, "messages": self._messages}
        return {**body, "tools": tools} if tools else body

    def answer(self, message: Message | None) -> bool:
        """Answer the recall calls of a message; return whether there were any, so that the model
        goes on."""
        calls = (message or {}).get("tool_calls") or []
        if message is None or not self.left or not any(map(is_recall, calls)):
            return False
        self.left -= 1
        self.said.append(message.get("content") or "")
        self._messages.append(
            {"role": "assistant", "content": message.get("content") or None, "tool_calls": calls}
        )
        for call in calls:
            text = self._recalled(call) if is_recall(call) else NOT_RUN
            result = {"role": "tool", "tool_call_id": call["id"], "content": text}
            self._room_tokens -= estimate_message(result)
            self._messages.append(result)
        return True

    def _recalled(self, call: Mapping[str, Any]) -> str:
        """Return what a call gives, within what is left of the window; an error is a text too."""
        try:
            arguments = orjson.loads(call["function"].get("arguments") or "{}")
            asked = arguments.get("budget_tokens", BUDGET_TOKENS)
            most = max(SMALLEST_BUDGET_TOKENS, self._room_tokens // 2)
            return recall_text(
                self._rows,
                arguments.get("query"),
                arguments.get("rows"),
                int(arguments.get("offset", 0)),
                min(int(asked), most),
            )
        except (ToolError, ValueError, TypeError, AttributeError) as error:
            return f"error: {error}"


def is_recall(call: Mapping[str, Any]) -> bool:
    """Return whether a call is one of our tool."""
    return (call.get("function") or {}).get("name") == RECALL.name


class Sieve:
    """Lets through of a stream what the client may see: everything up to a recall call, and
    nothing of that call."""

    def __init__(self, reader: ReplyReader, *, hides: bool) -> None:
        self._reader = reader
        self._hides = hides
        self._decoder = EventDecoder()
        self._hidden: set[Any] = set()
        self._shown_calls = False
        self.held_done = False
        """Whether the end of the stream was held back."""

    @property
    def is_recall(self) -> bool:
        """Whether the answer is a recall, so that another round follows."""
        return bool(self._hidden) and not self._shown_calls

    def feed(self, chunk: bytes) -> Iterator[bytes]:
        """Take in a piece of a stream and yield the events that go on."""
        self._reader.feed(chunk)
        for event in self._decoder.feed(chunk):
            if event.data.strip() == _DONE:
                self.held_done = True
            elif self._passes(event.data):
                yield b"data: %s\n\n" % event.data

    def _passes(self, data: bytes) -> bool:
        try:
            part = load_json(data)
        except ValueError:
            return not self.is_recall
        choices = part.get("choices") if isinstance(part, dict) else None
        choice = choices[0] if isinstance(choices, list) and choices else None
        delta = choice.get("delta") if isinstance(choice, dict) else None
        calls = (delta.get("tool_calls") if isinstance(delta, dict) else None) or ()
        for call in calls:
            if is_recall(call) and self._hides:
                self._hidden.add(call.get("index"))
            elif call.get("index") not in self._hidden and not self.is_recall:
                self._shown_calls = True
        if self.is_recall:
            return False
        return not calls or any(call.get("index") not in self._hidden for call in calls)


def without_recall(message: Message) -> Message:
    """Return an answer as the client has it: calls of our tool beside its own are left out."""
    calls = [call for call in message.get("tool_calls") or () if not is_recall(call)]
    kept = {key: value for key, value in message.items() if key != "tool_calls"}
    return {**kept, "tool_calls": calls} if calls else kept
