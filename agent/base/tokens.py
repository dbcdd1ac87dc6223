"""Token estimates without a tokenizer: a weighted count of byte classes and of their changes.

A row's estimate is made once, at acceptance, and stored; `Calibration` then follows what the
provider reports. Exact counts do not exist here.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import orjson

from agent.base.images import is_image, replace_images
from agent.base.messages import Message
from agent.base.record import dataclass

IMAGE_TOKENS = 1_500
MESSAGE_TOKENS = 8
STRICT_SHARE = 0.83
"""An estimate is at least this share of what strict counters say (`_STRICT_WEIGHTS`)."""

SMALLEST_RATIO = 0.5
LARGEST_RATIO = 4.0
PRIOR_TOKENS = 400
SHRUNK_SHARE = 0.95
"""A request that only grew counts at least this part of what it counted before."""


_CLASS_RANGES = (
    (b"p", 0x21, 0x7E),  # ASCII punctuation, less the next three
    (b"d", 0x30, 0x39),
    (b"U", 0x41, 0x5A),
    (b"l", 0x61, 0x7A),
    (b"s", 0x09, 0x09),
    (b"n", 0x0A, 0x0A),
    (b"s", 0x20, 0x20),
    (b"y", 0x98, 0x9E),  # second bytes of U+2600 to U+27BF, older emoji and symbols
    (b"b", 0xC2, 0xCB),  # lead bytes: Latin with accents
    (b"e", 0xCC, 0xD7),  # Greek, Cyrillic, Hebrew
    (b"r", 0xD8, 0xDF),  # Arabic
    (b"i", 0xE0, 0xE1),  # Indic scripts, Thai, Georgian
    (b"g", 0xE2, 0xE2),  # typographic marks and symbols
    (b"c", 0xE3, 0xE9),  # kana and ideographs
    (b"k", 0xEA, 0xED),  # Hangul
    (b"f", 0xEE, 0xEF),  # full-width forms, private use
    (b"q", 0xF0, 0xF4),  # emoji, rare ideographs
)
"""Classes of UTF-8 bytes; any other byte is class `x` and counts nothing."""

_ASCII_WEIGHTS = (
    (b"l", 0.037),
    (b"d", 0.30),
    (b"p", 0.215),
    (b"U", 0.215),
    (b"n", 0.58),
    (b"s", 0.04),
    (b"Ud", 2.95),
    (b"ld", 1.60),
    (b"sd", 0.97),
    (b"nd", 1.25),
    (b"dp", 0.91),
    (b"sp", 1.08),
    (b"lp", 1.17),
    (b"np", 1.06),
    (b"lU", 1.30),
    (b"sU", 0.19),
    (b"ls", 0.85),
    (b"ds", 1.12),
)
"""Tokens for each byte of a class or change of class, fitted by non-negative least squares to o200k
counts of prose, code, JSON, logs, hex and base64 (the last three are told by their changes)."""

_WIDE_WEIGHTS = (
    (b"b", 1.87),
    (b"e", 0.22),
    (b"se", 1.22),
    (b"r", 0.38),
    (b"sr", 0.18),
    (b"i", 0.43),
    (b"g", 0.60),
    (b"gy", 1.40),
    (b"c", 0.75),
    (b"sc", 1.20),
    (b"k", 0.75),
    (b"f", 0.90),
    (b"q", 1.70),
)
_STRICT_WEIGHTS = (
    (b"c", 0.75),
    (b"k", 0.75),
    (b"f", 0.75),
    (b"r", 0.25),
    (b"gy", 1.75),
    (b"q", 1.75),
)
"""What strict counters add to a quarter of a token for each character: 1 for CJK, 2 for an emoji,
half for an Arabic letter."""


def _class_table() -> bytes:
    """Return the translation table from a byte to its class."""
    table = bytearray(b"x" * 256)
    for letter, first, last in _CLASS_RANGES:
        table[first : last + 1] = letter * (last - first + 1)
    return bytes(table)


_CLASSES = _class_table()
_ASCII_CLASSES = b"ldpUns"
_ASCII_NUMBERS = bytes(_ASCII_CLASSES.find(letter) + 1 for letter in _CLASSES)
"""From a byte to the number of its class, below 16; 0 for all that are not ASCII."""


def _numbered(change: bytes) -> bytes:
    """Return the byte that stands for a class or a change of class in numbers."""
    first, second = (_ASCII_CLASSES.find(change[place : place + 1]) + 1 for place in (0, 1))
    return bytes([first | (second << 4 if len(change) > 1 else 0)])


_SINGLE_WEIGHTS = tuple((_numbered(name), w) for name, w in _ASCII_WEIGHTS if len(name) == 1)
_CHANGE_WEIGHTS = tuple((_numbered(name), w) for name, w in _ASCII_WEIGHTS if len(name) == 2)


def estimate_text(text: str) -> int:
    """Return the estimated tokens of `text`; 0 for an empty one, at least 1 for any other."""
    data = text.encode("utf-8", "replace")
    tokens = _weigh_ascii(data)
    strict = len(text) / 4
    if not text.isascii():
        classes = data.translate(_CLASSES)
        tokens += _weigh(classes, _WIDE_WEIGHTS)
        strict += _weigh(classes, _STRICT_WEIGHTS)
    return math.ceil(max(tokens, STRICT_SHARE * strict))


def _weigh_ascii(data: bytes) -> float:
    """Return the sum of the ASCII weights of all classes and changes found.

    Changes are counted as bytes too, which takes half the time of looking for two: the upper half
    of each byte is the number of the next byte's class.
    """
    numbers = data.translate(_ASCII_NUMBERS)
    chain = int.from_bytes(numbers, "little")
    changes = (chain | chain >> 8 << 4).to_bytes(len(data), "little")
    return _weigh(changes, _CHANGE_WEIGHTS, _weigh(numbers, _SINGLE_WEIGHTS))


def _weigh(classes: bytes, weights: tuple[tuple[bytes, float], ...], tokens: float = 0.0) -> float:
    """Return `tokens` and the sum of the weights of all patterns found."""
    count = classes.count
    for pattern, weight in weights:
        tokens += weight * count(pattern)
    return tokens


def _estimate_content(content: Any) -> int:
    """Return the tokens of a content value: text, a part, or a list of parts.

    An image counts `IMAGE_TOKENS` whatever its size, also as a data URL in the text of a part;
    base64 in a plain string is text.
    """
    if isinstance(content, str):
        return estimate_text(content)
    if isinstance(content, Mapping):
        if is_image(content):
            return IMAGE_TOKENS
        text = content.get("text")
        if isinstance(text, str):
            rest, images = replace_images(text, "")
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
    because counting too little overflows while counting too much only compacts early. A short
    request says little about a long one: `PRIOR_TOKENS` are taken to have been estimated rightly.
    """

    ratio: float = 1.0
    reports: int = 0

    def observe(self, estimated: int, real: int) -> Calibration:
        """Return the calibration after a request of `estimated` tokens was counted as `real`.

        A report without a positive count on both sides is ignored.
        """
        if estimated <= 0 or real <= 0:
            return self
        ratio = (real + PRIOR_TOKENS) / (estimated + PRIOR_TOKENS)
        seen = min(max(ratio, SMALLEST_RATIO), LARGEST_RATIO)
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
        """Return what `to_dict` gave; without a ratio there was no report yet."""
        if not data or "ratio" not in data:
            return cls()
        return cls(float(data["ratio"]), int(data.get("reports", 1)))


@dataclass(frozen=True)
class UsageAnchor:
    """The provider's count of one request, from which the count of the next one is told.

    It holds while the view has the `generation` of that request: then the next one is the same
    and what was appended since. `estimated` is our estimate of what was counted as `prompt`, and
    of the `cleared` tokens that the provider left out of what it read, and leaves out again.
    """

    prompt: int
    estimated: int
    generation: int
    cleared: int = 0

    def count(self, estimated: int, calibration: Calibration) -> int:
        """Return what the provider would count for a request of `estimated` tokens.

        A count that no calibration would believe, such as one that leaves cached tokens out, is
        taken for the nearest that one would.
        """
        whole = self.prompt + self.cleared
        believed = min(max(whole, self._at(SMALLEST_RATIO)), self._at(LARGEST_RATIO))
        since = (estimated - self.estimated) * calibration.ratio
        return max(0, math.ceil(believed + since - self.cleared))

    def contradicts(self, prompt: int, estimated: int) -> bool:
        """Return whether `prompt` cannot be what a later request of `estimated` tokens held, what
        the provider left out of it included.

        One that only grew has not shrunk: then cached tokens, which fill the window, were left out.
        """
        grown = estimated - self.estimated
        whole = self.prompt + self.cleared
        return grown >= 0 and prompt < SHRUNK_SHARE * whole + SMALLEST_RATIO * grown

    def _at(self, ratio: float) -> float:
        return (self.estimated + PRIOR_TOKENS) * ratio - PRIOR_TOKENS

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> UsageAnchor | None:
        """Return the anchor that a stored one holds, None when a pass or a switch cleared it."""
        if not data.keys() >= {"prompt", "estimated", "generation"}:
            return None
        names = ("prompt", "estimated", "generation", "cleared")
        return cls(*(int(data.get(name, 0)) for name in names))
