"""Which tools there are. A new family is a file of its own and one line here."""

from __future__ import annotations

import re
from collections.abc import Iterable

from agent.base.errors import UsageError
from agent.tools.files import PATCH_FILE, READ_FILE, WRITE_FILE
from agent.tools.memory import MEMORY
from agent.tools.protocol import Tool
from agent.tools.recall import RECALL
from agent.tools.search import SEARCH_FILES
from agent.tools.shell import SHELL
from agent.tools.todo import TODO

_ALWAYS = (SHELL, READ_FILE, WRITE_FILE, PATCH_FILE, SEARCH_FILES, TODO)
_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")


def builtin_tools(*, recall: bool, memory: bool) -> dict[str, Tool]:
    """Return our own tools by name, in the order in which they are offered."""
    optional = [tool for tool, wanted in ((RECALL, recall), (MEMORY, memory)) if wanted]
    return add_tools({}, (*_ALWAYS, *optional))


def add_tools(tools: dict[str, Tool], more: Iterable[Tool]) -> dict[str, Tool]:
    """Return `tools` and after them `more`, which an embedding caller brings.

    Raises: UsageError for a name that providers refuse or that is taken, and for parameters that
    do not describe an object.
    """
    added = dict(tools)
    for tool in more:
        if not _NAME.fullmatch(tool.name):
            raise UsageError(
                f"tool name {tool.name!r} must be 1 to 64 letters, digits, '_' or '-'; rename it"
            )
        if tool.name in added:
            raise UsageError(f"there are two tools named {tool.name!r}; rename one")
        if tool.parameters.get("type") != "object":
            raise UsageError(f"parameters of tool {tool.name!r} must be a schema of type 'object'")
        added[tool.name] = tool
    return added
