"""What tools were called for and whether it came out: work that failed is not finished.

A failure is told by the shape of its result, ours or another agent's: rows of every client are
read alike. Pure.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

from agent.base.messages import Message, text_of

ABOUT_MAX_CHARS = 160
REASON_MAX_CHARS = 100
_OBJECTS = "command cmd path file_path file filename url uri query pattern name id".split()
"""Arguments that say what a call is about; the others say what is done with it."""
_SHORT_CHARS = 2_000
"""A longer result is what was asked for, however it begins."""
_WENT_WELL = "[exit code 0]"
_FAILED_AT_START = re.compile(
    r"\[?interrupted\b|refused: |no (?:tool|file|folder or file) '"
    r"|'[^\n]{1,300}' (?:is an? |is not |has (?:\d+ bytes; the limit|fewer than ))"
    r"|old (?:was found \d+ times|is empty|and new are)"
    r"|arguments\b[^\n]{0,300}(?:valid JSON|: missing |: unknown key)"
    r"|[\w.\[\]]{1,80} is [^\n]{1,200}; it must be |pattern '[^\n]{1,300} is not a"
    r"|\w+ (?:did not end within|failed: )|(?:fatal |internal |tool )?(?:error|fehler|failure)\b ?:"
    r"|[\w.]{1,60}(?:Error|Exception)\b ?:|Traceback \(most recent"
    r"|\{\s*\"(?:error\"\s*:\s*(?!\s|null|false|\"\"|\{\}|\[\])|(?:success|ok)\"\s*:\s*false)",
    re.IGNORECASE,
)
_FAILED_AT_END = re.compile(
    r"\[(?:ended by signal|not finished after|stopped;)[^\]\n]*\]\Z"
    r"|\bexit(?:ed with)?(?: code| status)?:? [1-9]\d{0,2}\b[\])]?\.?\Z",
    re.IGNORECASE,
)


def calls_of(message: Message) -> Iterator[tuple[str, str]]:
    """Yield (call id, what it is for) of the calls of a row."""
    for call in message.get("tool_calls") or ():
        function = call.get("function") or {}
        name, call_id = (str(each or "") for each in (function.get("name"), call.get("id")))
        if name and call_id:
            about = f"{name} {_object(function.get('arguments'))}"
            yield call_id, " ".join(about.split())[:ABOUT_MAX_CHARS]


def _object(arguments: Any) -> str:
    """Return what a call's arguments are about: those that name it, all when none does."""
    if not isinstance(arguments, str):
        return ""
    try:
        given = json.loads(arguments)
    except ValueError:
        return arguments
    if not isinstance(given, dict):
        return arguments
    named = [given[key] for key in _OBJECTS if isinstance(given.get(key), str) and given[key]]
    return " ".join(named) if named else arguments


def failure_of(message: Message) -> str:
    """Return why a tool's row says that its call failed, in one line; "" when it does not."""
    text = text_of(message.get("content")).strip()
    last = text[max(text.rfind("\n") + 1, len(text) - REASON_MAX_CHARS) :]
    if _FAILED_AT_END.search(last):
        return last
    if len(text) > _SHORT_CHARS or last == _WENT_WELL or not _FAILED_AT_START.match(text):
        return ""
    return " ".join(text.partition("\n")[0].split())[:REASON_MAX_CHARS]
