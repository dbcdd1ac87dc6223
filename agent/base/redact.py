"""Replace secrets in text by placeholders that keep their kind, such as `[REDACTED:github_token]`.

Linear in the text: each rule is tried only where a literal hint of it occurs, and every pattern
consumes what it scans. A word that is cut off in the middle is recognised by its beginning only.
"""

from __future__ import annotations

import math
import re
import traceback
from collections import Counter
from collections.abc import Callable

from agent.base.pattern import pattern
from agent.base.record import dataclass

_PLACEHOLDER = "[REDACTED:{}]"
_MIN_ENTROPY_BITS = 2.5
_ESCAPE = pattern(r"\\(?:[bfnrt]|u[0-9a-fA-F]{4})$")
_CODE = pattern(r"[()\[\]{}]|://")
_DOTTED_NAME = pattern(r"[A-Za-z_]+(?:\.[A-Za-z_]+)*\.?")
"""Shannon entropy a character below which an assigned value is taken for a word or a sample."""


@dataclass(frozen=True)
class _Rule:
    """One kind of secret. `hints` are lower-case literals of which one stands in every match."""

    kind: str
    hints: tuple[str, ...]
    pattern: re.Pattern[str]
    replace: Callable[[re.Match[str]], str]


def _whole(kind: str, *, digit: bool = False) -> Callable[[re.Match[str]], str]:
    """Replace a whole match that begins a word; with `digit` only one that holds a digit."""
    placeholder = _PLACEHOLDER.format(kind)

    def replace(match: re.Match[str]) -> str:
        text = match[0]
        if _is_inside_word(match) or (digit and not any(map(str.isdigit, text))):
            return text
        return placeholder

    return replace


def _is_inside_word(match: re.Match[str]) -> bool:
    """Return whether a match goes on an ASCII word; the letter of a JSON escape is part of none."""
    start = match.start()
    before = match.string[start - 1 : start]
    if not (before.isascii() and before.isalnum()) and before != "_":
        return False
    return _ESCAPE.search(match.string[max(0, start - 6) : start]) is None


def _value(kind: str, accept: Callable[[re.Match[str]], bool]) -> Callable[[re.Match[str]], str]:
    """Replace group `value` of an accepted match; what stands around it stays."""
    placeholder = _PLACEHOLDER.format(kind)

    def replace(match: re.Match[str]) -> str:
        if match["value"].startswith("[REDACTED") or not accept(match):
            return match[0]
        start, end = match.span("value")
        return match.string[match.start() : start] + placeholder + match.string[end : match.end()]

    return replace


def _is_token(match: re.Match[str]) -> bool:
    """Return whether the value after an authorization scheme is one, and not the next word."""
    return any(character.isdigit() or character == "=" for character in match["value"])


def _is_assigned_secret(match: re.Match[str]) -> bool:
    """Return whether an assigned value is a secret, and no word, number, path, name or code."""
    value = match["value"]
    if value[0] in "$%/.~#" or value.isdigit() or _CODE.search(value):
        return False
    if value.isalpha() and (value.islower() or value.istitle() or value.isupper()):
        return False
    if not match["quote"] and _DOTTED_NAME.fullmatch(value):
        return False
    size = len(value)
    entropy = -sum(n / size * math.log2(n / size) for n in Counter(value).values())
    return entropy >= _MIN_ENTROPY_BITS


_RULES = (
    _Rule(
        "anthropic_key",
        ("sk-ant-",),
        pattern(r"sk-ant-[A-Za-z0-9_-]{6,}"),
        _whole("anthropic_key"),
    ),
    _Rule(
        "openai_key",
        ("sk-",),
        pattern(r"sk-(?!ant-)[A-Za-z0-9_-]{16,}"),
        _whole("openai_key", digit=True),
    ),
    _Rule(
        "github_token",
        ("ghp_", "gho_", "ghu_", "ghs_", "ghr_", "github_pat_"),
        pattern(r"(?:gh[pousr]_|github_pat_)[A-Za-z0-9_]{16,}"),
        _whole("github_token"),
    ),
    _Rule(
        "aws_key_id",
        ("akia", "asia"),
        pattern(r"A(?:KIA|SIA)[0-9A-Z]{16,}"),
        _whole("aws_key_id"),
    ),
    _Rule(
        "slack_token",
        ("xox", "xapp-"),
        pattern(r"(?:xox[abeoprs]|xapp)-[A-Za-z0-9-]{10,}"),
        _whole("slack_token"),
    ),
    _Rule(
        "google_key",
        ("aiza",),
        pattern(r"AIza[0-9A-Za-z_-]{30,}"),
        _whole("google_key"),
    ),
    _Rule(
        "jwt",
        ("eyj",),
        pattern(r"eyJ[A-Za-z0-9_-]{6,}(?P<rest>(?:\.[A-Za-z0-9_-]{4,}){0,2})"),
        lambda match: _PLACEHOLDER.format("jwt") if match["rest"] else match[0],
    ),
    _Rule(
        "url_credentials",
        ("://",),
        pattern(r"://(?P<value>[^\s/@:\"'<>]{0,128}:[^\s/\"'<>]{1,256}|[A-Za-z0-9_-]{20,256})@"),
        _value("url_credentials", lambda _match: True),
    ),
    _Rule(
        "authorization",
        ("bearer", "basic"),
        pattern(
            r"(?:\b|(?<=\\[nrt]))(?i:bearer|basic)[ \t]{1,4}(?P<value>[A-Za-z0-9._~+/=-]{12,})"
        ),
        _value("authorization", _is_token),
    ),
)

_SECRET_HINTS = ("passw", "passphrase", "pwd", "secret", "token", "key", "credential")
_SECRET_NAME = pattern(
    r"(?i:passw(?:or)?d|passphrase|pwd|secret|token|credential"
    r"|(?:api|access|private|signing|encryption)[_-]?key)"
    r"(?:s|[A-Z0-9_-][A-Za-z0-9_-]{0,24})?\\{0,2}[\"']?[ \t]{0,3}\Z"
)
_NAME_MAX_CHARS = 56
_ASSIGNED = pattern(
    r"[:=](?=[=>]?[ \t]{0,3}(?P<quote>\\{0,2}[\"'])?"
    r"(?P<value>(?(quote)[^\s\"'\\]{6,64}|[^\s\"'\\,;&<>]{6,64})))"
)
_VALUE_REST = pattern(r"[^\s\"'\\,;&<>]*")

_BEGIN_KEY = pattern(r"-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----")
_END_KEY = pattern(r"-----END [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----")
_KEY_LINES = pattern(
    r"(?:(?:\s|\\[nr]){1,4}[A-Z][A-Za-z-]{2,24}: [^\n\\]{1,80}){0,3}"
    r"(?:(?:\s|\\[nr]){1,4}[A-Za-z0-9+/=]{16,})*"
)
_KEY_LINE_REVERSED = pattern(r"(?:\s|[nr]?\\){0,4}[A-Za-z0-9+/=]{8,}")
_KEY_MAX_CHARS = 16_000
_KEY_LINE_MAX_CHARS = 160


def redact(text: str) -> str:
    """Return `text` with every recognised secret replaced; the same object when there is none."""
    while True:
        redacted = _redact_once(text)
        if redacted == text:
            return text
        text = redacted


def redacted_trace(error: BaseException) -> str:
    """Return the traceback of an error as text for a log."""
    return redact("".join(traceback.format_exception(error)))


def contains_secret(text: str) -> bool:
    """Return whether `redact` would change `text`."""
    return _redact_once(text) != text


def _redact_once(text: str) -> str:
    lowered = text.lower()
    if "private key" in lowered:
        text = _redact_private_keys(text)
    for rule in _RULES:
        for hint in rule.hints:
            if hint in lowered:
                text = rule.pattern.sub(rule.replace, text)
                break
    if any(hint in lowered for hint in _SECRET_HINTS):
        text = _redact_assigned(text)
    return text


def _redact_assigned(text: str) -> str:
    """Replace the values that are assigned to a name of a secret: `DB_PASSWORD=...`."""
    pieces: list[str] = []
    position = 0
    for match in _ASSIGNED.finditer(text):
        name = text[max(position, match.start() - _NAME_MAX_CHARS) : match.start()].lower()
        if match.start() < position or not any(hint in name for hint in _SECRET_HINTS):
            continue
        if not _SECRET_NAME.search(
            text, max(position, match.start() - _NAME_MAX_CHARS), match.start()
        ):
            continue
        if match["value"].startswith("[REDACTED") or not _is_assigned_secret(match):
            continue
        rest = _VALUE_REST.match(text, match.end("value"))
        pieces += (text[position : match.start("value")], _PLACEHOLDER.format("secret"))
        position = rest.end() if rest else match.end("value")
    return "".join([*pieces, text[position:]]) if pieces else text


def _redact_private_keys(text: str) -> str:
    """Replace PEM blocks, also those of which only the beginning or only the end is there."""
    marks = sorted(
        [(*match.span(), True) for match in _BEGIN_KEY.finditer(text)]
        + [(*match.span(), False) for match in _END_KEY.finditer(text)]
    )
    pieces: list[str] = []
    position = 0
    for number, (start, end, begins) in enumerate(marks, 1):
        if start < position:
            continue
        if begins:
            ahead = marks[number] if number < len(marks) else (0, 0, True)
            whole = not ahead[2] and ahead[0] - end <= _KEY_MAX_CHARS
            stop = ahead[1] if whole else _after_key_lines(text, end)
        else:
            start, stop = _before_key_lines(text, position, start), end
        pieces += (text[position:start], _PLACEHOLDER.format("private_key"))
        position = stop
    return "".join([*pieces, text[position:]])


def _after_key_lines(text: str, position: int) -> int:
    lines = _KEY_LINES.match(text, position)
    return lines.end() if lines else position


def _before_key_lines(text: str, first: int, position: int) -> int:
    while True:
        lowest = max(first, position - _KEY_LINE_MAX_CHARS)
        line = _KEY_LINE_REVERSED.match(text[lowest:position][::-1])
        if line is None:
            return position
        position -= line.end()
