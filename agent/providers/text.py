"""Text and JSON as servers really send them: with surrogate halves, split or left alone."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import orjson

from agent.base.messages import clean_text


def join_text(pieces: Sequence[str]) -> str:
    """Return the pieces as one clean text; surrogate halves that a server split are joined."""
    text = "".join(pieces)
    if clean_text(text) is text:
        return text
    return clean_text(text.encode("utf-16", "surrogatepass").decode("utf-16", "replace"))


def load_json(data: bytes) -> Any:
    """Return the JSON value; lone surrogates, which the quick parser refuses, are kept.

    Raises: ValueError when it is no JSON, or nested too deep to be read.
    """
    try:
        return orjson.loads(data)
    except orjson.JSONDecodeError:
        return _load_slowly(data)


def _load_slowly(data: bytes) -> Any:
    try:
        return json.loads(data.decode("utf-8", "replace"), strict=False)
    except RecursionError:
        raise ValueError("it is nested too deep") from None
