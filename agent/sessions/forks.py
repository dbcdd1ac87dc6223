"""Forking a conversation: places of its own that point at the same rows, up to one of them.

The fork has its own status of every pass it inherits, so an undo in one leaves the other alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from agent.base.errors import UsageError
from agent.base.messages import clean_text
from agent.base.record import dataclass
from agent.sessions import cooldowns
from agent.sessions import statements as sql
from agent.sessions.directory import read_session, read_tip, require_free_title
from agent.sessions.places import LAST_SEQ, conversation_of
from agent.sessions.records import SessionRecord
from agent.sessions.rotation import require_free_id
from agent.sessions.sqlite import Connection, insert_id


@dataclass(frozen=True)
class Fork:
    """What is asked of a fork; `up_to_seq` None takes the whole conversation."""

    session_id: str
    new_id: str
    up_to_seq: int | None
    title: str | None


_Place = tuple[int, int, int, int | None, int | None, int | None, int | None, str | None]
"""seq, row id, tokens, made by, compacted by, hidden by, masked by, stub: as the database gives it,
because there may be tens of thousands."""


def fork_conversation(connection: Connection, fork: Fork, now: float) -> SessionRecord:
    """Make the new conversation and return its session."""
    require_free_id(connection, fork.new_id)
    require_free_title(connection, None, fork.title)
    parent_id = conversation_of(connection, fork.session_id)
    tip = read_tip(connection, parent_id)
    last = LAST_SEQ if fork.up_to_seq is None else fork.up_to_seq
    child_id = insert_id(connection, sql.FORKED_CONVERSATION, (now, fork.new_id, parent_id))
    title = None if fork.title is None else clean_text(fork.title)
    connection.execute(sql.DESCENDANT_SESSION, (fork.new_id, child_id, title, now, "{}", tip.id))
    places = connection.execute(sql.PLACES_OF, (parent_id,)).fetchall()
    rewinds = connection.execute(sql.REWINDS_WITHIN, (parent_id, last)).fetchall()
    within = _compactions_within(places, last).union(ordinal for (ordinal,) in rewinds)
    passes = {
        ordinal: insert_id(connection, sql.INHERIT_PASS, (child_id, ordinal))
        for ordinal in sorted(within)
    }
    whole_tokens = dict(connection.execute(sql.TOKENS_OF_MASKED, (parent_id,)).fetchall())
    inherited = list(_inherited(places, last, passes, whole_tokens))
    if not inherited:
        lacking = f"session {fork.session_id!r} has no row"
        if fork.up_to_seq is None:
            raise UsageError(f"{lacking} to fork; send a message first")
        raise UsageError(f"{lacking} up to {last} to fork; give a higher row")
    connection.executemany(sql.INHERIT_PLACE, [(child_id, *place) for place in inherited])
    connection.execute(sql.RECOUNT, (child_id,))
    connection.execute(sql.INHERIT_PINS, (child_id, parent_id, last))
    connection.execute(sql.REVIVE_PINS, (child_id, last))
    cooldowns.write_anchor(connection, child_id, cooldowns.read_anchor(connection, parent_id))
    cooldowns.reset_anchor(connection, child_id)
    return read_session(connection, fork.new_id)


def _compactions_within(places: Iterable[_Place], last: int) -> set[int]:
    """Return the passes that did something up to `last` and cover nothing behind it."""
    within: set[int | None] = set()
    beyond: set[int | None] = {None}
    for seq, _row_id, _tokens, _made_by, compacted_by, _hidden_by, masked_by, _stub in places:
        if seq > last:
            beyond.add(compacted_by)
        else:
            within.update((compacted_by, masked_by))
    return {ordinal for ordinal in within - beyond if ordinal is not None}


def _inherited(
    places: Iterable[_Place], last: int, passes: Mapping[int, int], whole_tokens: Mapping[int, int]
) -> Iterator[_Place]:
    """Yield the places of the fork; what a pass did that is not in force there is left out."""

    def here(ordinal: int | None) -> int | None:
        return None if ordinal is None else passes.get(ordinal)

    for seq, row_id, tokens, made_by, compacted_by, hidden_by, masked_by, stub in places:
        if seq > last or (made_by is not None and made_by not in passes):
            continue
        mask = here(masked_by)
        if masked_by is not None and mask is None:
            tokens, stub = whole_tokens[row_id], None
        yield seq, row_id, tokens, here(made_by), here(compacted_by), here(hidden_by), mask, stub
