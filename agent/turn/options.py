"""What an agent is made with: its settings, and what only a program can hand over."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from agent.base.clock import SYSTEM_CLOCK, Clock
from agent.base.events import EventSink
from agent.base.record import dataclass
from agent.base.settings import ModelSettings, Settings
from agent.providers.protocol import Provider
from agent.sessions.protocol import SessionStore
from agent.tools.protocol import Tool


@dataclass(frozen=True)
class AgentOptions:
    """What an agent is made with beside its settings; see `AIAgent` for each."""

    session_db: SessionStore | None = None
    session_id: str | None = None
    tools: Sequence[Tool] | None = None
    builtin_tools: bool = True
    on_event: EventSink | None = None
    confirm: Callable[[str, str], bool] | None = None
    platform: str = "python"
    quiet_mode: bool = False
    skip_context_files: bool = False
    skip_memory: bool = False
    cwd: Path | None = None
    provider: Provider | None = None
    clock: Clock = SYSTEM_CLOCK


def with_model(settings: Settings, given: Mapping[str, Any]) -> Settings:
    """Return settings in which the non-empty values of `given` replace those of the model."""
    changes = {key: value for key, value in given.items() if value}
    model: ModelSettings = dataclasses.replace(settings.model, **changes)
    return dataclasses.replace(settings, model=model)
