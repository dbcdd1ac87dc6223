"""Program that `search.py` runs as a child: walks a folder, matches names and lines, prints JSON.

A process of its own because a regular expression can run for ever while it holds the
interpreter: a child can be killed. Stands alone: standard library only, no imports of ours.
"""

from __future__ import annotations

import fnmatch
import json
import os
import re
import sys
import time
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

SKIPPED_FOLDERS = frozenset({".git", ".hg", ".svn", ".venv", "__pycache__", "node_modules", "venv"})
LARGEST_BYTES = 64 * 1024 * 1024
_PROBE_BYTES = 8_192
_SHOWN_CHARS = 300


def matches_glob(path: str, glob: str) -> bool:
    """Return whether a relative path matches: a glob without `/` looks at the name alone, `**`
    stands for any number of folders."""
    if "/" not in glob:
        return fnmatch.fnmatchcase(path.rsplit("/", 1)[-1], glob)
    return _match_parts(path.split("/"), glob.split("/"))


def _match_parts(parts: list[str], globs: list[str]) -> bool:
    """Match path parts against glob parts from the left."""
    if not globs:
        return not parts
    if globs[0] == "**":
        return any(_match_parts(parts[start:], globs[1:]) for start in range(len(parts) + 1))
    return (
        bool(parts)
        and fnmatch.fnmatchcase(parts[0], globs[0])
        and _match_parts(parts[1:], globs[1:])
    )


def walk_files(root: Path) -> Iterator[tuple[str, Path]]:
    """Yield (path below `root`, path) of regular files by name; symbolic links are not followed:
    they may lead out of the folder."""
    for folder, names, files in os.walk(root):
        names[:] = sorted(name for name in names if name not in SKIPPED_FOLDERS)
        for name in sorted(files):
            path = Path(folder, name)
            if path.is_file() and not path.is_symlink():
                yield path.relative_to(root).as_posix(), path


def matching_lines(path: Path, pattern: re.Pattern[str]) -> Iterator[tuple[int, str]]:
    """Yield (line number, shown text) of a text file; nothing of a binary or a huge one."""
    with path.open("rb") as probe:
        if path.stat().st_size > LARGEST_BYTES or b"\0" in probe.read(_PROBE_BYTES):
            return
    with path.open(encoding="utf-8", errors="replace", newline="\n") as file:
        for number, line in enumerate(file, start=1):
            text = line.rstrip("\r\n")
            if found := pattern.search(text):
                yield number, _around(text, found.start())


def _around(text: str, at: int) -> str:
    """Return a line, or the part of a long one in which the match begins."""
    start = max(0, min(at - _SHOWN_CHARS // 3, len(text) - _SHOWN_CHARS))
    end = start + _SHOWN_CHARS
    return f"{'…' * (start > 0)}{text[start:end]}{'…' * (end < len(text))}"


def scan(request: dict[str, Any]) -> dict[str, Any]:
    """Return `lines` (at most `limit`, in order of path and line) and why it `stopped` early:
    "limit", "time" or "" when all was looked at."""
    deadline = time.monotonic() + request["seconds"]
    root, limit = Path(request["root"]), request["limit"]
    pattern = re.compile(request["pattern"]) if request["pattern"] else None
    files = [(root.name, root)] if root.is_file() else walk_files(root)
    lines: list[str] = []
    for name, path in files:
        shown = request["prefix"] + name
        if time.monotonic() > deadline:
            return {"lines": lines, "stopped": "time"}
        if not matches_glob(name, request["glob"]):
            continue
        try:
            found = matching_lines(path, pattern) if pattern else ()
            room = limit + 1 - len(lines)
            lines += [f"{shown}:{number}: {text}" for number, text in islice(found, room)]
        except OSError:
            continue
        if pattern is None:
            lines.append(shown)
        if len(lines) > limit:
            return {"lines": lines[:limit], "stopped": "limit"}
    return {"lines": lines, "stopped": ""}


if __name__ == "__main__":
    result = json.dumps(scan(json.loads(sys.argv[1])), ensure_ascii=True)
    sys.stdout.write(result)
