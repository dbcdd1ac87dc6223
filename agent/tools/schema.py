"""Checks a call's arguments against the part of JSON Schema that tool parameters use.

Knows type, enum, properties, required, additionalProperties false, items, minimum, maximum.
Other keywords are left to the tool: what cannot be judged here is never refused here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from difflib import get_close_matches
from typing import Any

import orjson

from agent.base.errors import ToolError
from agent.tools.text import one_line

_IS_TYPE: Mapping[str, Callable[[Any], bool]] = {
    "object": lambda value: isinstance(value, dict),
    "array": lambda value: isinstance(value, list),
    "string": lambda value: isinstance(value, str),
    "boolean": lambda value: isinstance(value, bool),
    "integer": lambda value: isinstance(value, int) and not isinstance(value, bool),
    "number": lambda value: isinstance(value, int | float) and not isinstance(value, bool),
    "null": lambda value: value is None,
}


def read_arguments(raw: Any, parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments of a call, checked; `raw` is JSON text, an object, or empty for none.

    Raises: ToolError that names the place, the value and what is expected.
    """
    arguments = _decode(raw) if isinstance(raw, str) else raw or {}
    if isinstance(arguments, dict):
        arguments = _without_nulls(arguments, parameters)
    check_value(arguments, {"type": "object", **parameters}, "arguments")
    return dict(arguments)


def _without_nulls(arguments: dict[str, Any], parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Return arguments without nulls that mean "left out": some models send every key."""
    known, required = parameters.get("properties", {}), parameters.get("required", ())
    return {
        key: value
        for key, value in arguments.items()
        if value is not None or key in required or "null" in _types(known.get(key, {}))
    }


def _types(schema: Mapping[str, Any]) -> list[str]:
    """Return the names that `type` allows; empty when it says nothing."""
    wanted = schema.get("type", [])
    return [wanted] if isinstance(wanted, str) else list(wanted)


def _decode(text: str) -> Any:
    """Return the JSON value of `text`; white space alone means no arguments."""
    if not text.strip():
        return {}
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError as error:
        raise ToolError(
            f"arguments {one_line(text, limit=200)!r} are not valid JSON ({error}); "
            "send one JSON object"
        ) from error


def check_value(value: Any, schema: Mapping[str, Any], place: str) -> None:
    """Check one value. Raises: ToolError for the first thing that is wrong."""
    _check_type(value, schema, place)
    if "enum" in schema and value not in schema["enum"]:
        raise _wrong(place, value, f"one of {_listed(schema['enum'])}")
    if isinstance(value, dict):
        _check_object(value, schema, place)
    elif isinstance(value, list) and isinstance(schema.get("items"), dict):
        for index, item in enumerate(value):
            check_value(item, schema["items"], f"{place}[{index}]")
    elif _IS_TYPE["number"](value):
        _check_range(value, schema, place)


def _check_type(value: Any, schema: Mapping[str, Any], place: str) -> None:
    """Check `type`, a name or a list of names; unknown names accept everything."""
    names = _types(schema)
    if names and not any(_IS_TYPE.get(name, lambda _value: True)(value) for name in names):
        raise _wrong(place, value, f"of type {' or '.join(names)}")


def _check_object(value: dict[str, Any], schema: Mapping[str, Any], place: str) -> None:
    """Check required keys, unknown keys where they are refused, and each known value."""
    known: Mapping[str, Any] = schema.get("properties", {})
    missing = [key for key in schema.get("required", ()) if key not in value]
    if missing:
        raise ToolError(
            f"{place}: missing {_listed(missing)}; given: {_listed(value) or 'nothing'}"
        )
    for key, item in value.items():
        if key in known:
            check_value(item, known[key], key if place == "arguments" else f"{place}.{key}")
        elif schema.get("additionalProperties") is False:
            nearest = get_close_matches(key, known, n=1)
            hint = f"did you mean {nearest[0]!r}?" if nearest else f"known: {_listed(known)}"
            raise ToolError(f"{place}: unknown key {key!r}; {hint}")


def _check_range(value: float, schema: Mapping[str, Any], place: str) -> None:
    """Check `minimum` and `maximum`, both inclusive."""
    if value < schema.get("minimum", value):
        raise _wrong(place, value, f"at least {schema['minimum']}")
    if value > schema.get("maximum", value):
        raise _wrong(place, value, f"at most {schema['maximum']}")


def _wrong(place: str, value: Any, wanted: str) -> ToolError:
    """Return the error for a value that is not what the schema wants."""
    return ToolError(f"{place} is {one_line(repr(value), limit=120)}; it must be {wanted}")


def _listed(names: Any) -> str:
    """Return names quoted and separated by commas."""
    return ", ".join(repr(name) for name in names)
