"""What a tool is. One file a family; `registry.py` lists them, `runner.py` runs them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import field
from enum import Enum
from pathlib import Path
from typing import Any, Protocol

from agent.base.cancel import CancelToken
from agent.base.record import dataclass
from agent.base.settings import ToolSettings


class Access(Enum):
    """What a tool does to the world; approval depends on it.

    `OWN` changes only what the agent keeps for itself (its task list, its notes in `memory.md`),
    never a user's file, and is not asked for.
    """

    READ = "read"
    OWN = "own"
    WRITE = "write"
    EXECUTE = "execute"


class RowReader(Protocol):
    """What `recall` needs of the store, bound to one session (implemented by the agent)."""

    def search(self, query: str, *, limit: int) -> list[dict[str, Any]]:
        """Return matching accepted rows, best first: dicts with `_seq`, role, content."""
        ...

    def unseen(self, *, limit: int) -> list[tuple[int, str]]:
        """Return (seq, part) of rows that left the view and are likeliest to be asked for; an empty
        part is the whole row."""
        ...

    def rows(self, first_seq: int, last_seq: int) -> list[dict[str, Any]]:
        """Return accepted rows of a seq range, whole (blobs resolved), oldest first."""
        ...


@dataclass
class ToolContext:
    """What a tool may use while it runs.

    `cancel` is set when the turn is stopped: a running tool ends within 250 ms and leaves no
    child process. `state` is a per-agent dict for families that keep something between calls.
    """

    cwd: Path
    settings: ToolSettings
    cancel: CancelToken
    rows: RowReader | None = None
    memory_path: Path | None = None
    state: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Tool:
    """A callable that the model sees.

    `parameters` is a JSON schema of an object. `run(arguments, context)` returns the text the
    model reads and raises `ToolError` for a refusal or failure that the model should read.
    `describe(arguments)` is one line for people (approval, progress).
    `paths(arguments)` names the files a call touches, for approval; empty for none.
    """

    name: str
    description: str
    parameters: Mapping[str, Any]
    access: Access
    run: Callable[[Mapping[str, Any], ToolContext], str]
    describe: Callable[[Mapping[str, Any]], str]
    paths: Callable[[Mapping[str, Any]], list[str]] = lambda _arguments: []

    def schema(self) -> dict[str, Any]:
        """Return the OpenAI function schema of this tool."""
        return {
            "type": "function",
            "function": {
                "name": self.name,
                "description": self.description,
                "parameters": dict(self.parameters),
            },
        }
