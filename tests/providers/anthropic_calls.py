"""Stored rows and requests that the tests of the Anthropic wire share."""

from __future__ import annotations

from typing import Any

import orjson

from agent.providers.http_model import HttpModel
from agent.providers.protocol import CallWatch, Limits, ModelReply, ModelRequest

LIMITS = Limits(connect_s=5, first_byte_s=10, idle_s=10, total_s=20)
Messages = list[dict[str, Any]]


def stored(*messages: dict[str, Any]) -> Messages:
    return [
        message | {"_row_id": 100 + place, "_seq": place}
        for place, message in enumerate(messages, start=1)
    ]


def ask(provider: HttpModel, messages: Messages, **fields: Any) -> ModelReply:
    limits = fields.pop("limits", LIMITS)
    request = ModelRequest(messages=messages, **{"max_tokens": 4_000} | fields)
    return provider.complete(request, limits=limits, watch=CallWatch())


def body_of(provider: HttpModel, messages: Messages, **fields: Any) -> dict[str, Any]:
    request = ModelRequest(messages=messages, **{"max_tokens": 4_000} | fields)
    body: dict[str, Any] = orjson.loads(provider._body(request, frozenset()))
    return body
