"""Things in a text that a summary must not lose: paths, addresses, ids, numbers, dates, errors.

Tokens are cut out once and each is judged by itself, so that the work grows with the text alone.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

TOKEN_MAX_CHARS = 240
ERROR_MAX_CHARS = 160
NAME_MAX_CHARS = 80


class Thing(NamedTuple):
    """One thing in a text. `sort` is a word: path, url, number, date, version, host, id, ..."""

    sort: str
    text: str
    start: int
    end: int


_SIGN = r"[\w./\\:@#%+=~&?!$€£*-]"
_RUN = rf"[\w#~$€£@./\\+-]{_SIGN}*(?:,(?=\d){_SIGN}*)*"
_CJK_SIGNS = r"\u3040-\u30ff\u3400-\u9fff\uac00-\ud7a3"
_WORDS = (
    r"(?:[a-zß-öø-ÿ]++[.,:;!?]?+[ \n]++"
    rf"|[{_CJK_SIGNS}]++(?!{_SIGN}|,\d)[，。、！？；：\s]*+)++"
)
_TOKEN = re.compile(f"{_WORDS}({_RUN})?|({_RUN})")
"""A run without a blank; ordinary words before it are stepped over, for they are no things."""
_ASCII_RUN = re.compile(r"[!-~À-ɏ€£]+")
_CJK = re.compile(f"[{_CJK_SIGNS}]")
_LETTERS = re.compile(r"[^\W_]+")
_TRAILING = ".,:;!?*=&-+~"

_SORTS = (
    ("url", r"[a-zA-Z][a-zA-Z0-9+.-]{1,15}://\S+|www\.\S+"),
    ("email", r"[\w.+-]+@[\w-]+(?:\.[\w-]+)+"),
    ("address", r"\d{1,3}(?:\.\d{1,3}){3}(?::\d{1,5})?(?:/\d{1,2})?"),
    (
        "date",
        r"\d{4}[-/.]\d{1,2}[-/.]\d{1,2}(?:T[\d:.+Z-]+)?|\d{1,2}[./]\d{1,2}[./]\d{2,4}",
    ),
    ("time", r"\d{1,2}:\d\d(?::\d\d(?:\.\d+)?)?(?:Z|[aApP][mM])?"),
    ("id", r"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}"),
    (
        "version",
        r"v\d+(?:\.\d+){0,3}(?:[-+.]\w+)*|\d+\.\d+\.\d+(?:\.\d+)?[a-z]?\w*(?:[-+.]\w+)*",
    ),
    ("id", r"[A-Z][A-Z0-9]{1,11}(?:-[A-Z0-9]{1,12}){0,3}-\d{1,12}|#\d+|[A-Z]{1,4}\d{3,}"),
    ("number", r"[+-]?[$€£]?\d+(?:[.,]\d+)*(?:%|[a-zA-Zµ°$€£]{1,4}(?:/[a-z]{1,3})?)?"),
    (
        "host",
        (
            r"(?:[a-zA-Z][\w-]*(?:\.[\w-]+)+|[a-zA-Z][\w-]+):\d{2,5}|(?:[a-z0-9][a-z0-9-]*\.)+"
            r"(?:com|org|net|io|dev|local|internal|intern|test|example|lan|de|fr|es|cn|jp|eu|co|app"
            r"|cloud)"
        ),
    ),
    (
        "path",
        (
            r"(?:(?:~|\.{1,2})?(?:/[\w.@%+-]+)+/?|(?:[\w.@%+-]+/){2,}[\w.@%+-]*|[\w.-]+/"
            r"|[\w.@%+-]+/[\w@%+-]*\.\w{1,8}|[A-Za-z]:\\\S+|(?:[\w.-]+\\)+[\w.-]+"
            r"|[\w@%+-]{2,}(?:\.[\w-]+)*\.[A-Za-z]\w{0,7}|\.[a-z][\w.-]{2,})(?::\d+){0,2}"
        ),
    ),
    ("id", r"(?=[a-f]*\d)(?=\d*[a-f])[0-9a-f]{6,64}|(?=\D*\d)(?=[\d_-]*[A-Za-z])[\w-]{6,64}"),
    (
        "name",
        (
            r"--?[a-zA-Z][\w-]+(?:=\S+)?|[A-Za-z][A-Za-z0-9]*(?:_[A-Za-z0-9]+)+|[a-z]+[A-Z]\w+"
            r"|(?:[A-Z][a-z0-9]+){2,}"
        ),
    ),
)
_ANY = re.compile("|".join(f"(?P<{name}{at}>{each})" for at, (name, each) in enumerate(_SORTS)))
"""One pattern for all sorts; the number behind a group's name only makes it unique."""
_PATH_NOT = re.compile(r"(?:[a-z]\.)+[a-z]?|\w+/\w+", re.IGNORECASE)
_UNIT_AFTER = re.compile(
    r"[ \u00a0](?:(?:[kKMGT]i?B|[kMG]bit|ms|s|sec|seconds?|min|minutes?|h|hours?|days?|weeks?"
    r"|months?|years?|rows?|lines?|tries|attempts?|retries|workers?|users?|files?|requests?|px|%|€|\$"
    r"|EUR|USD|euros?|dollars?|cents?|Sekunden?|Minuten?|Stunden?|Tagen?|Wochen?|Monaten?|Zeilen?"
    r"|secondes?|heures?|jours?|semaines?|mois|lignes?|segundos?|minutos?|horas?|días?|semanas?"
    r"|meses|filas|líneas?)\b)|[秒分時时天个個件人回次名行台円元万]",
)
_THOUSANDS_AFTER = re.compile(r"(?:[ \u00a0\u202f]\d{3})+(?![\d.,:/-]?\d)")
"""More groups of a large number, as French and others write it."""
_MONTHS = (
    r"jan(?:uary|uar|vier)?|feb(?:ruary|ruar)?|février|mar(?:ch|s)?|märz|apr(?:il)?|avril|may|mai|june?|"
    r"juni|juin|july?|juli|juillet|aug(?:ust)?|août|sep(?:t(?:ember|embre)?)?|o[ck]t(?:ober|obre)?|"
    r"nov(?:ember|embre)?|de[cz](?:ember)?|décembre|enero|febrero|marzo|abril|mayo|junio|julio|agosto|"
    r"septiembre|octubre|noviembre|diciembre"
)
_WORDED_DATE = re.compile(
    rf"\d{{1,2}}(?:st|nd|rd|th|er|\.)? (?:of |de )?(?:{_MONTHS})\b\.?(?:,? (?:de )?\d{{4}})?"
    rf"|\b(?:{_MONTHS})\.? \d{{1,2}}(?:st|nd|rd|th)?\b(?:,? \d{{4}})?"
    r"|(?:\d{2,4}年)?\d{1,2}月\d{1,2}[日号]|\d{2,4}年\d{1,2}月"
)
_DAY_OF_MONTH = re.compile(rf"\d(?:(?:st|nd|rd|th|er|\.)? (?:of |de )?(?:{_MONTHS})|月)")
_FIGURE_NEXT = re.compile(r"(?<=[bceghilnoprstvyz.]) (?=\d)")
"""The letters are those that months end in."""
_MONTH_BEFORE = re.compile(rf"\b(?:{_MONTHS})\.?\Z")
_MONTH_CHARS = 12
_ERROR = re.compile(
    r"(?<=\w)(?:error|exception|fault)\b[^\n]{0,140}|\b(?:errno|err_\w*)\b[^\n]{0,140}"
    r"|\b(?:error|exception|fatal|panic|denied|refused|fehler|erreur|échec|fallo)\b ?[:\-]"
    r"[^\n]{1,140}|(?:エラー|错误|失败)[:：][^\n]{1,140}"
)
_NAME_BEFORE = re.compile(r"[\w.]{1,60}\Z")
_ERROR_HINT = re.compile(
    r"e(?=rr(?:or|no|_|eur)|xception)|f(?=a(?:ult|tal|llo)|ehler)|panic|denied|refused|échec"
    r"|エラー|错误|失败"
)
"""What errors begin with; cheaper to look for than they are."""
_QUOTED = re.compile(
    r"\"([^\"\n]{2,80})\"|“([^”\n]{2,80})”|„([^“”\n]{2,80})[“”]|«\s?([^»\n]{2,80})»|「([^」\n]{2,60})」"
    r"|『([^』\n]{2,60})』|`([^`\n]{2,160})`"
)
_QUOTED_OR_TYPED = re.compile(rf"{_QUOTED.pattern}|^[ \t]*\$ ([^\n]{{2,160}})$", re.MULTILINE)
"""Slower: it has no signs that each of its finds begins with."""


def things_in(text: str) -> list[Thing]:
    """Return the things in a text in order; of those that overlap the longest."""
    found = [*_errors(text), *_quoted(text), *_dates(text), *_tokens(text)]
    found.sort(key=lambda thing: (thing.start, -thing.end))
    kept: list[Thing] = []
    end = 0
    for thing in found:
        if thing.start >= end:
            kept.append(thing)
            end = thing.end if thing.sort not in ("error", "quote") else thing.start
    return kept


def outline_of(value: str) -> str:
    """Return what values of one kind share: the marks in them and what stands between these, words,
    figures, or a mixture of some length; of a path where it begins and how it ends."""
    folders, slash, name = value.rpartition("/")
    if slash:
        ending = name.partition(":")[0].rpartition(".")[2]
        return f"{folders.lstrip('/').partition('/')[0]}/{ending}"
    return _LETTERS.sub(_made_of, value)


def _made_of(run: re.Match[str]) -> str:
    return "a" if run[0].isalpha() else "9" if run[0].isdigit() else str(len(run[0]))


def _errors(text: str) -> Iterator[Thing]:
    lowered = _lowered(text)
    end = 0
    for hint in _ERROR_HINT.finditer(lowered):
        match = _ERROR.match(lowered, hint.start()) if hint.start() >= end else None
        if match:
            end = match.end()
            before = _NAME_BEFORE.search(text, max(0, match.start() - 60), match.start())
            start = before.start() if before else match.start()
            said = text[start : min(match.end(), start + ERROR_MAX_CHARS)].rstrip(" \t\r,;.")
            if len(said) > 6:
                yield Thing("error", said, start, start + len(said))


def _quoted(text: str) -> Iterator[Thing]:
    pattern = _QUOTED_OR_TYPED if "$ " in text else _QUOTED
    for match in pattern.finditer(text):
        group = match.lastindex or 0
        start, end = match.span(group)
        name = text[start:end]
        if len(name) <= NAME_MAX_CHARS * 2 and not name.isspace():
            yield Thing("command" if group >= 7 and " " in name else "quote", name, start, end)


def _dates(text: str) -> Iterator[Thing]:
    lowered = _lowered(text)
    if _has_month(lowered):
        for match in _WORDED_DATE.finditer(lowered):
            yield Thing("date", text[match.start() : match.end()], *match.span())


def _has_month(lowered: str) -> bool:
    """Return whether a figure stands beside a month; cheaper to look for than worded dates."""
    return _DAY_OF_MONTH.search(lowered) is not None or any(
        _MONTH_BEFORE.search(lowered, max(0, at.start() - _MONTH_CHARS), at.start())
        for at in _FIGURE_NEXT.finditer(lowered)
    )


def _lowered(text: str) -> str:
    """Return the text in lower case if that keeps its length, as it does but for a few letters."""
    lowered = text.lower()
    return lowered if len(lowered) == len(text) else text


def _tokens(text: str) -> Iterator[Thing]:
    found: list[Thing | None] = []
    for match in _TOKEN.finditer(text):
        group = match.lastindex
        if group is None:
            continue
        token = match[group]
        if token.isalpha() and (token.islower() or token[1:].islower()):
            continue
        start = match.start(group)
        if not token.isascii() and _CJK.search(token):
            runs = _ASCII_RUN.finditer(token)
            found += [_judged(text, run[0], start + run.start()) for run in runs]
        elif "=" in token and "://" not in token and not token.startswith("-"):
            name, _, value = token.partition("=")
            found.append(_judged(text, value, start + len(name) + 1))
        else:
            found.append(_judged(text, token, start))
    return filter(None, found)


def _judged(text: str, token: str, start: int) -> Thing | None:
    """Return the thing that a token is, if it is one; the unit behind a number belongs to it."""
    stripped = token.rstrip(_TRAILING)
    size = len(stripped)
    if size < 2 or size > TOKEN_MAX_CHARS:
        if size == 1 and stripped.isdigit():
            end = _number_end(text, start + 1, digits=1)
            if end > start + 1:
                return Thing("number", text[start:end], start, end)
        return None
    if stripped.isalpha() and (stripped.islower() or stripped[1:].islower()):
        return None
    sort = "number" if stripped.isdecimal() else _sort_of(stripped)
    if not sort:
        return None
    end = start + size
    if sort == "number":
        end = _number_end(text, end, digits=size if stripped.isdigit() else 0)
    return Thing(sort, text[start:end], start, end)


def _sort_of(token: str) -> str:
    """Return the sort of a token, empty for none."""
    found = _ANY.fullmatch(token)
    sort = found.lastgroup.rstrip("0123456789") if found and found.lastgroup else ""
    return "" if sort == "path" and _PATH_NOT.fullmatch(token) else sort


def _number_end(text: str, end: int, *, digits: int) -> int:
    """Return where a number ends with more groups of its digits, if it has so few, and its unit."""
    groups = _THOUSANDS_AFTER.match(text, end) if 0 < digits <= 3 else None
    end = groups.end() if groups else end
    unit = _UNIT_AFTER.match(text, end)
    return unit.end() if unit else end
