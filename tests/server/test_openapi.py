"""The description is the route table's, whole."""

from __future__ import annotations

import json
from typing import Any

from agent.server.app import ENDPOINTS
from agent.server.openapi import describe


def references(value: Any) -> set[str]:
    """Return every `$ref` in a JSON value."""
    if isinstance(value, dict):
        found = {value["$ref"]} if "$ref" in value else set()
        return found.union(*map(references, value.values()))
    if isinstance(value, list):
        return set().union(*map(references, value))
    return set()


def test_every_route_that_ends_is_described_and_no_other() -> None:
    described = describe(ENDPOINTS, ["a-model"])
    told = {(method.upper(), path) for path, one in described["paths"].items() for method in one}
    assert told == {
        (one.method, one.path.replace(":path", "")) for one in ENDPOINTS if not one.is_endless
    }
    assert {one.path for one in ENDPOINTS if one.is_endless} == {"/api/sessions/{id}/events"}


def test_every_reference_leads_somewhere_and_every_route_says_what_it_does() -> None:
    described = describe(ENDPOINTS, ["a-model"])
    schemas = described["components"]["schemas"]
    named = {f"#/components/schemas/{name}" for name in schemas}
    assert references(described) <= named
    operations = [one for path in described["paths"].values() for one in path.values()]
    assert all(operation["summary"].endswith(".") for operation in operations)
    names = [operation["operationId"] for operation in operations]
    assert len(names) == len(set(names))
    assert schemas["ChatRequest"]["properties"]["model"]["enum"] == ["a-model"]
    json.dumps(described)
