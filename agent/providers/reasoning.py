"""A model's reasoning: kept opaque and byte-exact, and given back only to the route it came from.

Stored in a message as `_reasoning`, a JSON text `{"route": ..., "fields": {...}}` with the fields
as the server named them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import orjson

from agent.base.messages import clean_value
from agent.providers.text import join_text

_TEXT_FIELDS = ("reasoning_content", "reasoning")
_DETAILS = "reasoning_details"
_SEALS = ("data", "signature")
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
        return keep_fields(fields, route)


def _identity(detail: Mapping[str, Any]) -> tuple[Any, Any]:
    return detail.get("index"), detail.get("type")


def replayed(reasoning: Any, route: str, *, bound: bool = True) -> dict[str, Any]:
    """Return the fields to send back with a message: none unless the same route made them.

    Details hold everything the texts do, so they are sent alone. With `bound` False what is
    encrypted or signed is left out, and all that came with it.
    """
    fields = kept_fields(reasoning, route)
    if _DETAILS not in fields:
        return fields
    if not bound and any(map(_is_bound, fields[_DETAILS])):
        return {}
    return {_DETAILS: fields[_DETAILS]}


def bound_to(route: str, wire: str) -> str:
    """Return what opaque parts are bound to: the same model by another wire cannot take them."""
    return f"{route} ({wire})"


def kept_fields(reasoning: Any, route: str) -> dict[str, Any]:
    """Return what `keep_fields` made for that route; nothing from any other."""
    if not isinstance(reasoning, str) or not reasoning:
        return {}
    kept = orjson.loads(reasoning)
    fields: dict[str, Any] = kept["fields"] if kept.get("route") == route else {}
    return fields


def keep_fields(fields: Mapping[str, Any], route: str) -> str:
    """Return the value of `_reasoning` that holds the fields; empty for none."""
    if not fields:
        return ""
    kept = {"route": route, "fields": dict(fields)}
    try:
        return orjson.dumps(kept).decode()
    except TypeError:
        return orjson.dumps(clean_value(kept)).decode()


def _is_bound(detail: Mapping[str, Any]) -> bool:
    """Return whether a detail can be checked by its maker: it is encrypted or signed."""
    return any(detail.get(name) for name in _SEALS) or "encrypted" in str(detail.get("type"))
