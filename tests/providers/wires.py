"""The wires that `test_every_wire.py` runs on: a new one is one entry here."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from agent.base.record import dataclass
from agent.providers.anthropic import AnthropicMessages
from agent.providers.chat_completions import ChatCompletions
from agent.providers.http_model import HttpModel
from agent.providers.responses import Responses

Body = Mapping[str, Any]


@dataclass(frozen=True)
class WireCase:
    """One wire: its `model.api_mode`, what opens it, how a test reads its requests and writes its
    usage.

    `system` returns the system prompt of a body, `sent` what was said in it: (role, text) of
    each message, call (`call`, name and arguments) and result (`tool`, text), in order; `opaque`
    everything in it that only the provider can read. `usage` is 9 tokens in, 3 of them cached,
    and 4 out, 2 of them reasoning.
    """

    mode: str
    opens: type[HttpModel]
    system: Callable[[Body], str]
    sent: Callable[[Body], list[tuple[str, str]]]
    opaque: Callable[[Body], list[str]]
    usage: Mapping[str, Any]


def text_in(content: Any) -> str:
    """Return the text of a content of any wire."""
    if isinstance(content, list):
        return "".join(part.get("text", "") for part in content)
    return content or ""


def _chat_system(body: Body) -> str:
    return "".join(m["content"] for m in body["messages"] if m["role"] == "system")


def _chat_sent(body: Body) -> list[tuple[str, str]]:
    sent: list[tuple[str, str]] = []
    for message in body["messages"]:
        if message["role"] != "system" and message["content"]:
            sent.append((message["role"], text_in(message["content"])))
        calls = [call["function"] for call in message.get("tool_calls", ())]
        sent += [("call", call["name"] + call["arguments"]) for call in calls]
    return sent


def _chat_opaque(body: Body) -> list[str]:
    details = [d for m in body["messages"] for d in m.get("reasoning_details", ())]
    return [detail["signature"] for detail in details]


def _responses_sent(body: Body) -> list[tuple[str, str]]:
    sent = []
    for item in body["input"]:
        kind = item.get("type", "message")
        if kind == "message":
            sent.append((item["role"], text_in(item["content"])))
        elif kind == "function_call":
            sent.append(("call", item["name"] + item["arguments"]))
        elif kind == "function_call_output":
            sent.append(("tool", text_in(item["output"])))
    return sent


def _responses_opaque(body: Body) -> list[str]:
    return [item["encrypted_content"] for item in body["input"] if "encrypted_content" in item]


def _anthropic_sent(body: Body) -> list[tuple[str, str]]:
    sent: list[tuple[str, str]] = []
    for message in body["messages"]:
        for block in message["content"]:
            if block["type"] == "text":
                sent.append((message["role"], block["text"]))
            elif block["type"] == "tool_use":
                sent.append(("call", block["name"] + json.dumps(block["input"])))
            elif block["type"] == "tool_result":
                sent.append(("tool", text_in(block.get("content"))))
    return sent


def _anthropic_opaque(body: Body) -> list[str]:
    blocks = [block for message in body["messages"] for block in message["content"]]
    return [block["signature"] for block in blocks if "signature" in block]


WIRES: dict[str, WireCase] = {
    "chat completions": WireCase(
        mode="chat_completions",
        opens=ChatCompletions,
        system=_chat_system,
        sent=_chat_sent,
        opaque=_chat_opaque,
        usage={
            "prompt_tokens": 9,
            "completion_tokens": 4,
            "prompt_tokens_details": {"cached_tokens": 3},
            "completion_tokens_details": {"reasoning_tokens": 2},
        },
    ),
    "responses": WireCase(
        mode="responses",
        opens=Responses,
        system=lambda body: str(body.get("instructions", "")),
        sent=_responses_sent,
        opaque=_responses_opaque,
        usage={
            "input_tokens": 9,
            "input_tokens_details": {"cached_tokens": 3},
            "output_tokens": 4,
            "output_tokens_details": {"reasoning_tokens": 2},
            "total_tokens": 13,
        },
    ),
    "anthropic messages": WireCase(
        mode="anthropic_messages",
        opens=AnthropicMessages,
        system=lambda body: text_in(body.get("system")),
        sent=_anthropic_sent,
        opaque=_anthropic_opaque,
        usage={
            "input_tokens": 6,
            "cache_read_input_tokens": 3,
            "cache_creation_input_tokens": 0,
            "output_tokens": 4,
            "output_tokens_details": {"thinking_tokens": 2},
        },
    ),
}
