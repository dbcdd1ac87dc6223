"""The right to compact a conversation: one row, a token that only grows, and a hard ceiling.

A lease never guards appends. Whether it still counts is decided by its token, inside the
transaction that publishes; its deadline only says when others may take it.
"""

from __future__ import annotations

import os
import time

from agent.base.clock import Clock
from agent.base.errors import LeaseLost
from agent.base.record import dataclass
from agent.sessions import statements as sql
from agent.sessions.places import conversation_of
from agent.sessions.records import Lease
from agent.sessions.sqlite import Connection, SqliteDatabase

_CLOCK_SLACK_S = 2.0
"""How far a process's reported start may lie after the instant at which it was surely running."""

_given_back: set[str] = set()
"""Holders whose lease this process could not release, as on a full disk: they hold nothing."""


@dataclass(frozen=True)
class Terms:
    """How long a lease lasts: until `ttl_s` after its last refresh, and never past `ceiling_s`."""

    ttl_s: float
    ceiling_s: float


def new_holder() -> str:
    """Return this process's name for a lease: host, pid, an instant at which it ran, a nonce."""
    return f"{os.uname().nodename}:{os.getpid()}:{time.time():.3f}:{os.urandom(8).hex()}"


def is_gone(holder: str) -> bool:
    """Return whether the holder has given up its lease, or its process is provably dead: of this
    host, and its pid is free or belongs to a process that began later."""
    if holder in _given_back:
        return True
    host, pid, seen_at, _nonce = holder.rsplit(":", 3)
    if host != os.uname().nodename:
        return False
    import psutil

    try:
        return psutil.Process(int(pid)).create_time() > float(seen_at) + _CLOCK_SLACK_S
    except psutil.NoSuchProcess:
        return True
    except psutil.AccessDenied:
        return False


def read_rival(connection: Connection, session_id: str, now: float) -> tuple[str, int] | None:
    """Return (holder, token) of the lease in force, or None when the conversation is free."""
    row = connection.execute(sql.LEASE, (conversation_of(connection, session_id),)).fetchone()
    if row is None or not row[0] or row[2] <= now:
        return None
    return row[0], row[1]


def read_holder(connection: Connection, session_id: str, now: float) -> str | None:
    """Return who holds the lease in force."""
    rival = read_rival(connection, session_id, now)
    return None if rival is None or rival[0] in _given_back else rival[0]


def acquire(database: SqliteDatabase, clock: Clock, session_id: str, terms: Terms) -> Lease | None:
    """Take the lease unless somebody holds it who may be at work."""
    with database.read() as connection:
        rival = read_rival(connection, session_id, clock.now())
    if rival is not None and not is_gone(rival[0]):
        return None
    with database.write() as connection:
        now = clock.now()
        if read_rival(connection, session_id, now) not in (None, rival):
            return None
        return take_lease(connection, session_id, terms, now)


def take_lease(connection: Connection, session_id: str, terms: Terms, now: float) -> Lease:
    """Take the lease whoever had it, and close attempts that were left `planned`."""
    conversation_id = conversation_of(connection, session_id)
    holder = new_holder()
    ceiling_at = now + terms.ceiling_s
    expires_at = min(now + terms.ttl_s, ceiling_at)
    token = connection.execute(
        sql.TAKE_LEASE,
        (conversation_id, holder, now, expires_at, terms.ttl_s, ceiling_at),
    ).fetchone()[0]
    connection.execute(sql.CLOSE_CRASHED, (now, conversation_id))
    return Lease(conversation_id, session_id, holder, token, now, expires_at)


def refresh_lease(connection: Connection, lease: Lease, now: float) -> bool:
    """Prolong a lease that nobody took since; False when it is lost or past its ceiling."""
    cursor = connection.execute(
        sql.REFRESH_LEASE,
        (now, now, lease.conversation_id, lease.token, lease.holder, now),
    )
    return cursor.rowcount == 1


def give_back(database: SqliteDatabase, lease: Lease, now: float) -> None:
    """Empty the holder; the row and its token stay. An attempt that could not be closed, as on a
    full disk, ends with its lease; a lease that cannot be given back is free for this process."""
    _given_back.add(lease.holder)
    with database.write() as connection:
        mine = (lease.conversation_id, lease.token, lease.holder)
        if connection.execute(sql.RELEASE_LEASE, mine).rowcount:
            connection.execute(sql.CLOSE_CRASHED, (now, lease.conversation_id))
    _given_back.discard(lease.holder)


def require_token(
    connection: Connection,
    conversation_id: int,
    token: int | None,
    holder: str | None = None,
) -> None:
    """Raise LeaseLost unless `token` is the newest of its conversation and not given back.

    An expired lease that nobody took is still the newest: what was paid for may be published.
    """
    row = connection.execute(sql.LEASE, (conversation_id,)).fetchone()
    if row is not None and row[0] and row[1] == token and holder in (None, row[0]):
        return
    newest = row[1] if row else None
    raise LeaseLost(
        f"conversation {conversation_id} is no longer leased to this pass "
        f"(token {token!r}, newest {newest!r}); plan again"
    )
