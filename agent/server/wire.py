"""Parts that both OpenAI-compatible routes read: content, tools, and what they do not take."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from agent.server.faults import Fault, refused

Part = dict[str, Any]


def unsupported(name: str, why: str) -> Fault:
    """Return the fault of a field that would change the answer and is not served."""
    return Fault(400, f"{name}: {why}", code="unsupported_parameter")


def read_content(content: str | Sequence[Mapping[str, Any]] | None) -> str | list[Part]:
    """Return content in the chat shape. Raises: Fault for a part of a kind that is not taken."""
    if content is None or isinstance(content, str):
        return content or ""
    return [_read_part(part) for part in content]


def _read_part(part: Mapping[str, Any]) -> Part:
    kind = part.get("type")
    if kind in ("text", "input_text", "output_text"):
        return {"type": "text", "text": _text(part, "text")}
    if kind == "refusal":
        return {"type": "text", "text": _text(part, "refusal")}
    if kind in ("image_url", "input_image"):
        return {"type": "image_url", "image_url": _read_image(part)}
    raise refused(
        f"a content part of type {kind!r} is not taken; send text or image_url",
        code="unsupported_content",
    )


def _text(part: Mapping[str, Any], key: str) -> str:
    text = part.get(key)
    if not isinstance(text, str):
        raise refused(f"a content part of type {part['type']!r} needs {key!r} as text")
    return text


def _read_image(part: Mapping[str, Any]) -> Part:
    image = part.get("image_url")
    if isinstance(image, str):
        image = {"url": image}
    url = image.get("url") if isinstance(image, Mapping) else None
    if not isinstance(url, str) or not url.startswith(("data:image/", "https://", "http://")):
        raise refused("an image needs its URL: https://... or data:image/...;base64,...")
    assert isinstance(image, Mapping)
    detail = image.get("detail") or part.get("detail")
    return {"url": url, "detail": detail} if isinstance(detail, str) else {"url": url}


def text_of_parts(content: str | list[Part]) -> str:
    """Return content as one text, for where only text can stand."""
    if isinstance(content, str):
        return content
    return "\n".join(part["text"] for part in content if part["type"] == "text")


def offered_tools(
    tools: Sequence[dict[str, Any]] | None, choice: Any
) -> list[dict[str, Any]] | None:
    """Return the tools that a request offers; None when it brings none.

    Raises: Fault for a choice that a model cannot be held to here.
    """
    if tools is None:
        return None
    if choice not in (None, "auto", "none"):
        raise unsupported("tool_choice", "only 'auto' and 'none' are served")
    return [] if choice == "none" else list(tools)
