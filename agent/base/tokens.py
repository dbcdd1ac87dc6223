"""Token estimates without a tokenizer: linear in counts of byte classes and of their changes.

A row's estimate is made once, at acceptance, and stored; `Calibration` then follows what the
provider reports. Exact counts do not exist here.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import orjson

from agent.base.messages import Message

IMAGE_TOKENS = 1_500
MESSAGE_TOKENS = 8
STRICT_SHARE = 0.85
"""An estimate is at least this share of what the strictest counters say (`_strict_tokens`)."""

SMALLEST_RATIO = 0.5
LARGEST_RATIO = 4.0

_IMAGE_TYPES = frozenset({"image", "image_url", "input_image"})
_IMAGE_IN_TEXT = re.compile(r"data:image/[\w.+-]+;base64,[A-Za-z0-9+/=]+")


def _byte_classes() -> bytes:
    """Return the table from a UTF-8 byte to the letter of its class."""
    table = bytearray(b"o" * 256)
    for letter, first, last in (
        ("p", 0x21, 0x7E),
        ("d", 0x30, 0x39),
        ("U", 0x41, 0x5A),
        ("l", 0x61, 0x7A),
        ("s", 0x20, 0x20),
        ("s", 0x09, 0x09),
        ("n", 0x0A, 0x0A),
        ("x", 0x80, 0xBF),
        ("y", 0x98, 0x9E),
        ("b", 0xC2, 0xDF),
        ("r", 0xD8, 0xDB),
        ("t", 0xE0, 0xEF),
        ("g", 0xE2, 0xE2),
        ("c", 0xE3, 0xED),
        ("q", 0xF0, 0xF4),
    ):
        table[first : last + 1] = letter.encode() * (last - first + 1)
    return bytes(table)


_CLASSES = _byte_classes()
_ASCII_WEIGHTS = (
    (b"l", 0.055),
    (b"U", 0.30),
    (b"d", 0.42),
    (b"p", 0.50),
    (b"n", 0.40),
    (b"sl", 0.72),
    (b"sU", 0.55),
    (b"lU", 0.45),
    (b"ld", 0.35),
    (b"dl", 0.30),
    (b"Ud", 0.30),
    (b"pl", 0.40),
    (b"nl", 0.60),
    (b"ss", 0.03),
)
_WIDE_WEIGHTS = ((b"b", 0.55), (b"r", 0.60), (b"t", 0.90), (b"g", 1.0), (b"c", 0.85), (b"q", 2.0))
_STRICT_WEIGHTS = ((b"c", 0.75), (b"q", 1.75), (b"gy", 1.75), (b"r", 0.25))


def estimate_text(text: str) -> int:
    """Return the estimated tokens of `text`; 0 for an empty one, at least 1 for any other."""
    if not text:
        return 0
    classes = text.encode("utf-8", "replace").translate(_CLASSES)
    count = classes.count
    tokens = sum(weight * count(pattern) for pattern, weight in _ASCII_WEIGHTS)
    strict = len(text) / 4
    if not text.isascii():
        tokens += sum(weight * count(pattern) for pattern, weight in _WIDE_WEIGHTS)
        strict += sum(weight * count(pattern) for pattern, weight in _STRICT_WEIGHTS)
    return math.ceil(max(tokens, STRICT_SHARE * strict))


def _estimate_content(content: Any) -> int:
    """Return the tokens of a content value: text, a part, or a list of parts.

    An image counts `IMAGE_TOKENS` whatever its size, also as a data URL in the text of a part;
    base64 in a plain string is text.
    """
    if isinstance(content, str):
        return estimate_text(content)
    if isinstance(content, Mapping):
        if content.get("type") in _IMAGE_TYPES or "image_url" in content:
            return IMAGE_TOKENS
        text = content.get("text")
        if isinstance(text, str):
            rest, images = _IMAGE_IN_TEXT.subn("", text)
            return estimate_text(rest) + images * IMAGE_TOKENS
        return sum(_estimate_content(value) for value in content.values())
    if isinstance(content, Sequence) and not isinstance(content, bytes):
        return sum(_estimate_content(part) for part in content)
    return 0


def estimate_message(message: Message) -> int:
    """Return the tokens of one message: content, tool calls and a fixed overhead.

    Keys that begin with `_` count 0: opaque reasoning is not billed as input text.
    """
    tokens = MESSAGE_TOKENS + _estimate_content(message.get("content"))
    for call in message.get("tool_calls") or ():
        function = call.get("function") or {}
        arguments = function.get("arguments") or ""
        if not isinstance(arguments, str):
            arguments = orjson.dumps(arguments).decode()
        tokens += MESSAGE_TOKENS + estimate_text(str(function.get("name") or ""))
        tokens += estimate_text(arguments)
    return tokens


def estimate_tools(schemas: Sequence[Mapping[str, Any]]) -> int:
    """Return the tokens of the tool schemas that a request offers; 0 for none."""
    return estimate_text(orjson.dumps(list(schemas)).decode()) if schemas else 0


@dataclass(frozen=True)
class Calibration:
    """How the provider's counts relate to our estimates; `ratio` is real over estimated.

    The first report takes over; later a higher ratio is taken at once and a lower one by half,
    because counting too little overflows while counting too much only compacts early.
    """

    ratio: float = 1.0
    reports: int = 0

    def observe(self, estimated: int, real: int) -> Calibration:
        """Return the calibration after a request of `estimated` tokens was counted as `real`.

        A report without a positive count on both sides is ignored.
        """
        if estimated <= 0 or real <= 0:
            return self
        seen = min(max(real / estimated, SMALLEST_RATIO), LARGEST_RATIO)
        if self.reports and seen < self.ratio:
            seen = (self.ratio + seen) / 2
        return Calibration(seen, self.reports + 1)

    def apply(self, tokens: int) -> int:
        """Return what the provider would count for `tokens` estimated ones, rounded up."""
        return math.ceil(tokens * self.ratio)

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON form that the store keeps."""
        return {"ratio": self.ratio, "reports": self.reports}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any] | None) -> Calibration:
        """Return what `to_dict` gave; nothing stored means no report yet."""
        return cls(float(data["ratio"]), int(data["reports"])) if data else cls()
