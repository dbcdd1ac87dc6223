"""A digest made without any model: what was asked, what was done, to which files, what went wrong.

The way out when a summary cannot be had. Its sections are lists that carry the row numbers, so a
later digest merges them, and a reader can recall any row.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Iterator
from dataclasses import field

from agent.base.messages import Message, is_user_text, text_of
from agent.base.pattern import pattern
from agent.base.record import dataclass
from agent.base.redact import redact
from agent.base.tokens import estimate_text
from agent.compaction.serialise import clip, spoken

TITLE = "Digest made without a model; the rows themselves are kept."
EARLIER = "Earlier summary"
REQUESTS = "Requests"
ACTIONS = "Actions"
FILES = "Files"
ERRORS = "Errors"
LAST = "Last lines before the cut"

SHARES = {EARLIER: 0.35, REQUESTS: 0.2, LAST: 0.15, ACTIONS: 0.15, ERRORS: 0.08, FILES: 0.07}
"""What each section may take of the digest, in the order in which they are filled; what one leaves
goes to those after it. Within a section the newest lines win."""
ORDER = (EARLIER, REQUESTS, ACTIONS, FILES, ERRORS, LAST)

_REQUEST_CHARS = 240
_ACTION_CHARS = 160
_ERROR_CHARS = 240
_LAST_CHARS = 320
_LAST_ROWS = 8
_HEADING = pattern(r"^## (.+)$", re.MULTILINE)
_MAIN_HEADING = pattern(r"^##? ", re.MULTILINE)
_FILE_LINE = pattern(r"- (.+?)((?: \[\d+\])*)")
_PATH_KEYS = frozenset({"path", "file", "file_path", "filename", "paths", "target", "source"})
_PATH = pattern(r"(?<![\w/.:-])(?:\.{0,2}/)?(?:[\w.-]{1,80}/){1,12}[\w-][\w.-]{0,80}\.\w{1,8}\b")
_ERROR_WORDS = ("error", "exception", "failed", "failure", "fatal", "denied", "not found", "panic")
_NO_ERROR = pattern(r"\b(?:0|no) (?:errors?|failed|failures?)\b", re.IGNORECASE)
_SCAN_CHARS = 20_000


@dataclass
class _Sections:
    lines: dict[str, list[str]] = field(default_factory=lambda: {name: [] for name in ORDER})
    files: dict[str, list[str]] = field(default_factory=dict)


def write_digest(rows: list[Message], earlier: list[Message], max_tokens: int) -> str:
    """Return the digest of covered rows within `max_tokens`, or "" when not even its frame fits.

    `earlier` are the covered summaries and digests, oldest first; what they say is carried on.
    """
    sections = _Sections()
    for summary in earlier:
        _carry(summary, sections)
    _collect(rows, sections)
    for path, seqs in sections.files.items():
        sections.lines[FILES].append(f"- {path}{_cited(seqs)}")
    return _compose(sections.lines, _how_to_read([*earlier, *rows]), max_tokens)


# -- collecting -----------------------------------------------------------------------------------
def _carry(summary: Message, sections: _Sections) -> None:
    """Take an earlier digest's sections apart; a summary that a model wrote is carried as it is."""
    text = redact(text_of(summary.get("content"))).strip()
    if summary.get("_kind") != "mechanical" or not text.startswith(TITLE):
        sections.lines[EARLIER].extend(_MAIN_HEADING.sub("### ", text).splitlines())
        return
    parts = _HEADING.split(text)
    for heading, body in zip(parts[1::2], parts[2::2], strict=True):
        lines = [line for line in body.strip().splitlines() if line.strip()]
        if heading in (EARLIER, REQUESTS, ACTIONS, ERRORS):
            sections.lines[heading].extend(lines)
        elif heading == FILES:
            for entry in filter(None, map(_FILE_LINE.fullmatch, lines)):
                sections.files.setdefault(entry[1], []).extend(entry[2].split())


def _collect(rows: list[Message], sections: _Sections) -> None:
    names: dict[str, str] = {}
    lines = sections.lines
    for row in rows:
        seq = _seq(row)
        if is_user_text(row):
            said = _beginning(text_of(row.get("content")), _REQUEST_CHARS)
            lines[REQUESTS].append(f"- {seq}{said or '(attachment)'}")
        for call in row.get("tool_calls") or ():
            function = call.get("function") or {}
            name = names[str(call.get("id", ""))] = str(function.get("name", ""))
            arguments = str(function.get("arguments") or "")
            lines[ACTIONS].append(f"- {seq}{name} {_beginning(arguments, _ACTION_CHARS)}".rstrip())
            for path in _paths_of(redact(arguments[:_SCAN_CHARS])):
                sections.files.setdefault(path, []).append(seq)
        if row.get("role") == "tool":
            error = _error_line(text_of(row.get("content")))
            if error:
                name = names.get(str(row.get("tool_call_id", "")), "tool")
                lines[ERRORS].append(f"- {seq}{name}: {error}")
    for row in rows[-_LAST_ROWS:]:
        text = redact(spoken(text_of(row.get("content"))))
        if text:
            lines[LAST].append(f"- {_seq(row)}{row.get('role')}: {_one_line(text, _LAST_CHARS)}")


def _beginning(text: str, limit_chars: int) -> str:
    """Return the redacted beginning of a text in one line."""
    line = " ".join(redact(text[: 4 * limit_chars]).split())
    return line if len(line) <= limit_chars else f"{line[:limit_chars]}…"


def _error_line(text: str) -> str:
    """Return the first line of a result that tells of an error, or ""."""
    lowered = text[:_SCAN_CHARS].lower()
    position = 0
    while True:
        hits = [hit for word in _ERROR_WORDS if (hit := lowered.find(word, position)) >= 0]
        if not hits:
            return ""
        start = text.rfind("\n", 0, min(hits)) + 1
        end = text.find("\n", start)
        line = text[start:] if end < 0 else text[start:end]
        if not _NO_ERROR.search(line[:_ERROR_CHARS]):
            return _beginning(line, _ERROR_CHARS)
        if end < 0:
            return ""
        position = end


def _paths_of(arguments: str) -> Iterator[str]:
    """Yield the files that a call's arguments name."""
    try:
        parsed = json.loads(arguments)
    except ValueError:
        parsed = None
    if isinstance(parsed, dict):
        for key, value in parsed.items():
            values = value if isinstance(value, list) else [value]
            if key in _PATH_KEYS:
                yield from (_one_line(v, 120) for v in values if isinstance(v, str) and v)
    yield from dict.fromkeys(_PATH.findall(arguments[:_SCAN_CHARS]))


def _seq(row: Message) -> str:
    seq = row.get("_seq")
    return "" if seq is None else f"[{seq}] "


def _cited(seqs: Iterable[str]) -> str:
    """Return the newest row numbers of a file."""
    known = [seq.strip() for seq in dict.fromkeys(seqs) if seq]
    return f" {' '.join(known[-3:])}" if known else ""


def _one_line(text: str, limit_chars: int) -> str:
    return " ".join(clip(text, limit_chars).split())


def _how_to_read(rows: list[Message]) -> str:
    """Return the closing line: the call that reads the covered rows in full."""
    seqs = [row["_seq"] for row in rows if row.get("_seq") is not None]
    if not seqs:
        return 'To find something in the rows that this covers: recall(query="words to look for").'
    span = str(seqs[0]) if seqs[0] == seqs[-1] else f"{min(seqs)}-{max(seqs)}"
    return f'To read any of these rows in full: recall(rows="{span}").'


# -- composing ------------------------------------------------------------------------------------
def _compose(lines: dict[str, list[str]], closing: str, max_tokens: int) -> str:
    """Return title, sections and closing line within the budget; "" when there is no room."""
    free = max_tokens - estimate_text(TITLE) - estimate_text(closing)
    while free >= 0:
        text = "\n\n".join([TITLE, *_sections_within(lines, free), closing])
        excess = estimate_text(text) - max_tokens
        if excess <= 0:
            return text
        free -= excess
    return ""


def _sections_within(lines: dict[str, list[str]], tokens: int) -> list[str]:
    """Return the sections with their headings, each within its share and what others leave."""
    chosen: dict[str, list[str]] = {}
    free, later = tokens, 1.0
    for name, share in SHARES.items():
        later -= share
        allowed = max(int(tokens * share), free - math.ceil(tokens * later))
        picked, used = _newest_within(name, lines[name], min(free, allowed))
        if picked:
            chosen[name] = picked
            free -= used
    return [f"## {name}\n" + "\n".join(chosen[name]) for name in ORDER if name in chosen]


def _newest_within(name: str, lines: list[str], tokens: int) -> tuple[list[str], int]:
    """Return the newest lines that fit, in their order, and what they and the heading take.

    An earlier summary is kept from its beginning instead: its headings make sense of its lines.
    """
    used = estimate_text(f"\n\n## {name}\n")
    if not lines or used >= tokens:
        return [], 0
    picked: list[str] = []
    for line in lines if name == EARLIER else reversed(lines):
        size = estimate_text(line + "\n")
        if used + size > tokens:
            beginning = line[: len(line) * (tokens - used) // size * 9 // 10]
            if not picked and used + estimate_text(beginning + "…") < tokens:
                picked.append(beginning + "…")
                used = tokens
            break
        picked.append(line)
        used += size
    if not picked:
        return [], 0
    return (picked if name == EARLIER else picked[::-1]), used
