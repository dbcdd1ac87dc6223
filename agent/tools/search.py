"""The tool `search_files`: files by name and lines by regular expression."""

from __future__ import annotations

import json
import math
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from agent.base.errors import ToolError
from agent.tools import scan
from agent.tools.paths import resolve_path, shown_path
from agent.tools.process import Ending, run_group
from agent.tools.protocol import Access, Tool, ToolContext

LIMIT = 100
_LARGEST_LIMIT = 1_000
_SECONDS = 20.0
_STOPPED = {
    "": "",
    "limit": "\n[stopped at {limit} results; narrow the search or raise limit]",
    "time": "\n[stopped after {seconds:g} s, not all files were looked at; narrow the search]",
}


def _search(arguments: Mapping[str, Any], context: ToolContext) -> str:
    """Return matching paths, or matching lines as `path:line: text`, and why it ended early."""
    root = resolve_path(arguments.get("path", "."), context)
    shown = shown_path(root, context)
    if not root.exists():
        raise ToolError(f"no folder or file {shown!r} to search in")
    pattern, glob = arguments.get("pattern", ""), (arguments.get("glob") or "*").removeprefix("./")
    try:
        re.compile(pattern)
    except re.error as error:
        raise ToolError(f"pattern {pattern!r} is not a regular expression: {error}") from error
    prefix = "" if shown == "." else f"{shown.rstrip('/')}/"
    request = {
        "root": str(root),
        "prefix": shown.removesuffix(root.name) if root.is_file() else prefix,
        "pattern": pattern,
        "glob": glob,
        "limit": int(arguments.get("limit", LIMIT)),
        "seconds": min(_SECONDS, context.settings.timeout_seconds or math.inf),
    }
    found = _scan(request, context)
    if not found["lines"]:
        wanted = f"line matches {pattern!r}" if pattern else "file"
        lines = f"no {wanted} in {shown!r} ({glob})"
    else:
        lines = "\n".join(found["lines"])
    return lines + _STOPPED[found["stopped"]].format_map(request)


def _scan(request: dict[str, Any], context: ToolContext) -> dict[str, Any]:
    """Run the scan in a child. Raises: ToolError when it has to be killed or fails."""
    finished = run_group(
        [sys.executable, "-I", "-S", str(scan.__file__), json.dumps(request)],
        cwd=Path(context.cwd),
        cancel=context.cancel,
        timeout_s=request["seconds"] + 1,
    )
    text = finished.capture.text()
    if finished.ending is not Ending.EXITED:
        raise ToolError(
            f"search {finished.ending.value} in one file; use a simpler pattern than "
            f"{request['pattern']!r}"
        )
    if finished.code != 0:
        raise ToolError(f"search failed: {text.strip().rpartition(chr(10))[2]}")
    result: dict[str, Any] = json.loads(text)
    return result


SEARCH_FILES = Tool(
    name="search_files",
    description=(
        "Find files by name (glob) and, with a pattern, the lines in them that match a Python "
        "regular expression. Version control, virtual environments, node_modules, binary files "
        "and symbolic links are left out."
    ),
    parameters={
        "type": "object",
        "properties": {
            "pattern": {"type": "string", "description": "Left out: file names are listed."},
            "glob": {
                "type": "string",
                "description": "Such as *.py, or src/**/test_*.py; all files if left out.",
            },
            "path": {
                "type": "string",
                "description": "Folder or file, the working folder if left out.",
            },
            "limit": {
                "type": "integer",
                "minimum": 1,
                "maximum": _LARGEST_LIMIT,
                "description": f"Most results, {LIMIT} if left out.",
            },
        },
        "additionalProperties": False,
    },
    access=Access.READ,
    run=_search,
    describe=lambda arguments: (
        f"search {arguments.get('path', '.')} for {arguments.get('pattern') or 'files'}"
    ),
    paths=lambda arguments: [arguments.get("path", ".")],
)
