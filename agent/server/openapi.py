"""The OpenAPI description, built from the route table."""

from __future__ import annotations

import re
from collections.abc import Sequence
from importlib.metadata import version
from typing import Any

from pydantic.json_schema import models_json_schema

from agent.server.routing import Endpoint, Nothing
from agent.server.stream import EventStream

_REF = "#/components/schemas/{model}"
_PART = re.compile(r"{(\w+)(?::\w+)?}")
_FAULT = {
    "type": "object",
    "required": ["error"],
    "properties": {
        "error": {
            "type": "object",
            "required": ["type", "message", "code"],
            "properties": {name: {"type": "string"} for name in ("type", "message", "code")},
        }
    },
}
_ALWAYS = {
    400: "The request makes no sense.",
    401: "The token is missing or wrong.",
    403: "The host or the origin is not let in.",
}
_SOMETIMES = {
    404: "There is no such thing.",
    409: "It cannot be done as things stand.",
    413: "The body is too large.",
    429: "Enough turns run and wait; `Retry-After` says when to come back.",
    502: "The model provider failed.",
    503: "The server is stopping, or its store or model cannot be reached.",
    504: "The model provider said nothing in time.",
}


def describe(endpoints: Sequence[Endpoint], served: Sequence[str]) -> dict[str, Any]:
    """Return the description of a route table; `served` are the models that requests may name."""
    endpoints = [one for one in endpoints if not one.is_endless]
    models = {
        model
        for one in endpoints
        for model in (one.body, one.query)
        if model not in (None, Nothing)
    }
    ordered = sorted((model for model in models if model), key=lambda model: model.__name__)
    _map, schemas = models_json_schema(
        [(model, "validation") for model in ordered], ref_template=_REF
    )
    definitions = schemas.get("$defs", {})
    for shape in definitions.values():
        if "model" in shape.get("properties", {}):
            shape["properties"]["model"]["enum"] = list(served)
    paths: dict[str, dict[str, Any]] = {}
    for one in endpoints:
        operation = _operation(one, definitions)
        paths.setdefault(_PART.sub(r"{\1}", one.path), {})[one.method.lower()] = operation
    return {
        "openapi": "3.1.0",
        "info": {"title": "Hermes Continuum", "version": version("hermes-continuum")},
        "paths": paths,
        "components": {
            "schemas": {**definitions, "Fault": _FAULT},
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
        "security": [{"token": []}],
    }


def _operation(one: Endpoint, definitions: dict[str, Any]) -> dict[str, Any]:
    operation: dict[str, Any] = {
        "summary": one.about,
        "operationId": one.name,
        "parameters": [*_path_parameters(one), *_query_parameters(one, definitions)],
        "responses": _responses(one),
    }
    if one.body is not None:
        schema = {"$ref": _REF.format(model=one.body.__name__)}
        content = {"application/json": {"schema": schema}}
        operation["requestBody"] = {"required": True, "content": content}
    if one.is_open:
        operation["security"] = []
    return operation


def _path_parameters(one: Endpoint) -> list[dict[str, Any]]:
    return [
        {"name": name, "in": "path", "required": True, "schema": {"type": "string", "minLength": 1}}
        for name in _PART.findall(one.path)
    ]


def _query_parameters(one: Endpoint, definitions: dict[str, Any]) -> list[dict[str, Any]]:
    shape = definitions.get(one.query.__name__, {})
    required = shape.get("required", [])
    return [
        {"name": name, "in": "query", "required": name in required, "schema": schema}
        for name, schema in shape.get("properties", {}).items()
    ]


def _responses(one: Endpoint) -> dict[str, Any]:
    kinds = [one.media_type] if one.media_type else []
    kinds += [EventStream.media_type] if one.is_stream else []
    done: dict[str, Any] = {"description": "Done."}
    if kinds:
        done["content"] = {kind: {} for kind in dict.fromkeys(kinds)}
    fault = {"application/json": {"schema": {"$ref": _REF.format(model="Fault")}}}
    told = _ALWAYS | {status: _SOMETIMES[status] for status in one.faults}
    return {
        str(one.status): done,
        **{str(status): {"description": text, "content": fault} for status, text in told.items()},
    }
