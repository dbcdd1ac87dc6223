"""Forking a conversation: places of its own that point at the same rows, up to one of them.

The fork has its own status of every pass it inherits, so an undo in one leaves the other alone.
"""

from __future__ import annotations

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
    bounds = {"parent": parent_id, "child": child_id, "last": last}
    connection.execute(sql.INHERIT_PASSES, bounds)
    inherited = connection.execute(sql.INHERIT_PLACES, bounds).rowcount
    if not inherited:
        lacking = f"session {fork.session_id!r} has no row"
        if fork.up_to_seq is None:
            raise UsageError(f"{lacking} to fork; send a message first")
        raise UsageError(f"{lacking} up to {last} to fork; give a higher row")
    connection.execute(sql.RECOUNT, (child_id,))
    connection.execute(sql.INHERIT_PINS, bounds)
    connection.execute(sql.REVIVE_PINS, bounds)
    cooldowns.write_anchor(connection, child_id, cooldowns.read_anchor(connection, parent_id))
    cooldowns.reset_anchor(connection, child_id)
    return read_session(connection, fork.new_id)
