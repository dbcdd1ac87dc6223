"""Whether a call may run at once or a person is asked first. Decides only; `runner.py` acts on it.

The rule is a table: what each approval mode asks for by access. On top of it, in every mode but
`off`, a call that touches a path outside the working folder and the allowed ones is asked for.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from agent.base.record import dataclass
from agent.tools.paths import is_inside, resolve_path
from agent.tools.protocol import Access, Tool, ToolContext
from agent.tools.text import one_line

_ASKED = {
    "ask": frozenset({Access.WRITE, Access.EXECUTE}),
    "auto": frozenset({Access.EXECUTE}),
}


@dataclass(frozen=True)
class Allowed:
    """The call runs without a question."""


@dataclass(frozen=True)
class Ask:
    """A person decides; `why` is one line that says what would be done."""

    why: str


def decide(tool: Tool, arguments: Mapping[str, Any], context: ToolContext) -> Allowed | Ask:
    """Return whether a call with checked arguments is allowed or asked for.

    A writing tool that names no path could write anywhere, so `auto` asks for it too.
    Raises: ToolError when the call names a path that cannot be one.
    """
    paths = [resolve_path(path, context) for path in tool.paths(arguments)]
    mode = context.settings.approval
    if mode == "off" or tool.access is Access.OWN:
        return Allowed()
    deed = one_line(tool.describe(arguments))
    outside = [one_line(str(path)) for path in paths if not is_inside(path, context)]
    if outside:
        return Ask(f"{deed} (outside the working folder: {', '.join(outside)})")
    if tool.access in _ASKED[mode] or (tool.access is Access.WRITE and not paths):
        return Ask(deed)
    return Allowed()


def refusal(why: str, *, asked: bool) -> str:
    """Return the tool result of a call that was not allowed, for the model to act on.

    `asked` tells whether a person said no, or nobody could be asked.
    """
    if asked:
        return (
            f"refused by the user: {why}; nothing was done. Do not try it another way; "
            "ask what to do instead."
        )
    return (
        f"refused: {why}; this needs approval and nobody can be asked in this run. Nothing was "
        "done. Go on without it, or tell the user to allow it with tools.approval or --yolo."
    )
