"""The tools `read_file`, `write_file` and `patch_file`. Searching is in `search.py`."""

from __future__ import annotations

import difflib
import itertools
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, TextIO

from agent.base.cancel import CancelToken
from agent.base.errors import ToolError
from agent.tools.atomic import write_atomically
from agent.tools.paths import resolve_path, shown_path
from agent.tools.protocol import Access, Tool, ToolContext

LINES = 2_000
_LINE_CHARS = 4_000
_READ_CHARS = 60_000
"""Of one result: under 64 KiB a result is shown whole, beyond it as an excerpt."""
_NUMBER_CHARS = 8
_PATCH_BYTES = 32 * 1024 * 1024
_PROBE_BYTES = 8_192
_CONTEXT_LINES = 3
_DIFF_LINES = 400

_PATH = {"type": "string", "description": "Relative to the working folder, or absolute."}


def _existing(arguments: Mapping[str, Any], context: ToolContext) -> tuple[Path, str]:
    """Return the regular file that a call names, and how it is shown."""
    path = resolve_path(arguments["path"], context)
    shown = shown_path(path, context)
    if not path.exists():
        raise ToolError(f"no file {shown!r}; find it with search_files")
    if path.is_dir():
        raise ToolError(f"{shown!r} is a folder; list it with search_files(path={shown!r})")
    if not path.is_file():
        raise ToolError(f"{shown!r} is a device, pipe or socket, not a file")
    return path, shown


# -- read_file ------------------------------------------------------------------------------
def _read(arguments: Mapping[str, Any], context: ToolContext) -> str:
    """Return numbered lines and, when there are more, the call that reads on."""
    path, shown = _existing(arguments, context)
    first, limit = int(arguments.get("offset", 1)), int(arguments.get("limit", LINES))
    with path.open("rb") as probe:
        if b"\0" in probe.read(_PROBE_BYTES):
            raise ToolError(f"{shown!r} is a binary file of {path.stat().st_size} bytes, not text")
    picked: list[str] = []
    chars = 0
    with path.open(encoding="utf-8", errors="replace", newline="\n") as file:
        for number, line in enumerate(_lines(file, context.cancel), start=1):
            if number < first:
                continue
            chars += len(line) + _NUMBER_CHARS
            if len(picked) == limit or (picked and chars > _READ_CHARS):
                picked.append(f"[more lines follow: read_file(path={shown!r}, offset={number})]")
                break
            picked.append(f"{number:>6}\t{line}")
    if picked:
        return "\n".join(picked)
    if first > 1:
        raise ToolError(f"{shown!r} has fewer than {first} lines; read it from offset=1")
    return f"[{shown!r} is empty]"


def _lines(file: TextIO, cancel: CancelToken) -> Iterator[str]:
    """Yield lines without their ends, a very long one cut, whatever the file's size."""
    while piece := file.readline(_LINE_CHARS):
        if cancel.cancelled:
            raise ToolError("stopped while reading")
        more_chars, last = 0, piece
        while not last.endswith("\n") and (last := file.readline(_LINE_CHARS)):
            more_chars += len(last.rstrip("\r\n"))
        text = piece.rstrip("\r\n")
        yield f"{text} [{more_chars} more characters in this line]" if more_chars else text


READ_FILE = Tool(
    name="read_file",
    description=(
        "Read a text file. Each line comes with its number and a tab before it, which are not "
        "part of the file."
    ),
    parameters={
        "type": "object",
        "properties": {
            "path": _PATH,
            "offset": {"type": "integer", "minimum": 1, "description": "First line, from 1."},
            "limit": {
                "type": "integer",
                "minimum": 1,
                "description": f"Number of lines, {LINES} if left out.",
            },
        },
        "required": ["path"],
        "additionalProperties": False,
    },
    access=Access.READ,
    run=_read,
    describe=lambda arguments: f"read {arguments['path']}",
    paths=lambda arguments: [arguments["path"]],
)


# -- write_file -----------------------------------------------------------------------------
def _write(arguments: Mapping[str, Any], context: ToolContext) -> str:
    """Write a whole file and say what stood there before."""
    path = resolve_path(arguments["path"], context)
    shown = shown_path(path, context)
    existed = path.exists()
    if existed and not path.is_file():
        raise ToolError(f"{shown!r} is not a regular file; choose another path")
    before = path.stat().st_size if existed else 0
    data = arguments["content"].encode("utf-8")
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, data)
    deed = f"replaced {shown} ({before} bytes before)" if existed else f"made {shown}"
    return f"{deed}: {len(data)} bytes"


WRITE_FILE = Tool(
    name="write_file",
    description=(
        "Write a whole text file, replacing what is there; missing folders are made. To change "
        "a part of a file use patch_file."
    ),
    parameters={
        "type": "object",
        "properties": {"path": _PATH, "content": {"type": "string"}},
        "required": ["path", "content"],
        "additionalProperties": False,
    },
    access=Access.WRITE,
    run=_write,
    describe=lambda arguments: (
        f"write {len(arguments['content'])} characters to {arguments['path']}"
    ),
    paths=lambda arguments: [arguments["path"]],
)


# -- patch_file -----------------------------------------------------------------------------
def _patch(arguments: Mapping[str, Any], context: ToolContext) -> str:
    """Replace the one place where `old` stands and return the difference."""
    path, shown = _existing(arguments, context)
    if path.stat().st_size > _PATCH_BYTES:
        raise ToolError(f"{shown!r} has {path.stat().st_size} bytes; the limit is {_PATCH_BYTES}")
    try:
        text = path.read_bytes().decode("utf-8")
    except UnicodeDecodeError as error:
        raise ToolError(f"{shown!r} is not UTF-8 text ({error.reason} at {error.start})") from error
    old, new = arguments["old"], arguments["new"]
    if old == new:
        raise ToolError("old and new are the same text; nothing to change")
    if 0 < text.count("\n") == text.count("\r\n") and "\r" not in old + new:
        old, new = old.replace("\n", "\r\n"), new.replace("\n", "\r\n")
    at = _only_place(text, old, shown)
    changed = text[:at] + new + text[at + len(old) :]
    write_atomically(path, changed.encode("utf-8"))
    first = text.count("\n", 0, at)
    before = _region(text, first, first + old.count("\n"))
    after = _region(changed, first, first + new.count("\n"))
    return _difference(before, after, max(0, first - _CONTEXT_LINES) + 1, shown)


def _only_place(text: str, old: str, shown: str) -> int:
    """Return where `old` begins. Raises: ToolError unless it stands there exactly once."""
    if not old:
        raise ToolError("old is empty; give the text to replace, or use write_file")
    at = text.find(old)
    if at < 0:
        raise ToolError(f"old was found 0 times in {shown!r}; {_near(text, old)}")
    if text.find(old, at + 1) >= 0:
        starts = [at]
        while (following := text.find(old, starts[-1] + 1)) >= 0:
            starts.append(following)
        lines = ", ".join(str(text.count("\n", 0, start) + 1) for start in starts[:10])
        raise ToolError(
            f"old was found {len(starts)} times in {shown!r} (lines {lines}); "
            "add lines around it until it is unique"
        )
    return at


def _near(text: str, old: str) -> str:
    """Return a hint for a text that was not found: where its first line stands alone."""
    first = next((line.strip() for line in old.split("\n") if line.strip()), "")
    for number, line in enumerate(text.split("\n"), start=1):
        if first and line.strip() == first:
            return f"its first line stands at line {number}, but not all of it as given"
    return "read the file again and copy the text exactly, white space too"


def _region(text: str, first: int, last: int) -> list[str]:
    """Return the lines with these indices and a few around them."""
    lines = text.split("\n")
    return [
        line.rstrip("\r")
        for line in lines[max(0, first - _CONTEXT_LINES) : last + 1 + _CONTEXT_LINES]
    ]


def _difference(before: list[str], after: list[str], start: int, shown: str) -> str:
    """Return one unified hunk; `start` is the number of the first line in both."""
    size = len(before) + len(after)
    if size > _DIFF_LINES:
        return f"patched {shown}: {len(before)} lines became {len(after)} from line {start} on"
    hunk = itertools.islice(difflib.unified_diff(before, after, n=size, lineterm=""), 3, None)
    header = f"@@ -{start},{len(before)} +{start},{len(after)} @@"
    return "\n".join([f"patched {shown}", header, *hunk])


PATCH_FILE = Tool(
    name="patch_file",
    description=(
        "Replace a piece of a text file. `old` must stand there exactly once, white space "
        "included, without the line numbers of read_file."
    ),
    parameters={
        "type": "object",
        "properties": {
            "path": _PATH,
            "old": {"type": "string", "description": "The text to replace."},
            "new": {"type": "string", "description": "What stands there afterwards."},
        },
        "required": ["path", "old", "new"],
        "additionalProperties": False,
    },
    access=Access.WRITE,
    run=_patch,
    describe=lambda arguments: (
        f"in {arguments['path']} replace {arguments['old']!r} by {arguments['new']!r}"
    ),
    paths=lambda arguments: [arguments["path"]],
)
