"""Publishing a pass: one transaction, in the order that `SessionStore.commit_pass` promises."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Sequence
from operator import itemgetter

import orjson

from agent.base.errors import PassRefused, PassSuperseded, UsageError
from agent.base.record import dataclass
from agent.sessions import cooldowns
from agent.sessions import statements as sql
from agent.sessions.accept import Incoming, Origin, accept, insert_row, make_ready
from agent.sessions.leases import require_token
from agent.sessions.passes import closed_pass, pass_state
from agent.sessions.places import (
    LAST_SEQ,
    live_rows,
    read_head,
    read_pass_ids,
    read_view,
    show_masked,
    totals,
)
from agent.sessions.records import PassCommit, PassStatus, View
from agent.sessions.rotation import rotate
from agent.sessions.rows import dump_record
from agent.sessions.sqlite import Connection


@dataclass(frozen=True)
class Draft:
    """A commit with everything encoded that can be encoded before the write lock is taken."""

    commit: PassCommit
    pending: Sequence[Incoming]
    new_row: Incoming | None
    stubs: Sequence[str]
    receipt: str
    durations: str


_Place = tuple[int, int, int, str | None]
"""seq, row id, tokens as shown, id of the pass that masked it; there may be tens of thousands."""


def draft_commit(commit: PassCommit) -> Draft:
    """Check and encode a commit. Raises: UsageError: it contradicts itself."""
    for fault, is_there in _faults(commit).items():
        if is_there:
            raise UsageError(f"pass {commit.pass_id!r} {fault}")
    return Draft(
        commit,
        [make_ready(message) for message in commit.pending],
        make_ready(commit.new_row.message) if commit.new_row else None,
        [dump_record(place.stub, "a stub") for place in commit.mask],
        dump_record(commit.receipt, "the receipt"),
        dump_record(commit.durations, "durations"),
    )


def _faults(commit: PassCommit) -> dict[str, bool]:
    masked = [place.row_id for place in commit.mask]
    touched = [*commit.cover, *masked]
    pending = range(len(commit.pending))
    return {
        "makes a row but covers none; name what it covers": (
            commit.new_row is not None and not (commit.cover or commit.cover_pending)
        ),
        "names a row twice; cover or mask each row once": len(set(touched)) < len(touched),
        f"covers pending rows {list(commit.cover_pending)}, there are {len(pending)}": (
            not set(commit.cover_pending) <= set(pending)
        ),
    }


def commit_pass(
    connection: Connection, draft: Draft, admit: Callable[[], bool], now: float
) -> View:
    """Publish a pass inside the caller's write transaction and return the new view."""
    commit = draft.commit
    if not admit():
        raise PassRefused(f"pass {commit.pass_id!r} was stopped before its commit")
    lease = commit.lease
    require_token(connection, lease.conversation_id, lease.token, lease.holder)
    ordinal, conversation_id, status, token = pass_state(connection, commit.pass_id)
    if status not in (PassStatus.PLANNED, PassStatus.PREPARED):
        raise closed_pass(commit.pass_id, status)
    if conversation_id != lease.conversation_id or token != lease.token:
        raise PassSuperseded(f"pass {commit.pass_id!r} belongs to another lease; adopt it first")
    before = read_view(connection, lease.session_id, commit.seen) if commit.seen else None
    touched = _touched_places(connection, commit, before)
    pending = _accept_pending(connection, draft, now)
    covered = _covered(touched, pending, commit)
    gained = _mask(connection, draft, ordinal, touched)
    _cover(connection, conversation_id, ordinal, covered)
    gained -= sum(tokens for _seq, _row_id, tokens, _mask in covered)
    count = -len(covered)
    if draft.new_row is not None:
        _insert_made(connection, draft, ordinal, covered[-1][0], now)
        gained += draft.new_row.tokens
        count += 1
    connection.execute(sql.COUNT_LIVE, (count, gained, conversation_id))
    generation = connection.execute(sql.BUMP_GENERATION, (1, conversation_id)).fetchone()[0]
    cooldowns.reset_anchor(connection, conversation_id)
    cooldowns.write_guards(connection, conversation_id, commit.guards)
    _close(connection, draft, ordinal, generation, now)
    if commit.child_session_id:
        rotate(connection, conversation_id, commit.child_session_id, now)
    if before is None:
        return read_view(connection, lease.session_id)
    return _view_after(connection, before, draft, covered)


def _view_after(
    connection: Connection, before: View, draft: Draft, covered: Sequence[_Place]
) -> View:
    """Return the view behind a commit: of the one before it with what was changed, and of the rows
    that the commit inserted."""
    session_id, conversation_id = draft.commit.lease.session_id, before.conversation_id
    *_head, generation, watermark, tokens, count = connection.execute(
        sql.VIEW_HEAD, (session_id,)
    ).fetchone()
    gone = {row_id for _seq, row_id, _tokens, _mask in covered}
    stubs = dict(zip((place.row_id for place in draft.commit.mask), draft.stubs, strict=True))
    sizes = {place.row_id: place.tokens for place in draft.commit.mask}
    messages = []
    for row in before.messages:
        row_id = row["_row_id"]
        if row_id in gone:
            continue
        if row_id in stubs:
            row = {**row, "_tokens": sizes[row_id]}
            show_masked(row, orjson.loads(stubs[row_id]), draft.commit.pass_id)
        messages.append(row)
    messages += live_rows(connection, conversation_id, before.watermark)
    last = covered[-1][0] if draft.new_row is not None else LAST_SEQ
    if last <= before.watermark:
        place = bisect_left(messages, last, key=itemgetter("_seq"))
        messages[place:place] = live_rows(connection, conversation_id, last - 1, last)
    if totals(messages) != (count, tokens):
        return read_view(connection, session_id)
    return View(conversation_id, generation, watermark, messages, tokens)


def _touched_places(
    connection: Connection, commit: PassCommit, before: View | None
) -> list[_Place]:
    """Return the live places that are covered or masked, in order; those of a view that is known to
    be current are not read.

    Raises: PassSuperseded when one is not live any more or not as it was seen.
    """
    touched = {*commit.cover, *(place.row_id for place in commit.mask)}
    if before is not None:
        found: list[_Place] = [
            (row["_seq"], row["_row_id"], row["_tokens"], row.get("_masked_by"))
            for row in before.messages
            if row["_row_id"] in touched
        ]
    else:
        conversation_id = commit.lease.conversation_id
        pass_ids = read_pass_ids(connection, conversation_id)
        places = connection.execute(sql.LIVE_PLACES, (conversation_id,)).fetchall()
        found = [(*place, pass_ids.get(mask)) for *place, mask in places if place[1] in touched]
    gone = touched.difference(row_id for _seq, row_id, _tokens, _mask in found)
    if gone:
        raise _superseded(commit, f"row {min(gone)} is not live any more")
    for _seq, row_id, _tokens, mask in found:
        if mask != commit.seen_masks.get(row_id):
            raise _superseded(commit, f"row {row_id} was masked meanwhile")
    return found


def _superseded(commit: PassCommit, why: str) -> PassSuperseded:
    return PassSuperseded(f"pass {commit.pass_id!r} is out of date: {why}; plan again")


def _accept_pending(connection: Connection, draft: Draft, now: float) -> list[_Place]:
    commit = draft.commit
    if not draft.pending:
        return []
    watermark = read_head(connection, commit.lease.session_id).watermark
    if watermark != commit.watermark:
        raise _superseded(
            commit,
            f"rows up to {watermark} were accepted, it was planned at {commit.watermark}",
        )
    stored = accept(connection, commit.lease.session_id, draft.pending, now)
    return [(row["_seq"], row["_row_id"], row["_tokens"], None) for row in stored]


def _covered(
    touched: Sequence[_Place], pending: Sequence[_Place], commit: PassCommit
) -> list[_Place]:
    """Return what is covered, in the order of the view."""
    cover = set(commit.cover)
    stored = [place for place in touched if place[1] in cover]
    return stored + [pending[index] for index in sorted({*commit.cover_pending})]


def _mask(connection: Connection, draft: Draft, ordinal: int, touched: Sequence[_Place]) -> int:
    """Mask places and return by how many tokens the view changed."""
    commit = draft.commit
    if not commit.mask:
        return 0
    places = {place[1]: place for place in touched}
    gained, changes = 0, []
    for place, stub in zip(commit.mask, draft.stubs, strict=True):
        seq, row_id, tokens, _masked_by = places[place.row_id]
        gained += place.tokens - tokens
        where = (commit.lease.conversation_id, seq, row_id)
        changes.append((ordinal, stub, place.tokens, *where))
    if connection.executemany(sql.MASK_PLACE, changes).rowcount != len(changes):
        raise _superseded(commit, "places changed while they were masked")
    return gained


def _cover(
    connection: Connection, conversation_id: int, ordinal: int, covered: Sequence[_Place]
) -> None:
    """Point covered places at the pass: one statement for each run of neighbours."""
    for first, last, count in _runs(covered):
        cursor = connection.execute(sql.COVER_RUN, (ordinal, conversation_id, first, last))
        if cursor.rowcount != count:
            raise PassSuperseded(f"places {first} to {last} changed while they were covered")


def _runs(places: Iterable[_Place]) -> list[tuple[int, int, int]]:
    """Return (first seq, last seq, count) of each run of places whose seqs follow each other.

    Covered rows that are not in the view lie in the gaps; no run reaches over one.
    """
    runs: list[tuple[int, int, int]] = []
    first = last = count = 0
    for seq, _row_id, _tokens, _masked_by in places:
        if seq != last + 1 and count:
            runs.append((first, last, count))
            count = 0
        if not count:
            first = seq
        last, count = seq, count + 1
    if count:
        runs.append((first, last, count))
    return runs


def _insert_made(connection: Connection, draft: Draft, ordinal: int, seq: int, now: float) -> None:
    commit, made = draft.commit, draft.new_row
    assert made is not None
    assert commit.new_row is not None
    family = connection.execute(sql.FAMILY_OF, (commit.lease.conversation_id,)).fetchone()[0]
    origin = Origin(commit.lease.session_id, family, seq, commit.new_row.kind, now)
    row_id = insert_row(connection, origin, made.row.values, made.tokens)
    connection.execute(
        sql.NEW_PLACE, (commit.lease.conversation_id, seq, row_id, made.tokens, ordinal)
    )


def _close(connection: Connection, draft: Draft, ordinal: int, generation: int, now: float) -> None:
    commit = draft.commit
    connection.execute(
        sql.COMMIT_PASS,
        (
            commit.kind,
            commit.strategy,
            commit.failure_class,
            generation,
            commit.tokens_after,
            commit.messages_after,
            commit.cost,
            draft.durations,
            draft.receipt,
            draft.receipt,
            now,
            commit.child_session_id or None,
            ordinal,
        ),
    )
