"""Each event's JSON, as surfaces read it."""

from __future__ import annotations

import json
from typing import Any

import pytest

from agent.base import events
from agent.base.events import Event

COMMON: dict[str, Any] = {"session_id": "s1", "turn_id": "t1", "at": 1.5}
SHAPES: dict[str, dict[str, Any]] = {
    "turn_started": {},
    "text_delta": {"text": "a"},
    "reasoning_delta": {"text": "a"},
    "tool_started": {"name": "read", "arguments": {"path": "a"}, "call_id": "c1"},
    "tool_finished": {"call_id": "c1", "ok": True, "bytes": 12, "duration_ms": 3},
    "approval_requested": {"call_id": "c1", "why": "writes outside the folder"},
    "usage": {
        "prompt": 90,
        "completion": 10,
        "cached": 80,
        "cache_write": 5,
        "cost": None,
        "context_used": 100,
        "context_limit": 8_192,
    },
    "compaction_started": {"pass_id": "p1", "trigger": "threshold", "strategy": "summary"},
    "compaction_progress": {"pass_id": "p1", "tokens_out": 40, "elapsed_s": 1.25},
    "compaction_finished": {
        "pass_id": "p1",
        "status": "committed",
        "failure_class": "",
        "tokens_before": 900,
        "tokens_after": 300,
        "messages_before": 40,
        "messages_after": 12,
        "duration_ms": 1_900,
        "coverage": 0.7,
    },
    "notice": {"level": "info", "text": "a"},
    "error": {"class": "auth", "text": "a"},
    "turn_finished": {"final_text": "a", "stop_reason": "stop"},
}
PYTHON_NAMES = {"class": "failure_class"}
CLASSES: dict[str, Any] = {
    kind.type: kind for kind in Event.__subclasses__() if kind.__module__ == events.__name__
}


def test_the_union_has_exactly_the_published_types() -> None:
    assert CLASSES.keys() == SHAPES.keys()


@pytest.mark.parametrize("name", SHAPES)
def test_each_event_has_its_published_shape(name: str) -> None:
    fields = {PYTHON_NAMES.get(key, key): value for key, value in SHAPES[name].items()}
    event = CLASSES[name](**COMMON, **fields)
    shape = {"type": name, **COMMON, **SHAPES[name]}
    assert event.as_dict() == shape
    assert json.loads(json.dumps(event.as_dict())) == shape


def test_the_type_comes_first_for_those_who_read_lines() -> None:
    assert next(iter(CLASSES["notice"](level="info", text="a").as_dict())) == "type"


def test_an_event_outside_a_turn_has_empty_common_fields() -> None:
    event = CLASSES["text_delta"](text="a")
    shape = {"type": "text_delta", "session_id": "", "turn_id": "", "at": 0.0, "text": "a"}
    assert event.as_dict() == shape
