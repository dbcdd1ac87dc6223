"""The one event union; terminal, web page, HTTP stream and chat platforms read nothing else.

Each class is one JSON shape; `as_dict` gives it. Names and fields are fixed by the public
interface; consumers ignore types they do not know.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import field
from typing import Any, ClassVar

from agent.base.record import dataclass


@dataclass(frozen=True, kw_only=True)
class Event:
    """Common fields. `at` is Unix epoch seconds; `turn_id` is empty outside a turn."""

    type: ClassVar[str]
    session_id: str = ""
    turn_id: str = ""
    at: float = 0.0

    def as_dict(self) -> dict[str, Any]:
        """Return the JSON object that every surface sends."""
        return {"type": self.type, **dataclasses.asdict(self)}


@dataclass(frozen=True, kw_only=True)
class TurnStarted(Event):
    type: ClassVar[str] = "turn_started"


@dataclass(frozen=True, kw_only=True)
class TextDelta(Event):
    type: ClassVar[str] = "text_delta"
    text: str


@dataclass(frozen=True, kw_only=True)
class ReasoningDelta(Event):
    type: ClassVar[str] = "reasoning_delta"
    text: str


@dataclass(frozen=True, kw_only=True)
class ToolStarted(Event):
    type: ClassVar[str] = "tool_started"
    name: str
    arguments: dict[str, Any] = field(default_factory=dict)
    call_id: str


@dataclass(frozen=True, kw_only=True)
class ToolFinished(Event):
    type: ClassVar[str] = "tool_finished"
    call_id: str
    ok: bool
    bytes: int
    duration_ms: int


@dataclass(frozen=True, kw_only=True)
class ApprovalRequested(Event):
    type: ClassVar[str] = "approval_requested"
    call_id: str
    why: str


@dataclass(frozen=True, kw_only=True)
class Usage(Event):
    """Tokens of one model call; `cost` in US dollars, None when the model's price is unknown."""

    type: ClassVar[str] = "usage"
    prompt: int
    completion: int
    cached: int
    cache_write: int = 0
    cost: float | None
    context_used: int
    context_limit: int


@dataclass(frozen=True, kw_only=True)
class CompactionStarted(Event):
    type: ClassVar[str] = "compaction_started"
    pass_id: str
    trigger: str
    strategy: str


@dataclass(frozen=True, kw_only=True)
class CompactionProgress(Event):
    type: ClassVar[str] = "compaction_progress"
    pass_id: str
    tokens_out: int
    elapsed_s: float


@dataclass(frozen=True, kw_only=True)
class CompactionFinished(Event):
    type: ClassVar[str] = "compaction_finished"
    pass_id: str
    status: str
    failure_class: str
    tokens_before: int | None
    tokens_after: int | None
    messages_before: int | None
    messages_after: int | None
    duration_ms: int
    coverage: float | None


@dataclass(frozen=True, kw_only=True)
class Notice(Event):
    """Something a person should know; `level` is info, warning or error."""

    type: ClassVar[str] = "notice"
    level: str
    text: str


@dataclass(frozen=True, kw_only=True)
class ErrorRaised(Event):
    """A turn failed; `failure_class` is shown as `class`."""

    type: ClassVar[str] = "error"
    failure_class: str
    text: str

    def as_dict(self) -> dict[str, Any]:
        """Return the JSON object, with the field named `class` as the interface asks."""
        shape = super().as_dict()
        shape["class"] = shape.pop("failure_class")
        return shape


@dataclass(frozen=True, kw_only=True)
class TurnFinished(Event):
    """`stop_reason`: stop, length, iterations, interrupted or error."""

    type: ClassVar[str] = "turn_finished"
    final_text: str
    stop_reason: str


EventSink = Callable[[Event], None]


def ignore_event(_event: Event) -> None:
    """The sink of callers that want no events."""
