"""Parts of a content value in the one shape that every wire is written from. Pure.

Rows may hold parts of any wire, and plain strings: from programs, proxies and other transcripts.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from agent.base.images import IMAGE_WORD, images_apart, is_image

_TEXTS = frozenset({"text", "input_text", "output_text"})


def plain_parts(parts: list[Any]) -> list[Any]:
    """Return parts as those of chat completions: texts, images each a part of its own, and what is
    neither as it was. What cannot be shown is a word in brackets. The same list when it is so."""
    plain = [_plain(part) for part in images_apart(parts)]
    is_same = len(plain) == len(parts) and all(a is b for a, b in zip(plain, parts, strict=True))
    return parts if is_same else plain


def _plain(part: Any) -> Any:
    if isinstance(part, str):
        return _text(part)
    if not isinstance(part, Mapping):
        return _text(f"[{type(part).__name__}]")
    if is_image(part):
        return _image(part)
    kind, said = part.get("type"), part.get("text")
    if kind == "refusal":
        return _text(part.get("refusal"))
    if kind in _TEXTS or (kind is None and isinstance(said, str)):
        return part if kind == "text" and isinstance(said, str) else _text(said)
    return part if isinstance(kind, str) else _text("[part]")


def _text(said: Any) -> dict[str, Any]:
    return {"type": "text", "text": said if isinstance(said, str) else ""}


def _image(part: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return an image of any wire as one with its address; one without any that can be sent
    elsewhere is a word, but one that its endpoint keeps stays as it is."""
    given, source = part.get("image_url"), part.get("source")
    if part.get("type") == "image_url" and isinstance(given, Mapping) and _is_url(given.get("url")):
        return part
    url, extra = given, {name: part[name] for name in ("detail",) if part.get(name)}
    if isinstance(given, Mapping):
        url, extra = given.get("url"), {**extra, **given}
    elif isinstance(source, Mapping):
        data = f"data:{source.get('media_type')};base64,{source.get('data')}"
        url = data if source.get("type") == "base64" else source.get("url")
    if _is_url(url):
        return {"type": "image_url", "image_url": {**extra, "url": url}}
    return part if "file_id" in part else _text(IMAGE_WORD)


def _is_url(value: Any) -> bool:
    return isinstance(value, str) and bool(value)
