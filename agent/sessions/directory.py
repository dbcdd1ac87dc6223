"""The sessions of a store: create, find, name, end."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import Any

import orjson

from agent.base.errors import UnknownSession, UsageError
from agent.base.messages import clean_text
from agent.base.record import dataclass
from agent.sessions import statements as sql
from agent.sessions.places import conversation_of, unknown_session
from agent.sessions.records import SessionRecord
from agent.sessions.rows import dump_record
from agent.sessions.sqlite import Connection, insert_id

_NAMED_SESSIONS = 5


@dataclass(frozen=True)
class NewSession:
    """What a session is created with."""

    session_id: str
    source: str
    model: str | None = None
    model_config: Mapping[str, Any] = field(default_factory=dict)
    parent_session_id: str | None = None
    title: str | None = None
    origin: Mapping[str, Any] = field(default_factory=dict)
    cwd: str | None = None


def create_session(connection: Connection, new: NewSession, now: float) -> None:
    """Insert a session with a conversation of its own; an existing id is left as it is."""
    if not new.session_id:
        raise UsageError("a session needs an id that is not empty")
    if connection.execute(sql.CONVERSATION_OF, (new.session_id,)).fetchone() is not None:
        return
    require_free_title(connection, None, new.title)
    conversation_id = insert_id(connection, sql.NEW_CONVERSATION, (now, new.session_id))
    connection.execute(sql.BEGIN_FAMILY, (conversation_id,))
    connection.execute(
        sql.NEW_SESSION,
        (
            new.session_id,
            conversation_id,
            new.source,
            new.model,
            dump_record(new.model_config, "model_config"),
            new.parent_session_id,
            _clean(new.title),
            now,
            dump_record(new.origin, "origin"),
            _clean(new.cwd),
        ),
    )


def _clean(text: str | None) -> str | None:
    return None if text is None else clean_text(text)


def decode_session(row: tuple[Any, ...]) -> SessionRecord:
    """Return the record of a row selected with `statements.SESSION_COLUMNS`."""
    return SessionRecord(*row[:14], *map(orjson.loads, row[14:]))


def read_session(connection: Connection, session_id: str) -> SessionRecord:
    """Return one session by its exact id."""
    row = connection.execute(sql.SESSION_BY_ID, (session_id,)).fetchone()
    if row is None:
        raise unknown_session(session_id)
    return decode_session(row)


def find_session(connection: Connection, name: str) -> SessionRecord:
    """Return the tip of the conversation that has a session of that id, unique id prefix or
    title, tried in this order."""
    exact = connection.execute(sql.CONVERSATION_OF, (name,)).fetchone()
    if exact is not None:
        return read_tip(connection, exact[0])
    found = []
    if name:
        bounds = (name, name, _NAMED_SESSIONS + 1)
        found = connection.execute(sql.CONVERSATIONS_BY_PREFIX, bounds).fetchall()
    if len(found) == 1:
        return read_tip(connection, found[0][0])
    titled = connection.execute(sql.SESSION_BY_TITLE, (name,)).fetchone()
    if titled is not None:
        return decode_session(titled)
    if not found:
        raise unknown_session(name)
    named = ", ".join(session_id for _conversation, session_id in found[:_NAMED_SESSIONS])
    more = ", ..." if len(found) > _NAMED_SESSIONS else ""
    raise UnknownSession(
        f"several sessions begin with {name!r} ({named}{more}); give more characters"
    )


def read_tip(connection: Connection, conversation_id: int) -> SessionRecord:
    """Return the session that carries a conversation on."""
    return decode_session(
        connection.execute(sql.TIP_OF_CONVERSATION, (conversation_id,)).fetchone()
    )


def read_sessions(connection: Connection, limit: int) -> list[SessionRecord]:
    """Return the tip of each conversation, most recently active first."""
    return [decode_session(row) for row in connection.execute(sql.SESSIONS_BY_ACTIVITY, (limit,))]


def set_title(connection: Connection, session_id: str, title: str | None) -> None:
    """Name a session's conversation, or take its name away with None."""
    tip = read_tip(connection, conversation_of(connection, session_id))
    require_free_title(connection, tip.id, title)
    connection.execute(sql.SET_TITLE, (_clean(title), tip.id))


def require_free_title(connection: Connection, session_id: str | None, title: str | None) -> None:
    """Raise UsageError unless a session (None for a new one) may have that title."""
    if title is None:
        return
    if not title.strip():
        raise UsageError("a title needs a character that is not white space; give one or none")
    taken = connection.execute(sql.SESSION_BY_TITLE, (clean_text(title),)).fetchone()
    if taken is not None and taken[0] != session_id:
        raise UsageError(f"session {taken[0]!r} has the title {title!r} already; choose another")


def set_system_prompt(connection: Connection, session_id: str, system_prompt: str) -> None:
    """Keep the prompt that the session's requests begin with."""
    values = (clean_text(system_prompt), session_id)
    if connection.execute(sql.SET_SYSTEM_PROMPT, values).rowcount == 0:
        raise unknown_session(session_id)


def end_session(connection: Connection, session_id: str, reason: str, now: float) -> None:
    """Stamp the end; the first stamp wins."""
    if connection.execute(sql.END_SESSION, (now, clean_text(reason), session_id)).rowcount == 0:
        read_session(connection, session_id)
