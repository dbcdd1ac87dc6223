"""What the rows of a file say of its passes, line by line: which pointers can be, which passes are
whole. Values of a line have the right form already; see `survey.py`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from agent.base.record import dataclass
from agent.sessions.records import PassKind, PassStatus
from agent.sessions.rewind import FROM_SEQ
from agent.sessions.transfer import POINTERS, Entry

_COUNTED: Final = ("made_by", "compacted_by", "masked_by")
_HIDING: Final = frozenset({PassKind.REWIND, PassKind.UNDO})
_IN_FORCE: Final = (PassStatus.COMMITTED,)
_CLOSED: Final = (PassStatus.COMMITTED, PassStatus.UNDONE)
_WORDS: Final = {
    "made_by": "was made by",
    "compacted_by": "is covered by",
    "hidden_by": "is hidden by",
    "masked_by": "is masked by",
}


class Broken(Exception):
    """A line that cannot be taken; `line` is 0 for the one that was just read."""

    def __init__(self, why: str, line: int = 0) -> None:
        super().__init__(why)
        self.line = line


@dataclass
class _Pass:
    """One ledger row: what it says, and how many of its places have been read."""

    line: int
    number: int
    id: str
    status: PassStatus
    kind: PassKind
    watermark: int
    target: str | None
    expected: Mapping[str, int]
    found: dict[str, int]

    def is_there(self) -> bool:
        """Return whether every place it covers or made was read, and something it masks."""
        whole = all(self.found[p] == self.expected[p] for p in ("made_by", "compacted_by"))
        touched = self.found["compacted_by"] or self.found["masked_by"]
        return whole and bool(touched or not self.expected["masked_by"])


class LedgerSurvey:
    """The passes of a file, and the rows up to the line that was read last."""

    def __init__(self) -> None:
        self.rows = 0
        self.last_seq = 0
        self.closed_passes = 0
        self._passes: dict[str, _Pass] = {}
        self._covered_here: set[str] = set()
        self._stands_on: set[tuple[str, str]] = set()

    # -- passes -------------------------------------------------------------------------------
    def take_pass(self, line: int, entry: Entry) -> None:
        """Take one ledger row. Raises: Broken."""
        if entry["id"] in self._passes:
            raise Broken(f"pass {entry['id']!r} stands in the file twice")
        try:
            status, kind = PassStatus(entry["status"]), PassKind(entry["kind"])
        except ValueError as error:
            raise Broken(f"pass {entry['id']!r}: {error}") from None
        expected = {pointer: entry["places"].get(pointer) for pointer in _COUNTED}
        if not all(type(count) is int and count >= 0 for count in expected.values()):
            raise Broken(f"pass {entry['id']!r} does not say how many places it has")
        if kind is PassKind.REWIND and not _is_rewind_receipt(entry["receipt"]):
            raise Broken(f"rewind {entry['id']!r} does not say what it hides")
        self._passes[entry["id"]] = _Pass(
            line=line,
            number=len(self._passes),
            id=entry["id"],
            status=status,
            kind=kind,
            watermark=entry["watermark"],
            target=entry["target_pass"],
            expected=expected,
            found=dict.fromkeys(_COUNTED, 0),
        )
        self.closed_passes += status in _CLOSED

    def finish_passes(self) -> None:
        """Check the ledger as a whole. Raises: Broken."""
        undos = {
            each.target: each
            for each in self._passes.values()
            if each.kind is PassKind.UNDO and each.status is PassStatus.COMMITTED
        }
        for each in self._passes.values():
            if (each.status is PassStatus.UNDONE) != (each.id in undos):
                word = "undone, but no undo names it" if each.id not in undos else "not undone"
                raise Broken(f"pass {each.id!r} is {word}", each.line)
        for target, undo in undos.items():
            if target not in self._passes:
                raise Broken(
                    f"undo {undo.id!r} names pass {target!r}, which is not there", undo.line
                )

    # -- rows ---------------------------------------------------------------------------------
    def take_row(self, entry: Entry) -> None:
        """Take one row with its place. Raises: Broken."""
        place = entry.get("place", {})
        makers = {p: self._named(entry, p, place[p]) for p in POINTERS if p in place}
        self._check_number(entry, makers.get("made_by"))
        self._check_pointers(entry["seq"], makers)
        self._check_mask(entry["seq"], place)
        if "made_by" not in makers:
            self.last_seq = entry["seq"]
            self._covered_here = set()
        self._check_live(entry["seq"], makers)
        for pointer in _COUNTED:
            if pointer in makers:
                makers[pointer].found[pointer] += 1
        self.rows += 1

    def _named(self, entry: Entry, pointer: str, pass_id: Any) -> _Pass:
        named = self._passes.get(pass_id) if isinstance(pass_id, str) else None
        if named is None:
            raise Broken(
                f"row {entry['seq']} {_WORDS[pointer]} pass {pass_id!r:.60}, which is not there"
            )
        statuses = _CLOSED if pointer == "made_by" else _IN_FORCE
        hides = named.kind in _HIDING
        if named.status not in statuses or hides != (pointer == "hidden_by"):
            raise Broken(
                f"row {entry['seq']} {_WORDS[pointer]} pass {named.id!r}, which is a {named.kind} "
                f"and {named.status}"
            )
        return named

    def _check_number(self, entry: Entry, maker: _Pass | None) -> None:
        """Accepted rows are numbered from 1 without a gap; a made one stands behind the last."""
        expected = self.last_seq + 1 if maker is None else self.last_seq
        if entry["seq"] != expected or not expected:
            raise Broken(f"row {entry['seq']} stands where row {expected} belongs")
        if (entry["kind"] == "message") != (maker is None):
            raise Broken(f"row {entry['seq']} has kind {entry['kind']!r:.40}, which cannot be")

    def _check_pointers(self, seq: int, makers: Mapping[str, _Pass]) -> None:
        maker, hider = makers.get("made_by"), makers.get("hidden_by")
        for pointer, each in makers.items():
            if maker is not None and pointer != "made_by" and each.number <= maker.number:
                raise Broken(f"row {seq} {_WORDS[pointer]} pass {each.id!r}, older than the row")
        of_another = hider is not None and (maker is None or hider.target != maker.id)
        if hider is not None and hider.kind is PassKind.UNDO and of_another:
            raise Broken(f"row {seq} is hidden by undo {hider.id!r}, which names another pass")
        if maker is not None and maker.status is PassStatus.UNDONE:
            if hider is None or "compacted_by" in makers:
                raise Broken(f"row {seq} is in use, but pass {maker.id!r} that made it was undone")

    def _check_mask(self, seq: int, place: Mapping[str, Any]) -> None:
        stub, tokens = place.get("stub"), place.get("tokens")
        if "masked_by" not in place:
            sound = stub is None and tokens is None
        else:
            sound = (
                isinstance(stub, dict)
                and not any(key.startswith("_") or key == "role" for key in stub)
                and type(tokens) is int
                and tokens >= 0
            )
        if not sound:
            raise Broken(f"row {seq} has a mask that cannot be")

    def _check_live(self, seq: int, makers: Mapping[str, _Pass]) -> None:
        """A row that a pass in force made takes the seq of the last place that it covers: so of
        the places with one seq, one is live at most, and stays so when passes are left out."""
        maker, cover = makers.get("made_by"), makers.get("compacted_by")
        if maker is not None and maker.status is PassStatus.COMMITTED:
            if maker.id not in self._covered_here:
                raise Broken(f"row {seq} was made by pass {maker.id!r}, which covers no row there")
            self._covered_here.discard(maker.id)
        if cover is not None:
            self._covered_here.add(cover.id)
            if maker is not None:
                self._stands_on.add((maker.id, cover.id))

    # -- the end ------------------------------------------------------------------------------
    def end(self) -> None:
        """Check at the end of the file that every pass is whole. Raises: Broken."""
        for each in self._passes.values():
            if each.found != each.expected:
                raise Broken(
                    f"pass {each.id!r} should cover {each.expected['compacted_by']} rows, mask "
                    f"{each.expected['masked_by']} and make {each.expected['made_by']}; the file "
                    f"has {each.found['compacted_by']}, {each.found['masked_by']} and "
                    f"{each.found['made_by']}",
                    each.line,
                )

    def left_out(self) -> frozenset[str]:
        """Return the passes that are not in force up to the last row, and those on top of them."""
        out = {each.id for each in self._passes.values() if not self._holds(each)}
        while more := {above for below, above in self._stands_on if below in out} - out:
            out |= more
        return frozenset(out)

    def _holds(self, each: _Pass) -> bool:
        if each.status is not PassStatus.COMMITTED or each.kind is PassKind.UNDO:
            return True
        if each.kind is PassKind.REWIND:
            return each.watermark <= self.last_seq
        return each.is_there()


def _is_rewind_receipt(receipt: Mapping[str, Any]) -> bool:
    return type(receipt.get(FROM_SEQ)) is int and isinstance(receipt.get("hidden"), str)
