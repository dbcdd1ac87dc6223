"""A model's reasoning: kept opaque and byte-exact, and given back only to the route it came from.

Stored in a message as `_reasoning`, a JSON text `{"route": ..., "fields": {...}}` with the fields
as the server named them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import orjson

from agent.providers.text import join_text

_TEXT_FIELDS = ("reasoning_content", "reasoning")
_DETAILS = "reasoning_details"
_GROWING = frozenset({"text", "summary", "data"})


class ReasoningPieces:
    """Collects reasoning from the pieces of an answer."""

    def __init__(self) -> None:
        self._texts: dict[str, list[str]] = {}
        self._details: list[dict[str, Any]] = []

    def add(self, said: Mapping[str, Any]) -> str:
        """Take in the reasoning of one piece; return its readable text.

        Servers that send the text under two names send it twice: it is returned once.
        """
        shown = ""
        for name in _TEXT_FIELDS:
            text = said.get(name)
            if isinstance(text, str) and text:
                self._texts.setdefault(name, []).append(text)
                shown = shown or text
        details = said.get(_DETAILS)
        if isinstance(details, list):
            for detail in details:
                if isinstance(detail, Mapping):
                    self._add_detail(detail)
        return shown

    def _add_detail(self, detail: Mapping[str, Any]) -> None:
        """Append a detail, or join it to the one before when it continues that one."""
        last = self._details[-1] if self._details else None
        if last is None or _identity(last) != _identity(detail):
            self._details.append(dict(detail))
            return
        for name, value in detail.items():
            grows = name in _GROWING and isinstance(value, str) and isinstance(last.get(name), str)
            if grows:
                last[name] += value
            elif value is not None:
                last[name] = value

    def whole(self, route: str) -> str:
        """Return the value of `_reasoning`, empty when the model gave no reasoning."""
        fields: dict[str, Any] = {name: join_text(texts) for name, texts in self._texts.items()}
        if self._details:
            fields[_DETAILS] = self._details
        if not fields:
            return ""
        return orjson.dumps({"route": route, "fields": fields}).decode()


def _identity(detail: Mapping[str, Any]) -> tuple[Any, Any]:
    return detail.get("index"), detail.get("type")


def replayed(reasoning: Any, route: str) -> dict[str, Any]:
    """Return the fields to send back with a message: none unless the same route made them.

    Details hold everything the texts do, so they are sent alone.
    """
    if not isinstance(reasoning, str) or not reasoning:
        return {}
    kept = orjson.loads(reasoning)
    if kept.get("route") != route:
        return {}
    fields: dict[str, Any] = kept["fields"]
    return {_DETAILS: fields[_DETAILS]} if _DETAILS in fields else fields
