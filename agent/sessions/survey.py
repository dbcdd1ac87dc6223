"""Judging a file of `transfer.py` before anything of it is stored: how far it can be taken.

Nothing is kept in memory but the ledger's figures. What is taken obeys every law that
`SessionStore.check` checks: a pass whose places are not all there is not in force, as in a fork.
Read next: `ledger_survey.py` (what the rows must say of the passes), `intake.py`.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable, Mapping
from typing import Any, Final

import orjson

from agent.base.errors import UsageError
from agent.base.messages import clean_value
from agent.base.record import dataclass
from agent.sessions.blobs import Blob, is_true
from agent.sessions.ledger_survey import Broken, LedgerSurvey
from agent.sessions.rows import encode_row
from agent.sessions.transfer import FORMAT, RECORDS, VERSION, Entry, LineSource

LONGEST_LINE: Final = 1024 * 1024 * 1024
"""Bytes of one line above which a file is not read on."""
_LARGEST: Final = 2**53


@dataclass(frozen=True)
class Break:
    """The line, from 1, from which on a file cannot be taken, and why."""

    line: int
    why: str


@dataclass(frozen=True)
class Survey:
    """What can be taken: every line up to `last_line`, but for the passes in `left_out`."""

    header: Entry
    last_line: int
    rows: int
    """Rows up to there, those of passes that are left out too."""
    last_seq: int
    closed_passes: int
    left_out: frozenset[str]
    broken: Break | None


def survey_file(source: LineSource) -> Survey:
    """Read a whole file and return how far it can be taken.

    Raises: UsageError: it is no export, of another version, or breaks before its first row.
    """
    reading = _Reading(_header(source))
    broken = None
    try:
        while (line := read_line(source)) is not None:
            reading.take(line)
        reading.end()
    except Broken as fault:
        broken = Break(fault.line or reading.line, str(fault))
    ledger = reading.ledger
    if broken is not None and not ledger.rows:
        raise UsageError(f"line {broken.line}: {broken.why}; nothing can be imported")
    return Survey(
        reading.header,
        reading.last_line,
        ledger.rows,
        ledger.last_seq,
        ledger.closed_passes,
        ledger.left_out(),
        broken,
    )


def read_line(source: LineSource) -> bytes | None:
    """Return the next line without its end, or None at the end of the file."""
    line = source.readline(LONGEST_LINE)
    return line.rstrip(b"\n") if line else None


def _header(source: LineSource) -> Entry:
    try:
        header = orjson.loads(read_line(source) or b"")
    except orjson.JSONDecodeError:
        header = None
    if not isinstance(header, dict) or header.get("format") != FORMAT:
        raise UsageError(
            "line 1: this is no export of `hermes sessions export`; its first line would say "
            f'"format": "{FORMAT}"'
        )
    if header.get("version") != VERSION:
        raise UsageError(
            f"line 1: the export has version {header.get('version')!r}, this program reads "
            f"{VERSION}; use the program that wrote it"
        )
    if _fault(_HEADER, header) or _fault(dict.fromkeys(_ORDER, _is_count), header["counts"]):
        raise UsageError("line 1: the header is damaged; nothing can be imported")
    return header


# -- the form of lines ------------------------------------------------------------------------
def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _is_name(value: Any) -> bool:
    return isinstance(value, str) and bool(value)


def _is_whole(value: Any) -> bool:
    return type(value) is int and abs(value) < _LARGEST


def _is_count(value: Any) -> bool:
    return _is_whole(value) and value >= 0


def _is_instant(value: Any) -> bool:
    return type(value) in (int, float) and abs(value) < _LARGEST


def _is_object(value: Any) -> bool:
    return isinstance(value, dict)


def _or_none(check: Callable[[Any], bool]) -> Callable[[Any], bool]:
    return lambda value: value is None or check(value)


def _is_list(value: Any) -> bool:
    return isinstance(value, list)


def _is_extract(value: Any) -> bool:
    checks = (_is_count, _is_name, _is_text, _is_text)
    return (
        isinstance(value, list)
        and len(value) == len(checks)
        and all(check(part) for check, part in zip(checks, value, strict=True))
    )


_Form = Mapping[str, Callable[[Any], bool]]
_HEADER: Final[_Form] = {
    "session_id": _is_name,
    "generation": _is_count,
    "last_active_at": _is_instant,
    "counts": _is_object,
}
_FORMS: Final[Mapping[str, _Form]] = {
    "session": {
        **dict.fromkeys(("id", "source"), _is_name),
        **dict.fromkeys(
            ("model", "system_prompt", "parent_session_id", "end_reason", "cwd"), _or_none(_is_text)
        ),
        "title": _or_none(lambda title: isinstance(title, str) and bool(title.strip())),
        "started_at": _is_instant,
        "ended_at": _or_none(_is_instant),
    },
    "pass": {
        **dict.fromkeys(("id", "session_id", "status", "kind", "trigger"), _is_name),
        **dict.fromkeys(("strategy", "failure_class", "detail", "model", "route"), _is_text),
        **dict.fromkeys(("generation", "count", "watermark"), _is_count),
        **dict.fromkeys(
            ("lease_token", "tokens_before", "tokens_after", "messages_before", "messages_after"),
            _or_none(_is_count),
        ),
        **dict.fromkeys(("gain_predicted", "gain_actual"), _or_none(_is_whole)),
        **dict.fromkeys(("target_pass", "child_session_id"), _or_none(_is_name)),
        **dict.fromkeys(("cost", "finished_at"), _or_none(_is_instant)),
        "created_at": _is_instant,
        "places": _is_object,
    },
    "pin": {
        "text": _is_name,
        "retired_by": _or_none(_is_text),
        "created_at": _is_instant,
        "retired_at": _or_none(_is_instant),
        **dict.fromkeys(("source_seq", "retired_seq"), _or_none(_is_count)),
    },
    "blob": {"sha256": _is_name, "size": _is_count, "zstd": _is_text},
    "row": {
        **dict.fromkeys(("kind", "session_id"), _is_name),
        **dict.fromkeys(("seq", "tokens"), _is_count),
        "at": _is_instant,
        "message": _is_object,
    },
}
_OPTIONAL: Final[_Form] = {"place": _is_object, "extracts": _is_list, "blob": _is_name}
_RANKS: Final = {"session": 0, "pass": 1, "pin": 2, "blob": 3, "row": 3}
_ORDER: Final = ("session", "pass", "pin", "row")
_KNOWN_RECORDS: Final = {
    "session": RECORDS & {"model_config", "origin"},
    "pass": RECORDS & {"plan", "durations", "receipt"},
}


def _fault(form: _Form, entry: Any) -> str:
    """Return the field of an entry that is missing or has no such value, "" when all are well."""
    return next((name for name, check in form.items() if not check(entry.get(name))), "")


class _Reading:
    """How far a file has been read."""

    def __init__(self, header: Entry) -> None:
        self.header = header
        self.line = 1
        self.last_line = 1
        self.ledger = LedgerSurvey()
        self._counts: dict[str, int] = dict.fromkeys(_ORDER, 0)
        self._rank = 0
        self._session = ""
        self._blobs: set[str] = set()
        self._take: Mapping[str, Callable[[Entry], None]] = {
            "session": self._take_session,
            "pass": lambda entry: self.ledger.take_pass(self.line, entry),
            "pin": lambda entry: None,
            "blob": self._take_blob,
            "row": self._take_row,
        }

    def take(self, line: bytes) -> None:
        """Take the next line. Raises: Broken: it cannot be taken."""
        self.line += 1
        entry = parse_entry(line)
        kind = entry.get("type")
        if not isinstance(kind, str) or kind not in _FORMS:
            raise Broken(f"no line of an export has the type {kind!r:.40}")
        if _RANKS[kind] < self._rank:
            raise Broken(f"a {kind} stands behind lines that it belongs before")
        if _RANKS[kind] > self._rank:
            self._finish_before(_RANKS[kind])
        form = {**_FORMS[kind], **dict.fromkeys(_KNOWN_RECORDS.get(kind, ()), _is_object)}
        optional = {name: check for name, check in _OPTIONAL.items() if name in entry}
        fault = _fault(form, entry) or (_fault(optional, entry) if kind == "row" else "")
        if fault:
            raise Broken(f"the {kind} has {fault} {entry.get(fault)!r:.60}, which cannot be")
        self._take[kind](entry)
        if kind != "blob":
            self._counts[kind] += 1
            if self._counts[kind] > self.header["counts"][kind]:
                raise Broken(f"there is one {kind} more than the header says")
            self.last_line = self.line

    def end(self) -> None:
        """Take the end of the file. Raises: Broken: something is missing."""
        self._finish_before(_RANKS["row"] + 1)
        self.ledger.end()

    def _finish_before(self, rank: int) -> None:
        """Check that everything of a lower rank is complete."""
        for kind in _ORDER:
            wanted, found = self.header["counts"][kind], self._counts[kind]
            if self._rank <= _RANKS[kind] < rank and found < wanted:
                if rank > _RANKS["row"]:
                    self.line += 1
                raise Broken(f"{found} of {wanted} {kind} lines are there, the others are missing")
        if self._rank <= _RANKS["session"] < rank and self._session != self.header["session_id"]:
            raise Broken(f"session {self.header['session_id']!r}, the newest, is not there")
        if self._rank <= _RANKS["pass"] < rank:
            self.ledger.finish_passes()
        self._rank = rank

    def _take_session(self, entry: Entry) -> None:
        if self._session and entry["parent_session_id"] != self._session:
            raise Broken(f"session {entry['id']!r} does not follow session {self._session!r}")
        self._session = entry["id"]

    def _take_blob(self, entry: Entry) -> None:
        blob = decode_blob(entry)
        if blob is None or not is_true(blob):
            raise Broken(f"the data of blob {entry['sha256']!r:.70} is damaged")
        self._blobs.add(blob.sha256)

    def _take_row(self, entry: Entry) -> None:
        try:
            encode_row(entry["message"])
        except UsageError as error:
            raise Broken(str(error)) from None
        if "blob" in entry and entry["blob"] not in self._blobs:
            raise Broken(f"row {entry['seq']} needs blob {entry['blob']!r:.70}, which is not there")
        for found in entry.get("extracts", ()):
            if not _is_extract(found):
                raise Broken(f"row {entry['seq']} has the extract {found!r:.60}, which cannot be")
        self.ledger.take_row(entry)


def parse_entry(line: bytes) -> Entry:
    """Return a line as an object with storable strings. Raises: Broken: it is none."""
    try:
        entry = orjson.loads(line)
    except orjson.JSONDecodeError as error:
        what = "the line is cut off or no JSON" if line else "the line is empty"
        raise Broken(f"{what} ({error})") from None
    if not isinstance(entry, dict):
        raise Broken("the line is no JSON object")
    return clean_value(entry) if rb"\u0000" in line else entry


def decode_blob(entry: Entry) -> Blob | None:
    """Return the blob of a line, None when its data is no base64."""
    try:
        data = base64.b64decode(entry["zstd"], validate=True)
    except (binascii.Error, ValueError):
        return None
    return Blob(entry["sha256"], data, entry["size"])
