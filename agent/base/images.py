"""Which parts of a message's content are images, data URLs inside the text of a part included."""

from __future__ import annotations

import re
from typing import Any

IMAGE_WORD = "[image]"
"""What stands for an image where only text can."""

_TYPES = frozenset({"image", "image_url", "input_image"})
_HINT = "data:image/"
_DATA_URL = re.compile(r"data:image/[\w.+-]+(?:;[\w.=+-]+)*;base64,[A-Za-z0-9+/=]+")


def is_image(part: Any) -> bool:
    """Return whether a part is an image of any wire's shape."""
    return isinstance(part, dict) and (part.get("type") in _TYPES or "image_url" in part)


def replace_images(text: str, word: str = IMAGE_WORD) -> tuple[str, int]:
    """Return the text of a part with `word` in place of each data URL of an image, and how many
    there were."""
    return _DATA_URL.subn(lambda _url: word, text) if _HINT in text else (text, 0)


def images_apart(parts: list[Any]) -> list[Any]:
    """Return parts in which every image is a part of its own; the same list when that is so."""
    if not any(_HINT in _text_of_part(part) for part in parts):
        return parts
    return [piece for part in parts for piece in _split(part)]


def labelled(parts: list[Any]) -> list[Any]:
    """Return parts in which a label stands for each image; the same list when it holds none."""
    apart = images_apart(parts)
    if not any(map(is_image, apart)):
        return parts
    label = {"type": "text", "text": IMAGE_WORD}
    return [label if is_image(part) else part for part in apart]


def _text_of_part(part: Any) -> str:
    text = part.get("text") if isinstance(part, dict) and not is_image(part) else None
    return text if isinstance(text, str) else ""


def _split(part: Any) -> list[Any]:
    text = _text_of_part(part)
    pieces: list[Any] = []
    end = 0
    for match in _DATA_URL.finditer(text):
        pieces += [{**part, "text": text[end : match.start()]}] if match.start() > end else []
        pieces.append({"type": "image_url", "image_url": {"url": match[0]}})
        end = match.end()
    if not pieces:
        return [part]
    return [*pieces, {**part, "text": text[end:]}] if text[end:] else pieces
