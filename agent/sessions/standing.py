"""Taking compactions back: what they made is hidden, then what they covered or masked is free.

A pass that covers or masks a row of another stands on it and goes first. Everything is decided on
the conversation's pointers, read once; then each pointer is written once. Read next: `undo.py`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import field

from agent.base.ids import new_pass_id
from agent.base.record import dataclass
from agent.base.seqs import seq_ranges
from agent.sessions import cooldowns
from agent.sessions import statements as sql
from agent.sessions.passes import insert_pass, read_pass
from agent.sessions.places import read_pass_ids, read_view
from agent.sessions.records import Guards, PassKind, PassStatus, UndoResult
from agent.sessions.rows import dump_json
from agent.sessions.sqlite import Connection


@dataclass(frozen=True)
class Scope:
    """Where and when a view is changed: the session as it was named, and its conversation."""

    session_id: str
    conversation_id: int
    at: float


@dataclass(frozen=True)
class Totals:
    """Rows and estimated tokens of a live view."""

    count: int
    tokens: int


@dataclass(frozen=True)
class Change:
    """What a ledger row tells of an undo or a rewind beside its numbers."""

    kind: PassKind
    receipt: dict[str, object]
    target_pass: str | None = None
    passes_in_force: int = 0
    """By how many the compactions in force become more."""


@dataclass
class _Place:
    """A place that some pass points at; numbers of passes are those that places carry."""

    seq: int
    row_id: int
    tokens: int
    made_by: int | None
    compacted_by: int | None
    masked_by: int | None
    is_hidden: bool

    @property
    def is_live(self) -> bool:
        return self.compacted_by is None and not self.is_hidden


@dataclass
class _Traces:
    """What one pass left in places, by what it did to them."""

    made: list[_Place] = field(default_factory=list)
    covered: list[_Place] = field(default_factory=list)
    masked: list[_Place] = field(default_factory=list)

    def receipt(self) -> dict[str, object]:
        """Return what taking the pass back changes, as seqs."""
        return {
            "hidden": seq_ranges(place.seq for place in self.made),
            "freed": seq_ranges(place.seq for place in self.covered),
            "unmasked": seq_ranges(place.seq for place in self.masked),
        }


def take_over(connection: Connection, scope: Scope) -> None:
    """Void the conversation's lease and its open pass, whoever works on it: a person's change of
    the view goes first."""
    connection.execute(sql.SEIZE_LEASE, (scope.conversation_id,))
    connection.execute(sql.SUPERSEDE_OPEN, (scope.at, scope.conversation_id))


def undo_standing(
    connection: Connection, scope: Scope, targets: Iterable[int], *, stops: str = ""
) -> list[str]:
    """Undo compactions and all that stand on them, newest first; return the ids of the ledger rows.

    `targets` are numbers as places carry them; `stops` names what ends with them for good.
    """
    conversation_id = scope.conversation_id
    places = [_Place(*row) for row in connection.execute(sql.POINTED_PLACES, (conversation_id,))]
    traces = _read_traces(places, _with_followers(places, targets))
    whole_tokens = dict(connection.execute(sql.TOKENS_OF_MASKED, (conversation_id,)).fetchall())
    pass_ids = read_pass_ids(connection, conversation_id)
    ledger, hidden = [], []
    for ordinal in sorted(traces, reverse=True):
        trace = traces[ordinal]
        connection.execute(sql.MARK_UNDONE, (ordinal,))
        receipt = trace.receipt() | ({"stops": stops} if stops else {})
        change = Change(PassKind.UNDO, receipt, pass_ids[ordinal], passes_in_force=-1)
        pass_id, number = record_change(connection, scope, change, _take_back(trace, whole_tokens))
        ledger.append(pass_id)
        hidden += [(number, conversation_id, place.seq, place.row_id) for place in trace.made]
    # Hidden first: a summary and what it covers are never live together.
    connection.executemany(sql.HIDE_PLACE, hidden)
    connection.execute(sql.FREE_UNDONE, (conversation_id, conversation_id))
    connection.executemany(
        sql.UNMASK_PLACE,
        [
            (place.tokens, conversation_id, place.seq, place.row_id)
            for trace in traces.values()
            for place in trace.masked
        ],
    )
    return ledger


def _with_followers(places: Sequence[_Place], targets: Iterable[int]) -> set[int]:
    """Return the targets and every pass that stands on a row of one of them, over any steps."""
    followers: dict[int, set[int]] = {}
    for place in places:
        if place.made_by is not None:
            on_it = {place.compacted_by, place.masked_by} - {None}
            followers.setdefault(place.made_by, set()).update(n for n in on_it if n is not None)
    found: set[int] = set()
    waiting = list(targets)
    while waiting:
        ordinal = waiting.pop()
        if ordinal not in found:
            found.add(ordinal)
            waiting += followers.get(ordinal, ())
    return found


def _read_traces(places: Sequence[_Place], ordinals: set[int]) -> dict[int, _Traces]:
    traces = {ordinal: _Traces() for ordinal in ordinals}
    for place in places:
        if place.made_by in traces:
            traces[place.made_by].made.append(place)
        if place.compacted_by in traces:
            traces[place.compacted_by].covered.append(place)
        if place.masked_by in traces:
            traces[place.masked_by].masked.append(place)
    return traces


def _take_back(trace: _Traces, whole_tokens: dict[int, int]) -> Totals:
    """Take one pass out of its places and return by how much the live view grows."""
    count = tokens = 0
    for place in trace.made:
        if place.is_live:
            count, tokens = count - 1, tokens - place.tokens
        place.is_hidden = True
    for place in trace.covered:
        place.compacted_by = None
        if place.is_live:
            count, tokens = count + 1, tokens + place.tokens
    for place in trace.masked:
        shown, place.tokens = place.tokens, whole_tokens[place.row_id]
        if place.is_live:
            tokens += place.tokens - shown
    return Totals(count, tokens)


def record_change(
    connection: Connection, scope: Scope, change: Change, growth: Totals
) -> tuple[str, int]:
    """Write the ledger row of a change and count it; return its id and the number for places."""
    conversation_id = scope.conversation_id
    before = Totals(*connection.execute(sql.LIVE_TOTALS, (conversation_id,)).fetchone())
    connection.execute(sql.COUNT_LIVE, (growth.count, growth.tokens, conversation_id))
    connection.execute(sql.BUMP_GENERATION, (change.passes_in_force, conversation_id))
    pass_id = new_pass_id()
    ordinal = insert_pass(
        connection,
        pass_id=pass_id,
        conversation_id=conversation_id,
        session_id=scope.session_id,
        status=PassStatus.COMMITTED,
        kind=change.kind,
        trigger="manual",
        strategy=change.kind,
        tokens_before=before.tokens,
        tokens_after=before.tokens + growth.tokens,
        messages_before=before.count,
        messages_after=before.count + growth.count,
        receipt=dump_json(change.receipt, "the receipt"),
        target_pass=change.target_pass,
        created_at=scope.at,
        finished_at=scope.at,
    )
    return pass_id, ordinal


def finish(
    connection: Connection, scope: Scope, ledger: Iterable[str], guards: Guards
) -> UndoResult:
    """Write what the changed view means for later passes, and return the change."""
    cooldowns.reset_anchor(connection, scope.conversation_id)
    cooldowns.write_guards(connection, scope.conversation_id, guards)
    records = [read_pass(connection, pass_id, scope.conversation_id) for pass_id in ledger]
    return UndoResult(tuple(records), read_view(connection, scope.session_id))
