"""Where a path that the model wrote really leads, and whether that is inside the working folder.

Symbolic links, `..` and `~` are resolved first: what counts is the file that would be touched.
"""

from __future__ import annotations

import os
from pathlib import Path

from agent.base.errors import ToolError
from agent.tools.protocol import ToolContext


def resolve_path(path: str, context: ToolContext) -> Path:
    """Return the real absolute path; relative ones start at the working folder.

    Raises: ToolError for an empty path, one with a NUL, or the home of nobody.
    """
    if not path.strip() or "\0" in path:
        raise ToolError(f"path {path!r} names no file; give one inside the working folder")
    try:
        expanded = Path(path).expanduser()
    except RuntimeError as error:
        raise ToolError(f"path {path!r} names no file: {error}") from error
    return Path(os.path.realpath(context.cwd / expanded))


def is_inside(path: Path, context: ToolContext) -> bool:
    """Return whether a resolved path is the working folder, an allowed folder, or below one."""
    folders = (
        context.cwd,
        *(Path(folder).expanduser() for folder in context.settings.allowed_paths),
    )
    return any(path.is_relative_to(os.path.realpath(folder)) for folder in folders)


def shown_path(path: Path, context: ToolContext) -> str:
    """Return a resolved path as people and models read it: relative where it is inside."""
    folder = os.path.realpath(context.cwd)
    return str(path.relative_to(folder)) if path.is_relative_to(folder) else str(path)
