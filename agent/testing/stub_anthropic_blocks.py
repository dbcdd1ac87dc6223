"""Blocks of the Anthropic Messages shape as the stub reads, counts and signs them. Pure."""

from __future__ import annotations

import base64
import hashlib
import hmac
from collections.abc import Mapping
from typing import Any

import orjson

from agent.testing.stub_strict import IMAGE_TOKENS, MESSAGE_TOKENS, count_text

_SIGNER = b"the stub's own key"

Block = Mapping[str, Any]


def sign(text: str) -> str:
    """Return the signature that the stub gives to a thinking text, or the data of a hidden one."""
    digest = hmac.new(_SIGNER, text.encode(), hashlib.sha256).digest()
    return base64.b64encode(digest).decode()


def hidden(text: str) -> str:
    """Return the data of a redacted thinking block, which can be checked but not read."""
    return f"{sign(text)}.{sign(sign(text))}"


def blocks_of(content: Any) -> list[Block]:
    """Return the blocks of a content value; a text is one block."""
    if isinstance(content, str):
        return [{"type": "text", "text": content}]
    return [block for block in content or () if isinstance(block, Mapping)]


def count_block(block: Block) -> int:
    """Return the tokens of one block by the strict counter."""
    kind = block.get("type")
    if kind == "image":
        return IMAGE_TOKENS
    if kind == "tool_result":
        return sum(count_block(part) for part in blocks_of(block.get("content")))
    if kind == "tool_use":
        return count_text(f"{block.get('name')}{orjson.dumps(block.get('input')).decode()}")
    return count_text(str(block.get("thinking") or block.get("text") or block.get("content") or ""))


def count_prompt(body: Mapping[str, Any]) -> int:
    """Return the tokens of tools, system prompt and messages by the strict counter; what stands
    before the newest compaction counts nothing."""
    tokens = 0
    for message in body.get("messages") or ():
        tokens += MESSAGE_TOKENS
        for block in blocks_of(message.get("content")):
            tokens = count_block(block) + (0 if block.get("type") == "compaction" else tokens)
    return (
        sum(count_text(orjson.dumps(tool).decode()) for tool in body.get("tools") or ())
        + sum(count_block(block) for block in blocks_of(body.get("system")))
        + tokens
    )
