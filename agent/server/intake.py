"""Requests as values: bodies within the limit, JSON that can be stored, fields of right type."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, TypeVar

import orjson
from pydantic import BaseModel, ValidationError
from starlette.requests import Request

from agent.base.messages import clean_value
from agent.server.faults import Fault, refused

_DEEPEST = 100
_LARGEST_NUMBER = 2**63
_SHOWN_FAULTS = 3
M = TypeVar("M", bound=BaseModel)


async def read_body(request: Request, most_bytes: int) -> bytes:
    """Return the body. Raises: Fault 413 as soon as it is known to be too large."""
    announced = request.headers.get("content-length", "")
    if announced.isdigit() and int(announced) > most_bytes:
        raise _too_large(most_bytes)
    parts, size = [], 0
    async for part in request.stream():
        size += len(part)
        if size > most_bytes:
            raise _too_large(most_bytes)
        parts.append(part)
    return b"".join(parts)


def _too_large(most_bytes: int) -> Fault:
    return Fault(
        413,
        f"the body is larger than {most_bytes} bytes (server.max_body_bytes); send less",
        code="body_too_large",
    )


def read_json(raw: bytes) -> Any:
    """Return the JSON value of a body, clean and of a kind that can be written again.

    Raises: Fault 400 for text that is no UTF-8 or no JSON, deep nesting and huge numbers.
    """
    try:
        value = orjson.loads(raw)
    except orjson.JSONDecodeError as error:
        value = _read_surrogates(raw, error)
    _require_storable(value)
    return clean_value(value)


def _read_surrogates(raw: bytes, error: ValueError) -> Any:
    """Return what the slow parser reads: it takes the halves of pairs that clients cut apart."""
    try:
        return json.loads(raw.decode("utf-8"), parse_constant=_refuse_constant)
    except UnicodeDecodeError as fault:
        raise refused(
            f"the body is not UTF-8 at byte {fault.start}; send it as UTF-8", code="invalid_utf8"
        ) from None
    except (ValueError, RecursionError):
        raise refused(f"the body is not JSON: {error}", code="invalid_json") from None


def _refuse_constant(name: str) -> Any:
    raise ValueError(name)


def _require_storable(value: Any) -> None:
    level, depth = [value], 0
    while level:
        depth += 1
        if depth > _DEEPEST:
            raise refused(f"the body is nested deeper than {_DEEPEST} levels", code="too_deep")
        inner: list[Any] = []
        for item in level:
            if isinstance(item, dict):
                inner.extend(item.values())
            elif isinstance(item, list):
                inner.extend(item)
            elif isinstance(item, int) and abs(item) >= _LARGEST_NUMBER:
                raise refused("a number in the body has more than 63 bits", code="invalid_number")
        level = inner


def checked(model: type[M], value: Any, *, where: str) -> M:
    """Return a value as a model. Raises: Fault 400 that names the first fields that are wrong."""
    if not isinstance(value, Mapping):
        raise refused(f"the {where} must be a JSON object, not {_kind_of(value)}")
    try:
        return model.model_validate(value)
    except ValidationError as error:
        faults = error.errors(include_url=False, include_context=False, include_input=False)
        told = "; ".join(_told(fault, where) for fault in faults[:_SHOWN_FAULTS])
        more = f"; and {len(faults) - _SHOWN_FAULTS} more" if len(faults) > _SHOWN_FAULTS else ""
        raise refused(f"{told}{more}") from None


def _told(fault: Mapping[str, Any], where: str) -> str:
    place = ".".join(str(step) for step in fault["loc"]) or where
    return f"{place}: {fault['msg'].removeprefix('Value error, ')}"


def _kind_of(value: Any) -> str:
    return "null" if value is None else type(value).__name__
