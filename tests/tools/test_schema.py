from __future__ import annotations

from typing import Any

import pytest

from agent.base.errors import ToolError
from agent.tools.schema import read_arguments

PARAMETERS = {
    "type": "object",
    "properties": {
        "path": {"type": "string"},
        "limit": {"type": "integer", "minimum": 1, "maximum": 9},
        "share": {"type": "number"},
        "deep": {"type": "boolean"},
        "either": {"type": ["string", "null"]},
        "tasks": {
            "type": "array",
            "items": {
                "type": "object",
                "properties": {"status": {"type": "string", "enum": ["open", "done"]}},
                "required": ["status"],
                "additionalProperties": False,
            },
        },
    },
    "required": ["path"],
    "additionalProperties": False,
}


@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        ('{"path": "a"}', {"path": "a"}),
        ({"path": "a"}, {"path": "a"}),
        ('{"path": "", "limit": 9, "share": 2, "deep": true}',
         {"path": "", "limit": 9, "share": 2, "deep": True}),
        ('{"path": "a", "tasks": [{"status": "done"}]}',
         {"path": "a", "tasks": [{"status": "done"}]}),
        ('{"path": "a", "limit": null, "either": null}', {"path": "a", "either": None}),
    ],
    ids=["text", "object", "all types", "nested", "nulls left out"],
)  # fmt: skip
def test_arguments_that_fit_the_schema_are_returned(raw: Any, expected: dict[str, Any]) -> None:
    assert read_arguments(raw, PARAMETERS) == expected


@pytest.mark.parametrize("raw", ["", "  ", None, {}, "{}"])
def test_nothing_means_no_arguments(raw: Any) -> None:
    assert read_arguments(raw, {"type": "object", "properties": {}}) == {}


@pytest.mark.parametrize(
    ("raw", "message"),
    [
        ("[1]", "arguments is [1]; it must be of type object"),
        ({}, "arguments: missing 'path'; given: nothing"),
        ('{"limit": 1}', "arguments: missing 'path'; given: 'limit'"),
        ('{"path": null}', "path is None; it must be of type string"),
        ('{"path": 7}', "path is 7; it must be of type string"),
        ('{"path": "a", "limit": true}', "limit is True; it must be of type integer"),
        ('{"path": "a", "limit": 1.5}', "limit is 1.5; it must be of type integer"),
        ('{"path": "a", "limit": 0}', "limit is 0; it must be at least 1"),
        ('{"path": "a", "limit": 10}', "limit is 10; it must be at most 9"),
        ('{"path": "a", "share": false}', "share is False; it must be of type number"),
        ('{"path": "a", "either": 1}', "either is 1; it must be of type string or null"),
        ('{"path": "a", "tasks": [{"status": "x"}]}',
         "tasks[0].status is 'x'; it must be one of 'open', 'done'"),
        ('{"path": "a", "tasks": [{}]}', "tasks[0]: missing 'status'; given: nothing"),
        ('{"paht": "a", "path": "a"}', "arguments: unknown key 'paht'; did you mean 'path'?"),
        ('{"zzz": "a", "path": "a"}',
         ("arguments: unknown key 'zzz'; "
          "known: 'path', 'limit', 'share', 'deep', 'either', 'tasks'")),
    ],
)  # fmt: skip
def test_a_fault_names_the_place_the_value_and_what_is_wanted(raw: Any, message: str) -> None:
    with pytest.raises(ToolError) as raised:
        read_arguments(raw, PARAMETERS)
    assert str(raised.value) == message


@pytest.mark.parametrize("raw", ['{"path": "a"', "path=a", '{"path": "\\ud800"}', '{"a": NaN}'])
def test_text_that_is_no_json_is_quoted_back(raw: str) -> None:
    with pytest.raises(ToolError, match=r"^arguments '.*' are not valid JSON \(.*\); send one"):
        read_arguments(raw, PARAMETERS)


def test_keywords_that_are_not_known_refuse_nothing() -> None:
    schema = {"properties": {"at": {"type": "instant", "pattern": "^x"}, "any": {"anyOf": []}}}
    assert read_arguments({"at": 1, "any": 2, "more": 3}, schema) == {"at": 1, "any": 2, "more": 3}
