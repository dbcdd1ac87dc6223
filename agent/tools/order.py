"""Which calls of one message may run at the same time.

A model may patch a file twice, or write a test and run it, in one message: such calls keep their
order. All others run side by side.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from agent.base.record import dataclass
from agent.tools.protocol import Access, Tool


@dataclass(frozen=True)
class Touch:
    """What a call will touch: its tool and the resolved paths it names."""

    tool: Tool
    paths: Sequence[Path] = ()


def must_wait(later: Touch, earlier: Touch) -> bool:
    """Return whether `later` may start only when `earlier`, before it in the message, has ended."""
    accesses = {later.tool.access, earlier.tool.access}
    if Access.OWN in accesses:
        return later.tool.name == earlier.tool.name
    if Access.WRITE not in accesses:
        return False
    return Access.EXECUTE in accesses or any(
        one.is_relative_to(other) or other.is_relative_to(one)
        for one in later.paths
        for other in earlier.paths
    )
