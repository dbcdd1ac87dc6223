"""The right to compact a conversation: one row, a token that only grows, and a hard ceiling.

A lease never guards appends. Whether it still counts is decided by its token, inside the
transaction that publishes; its deadline only says when others may take it.
"""

from __future__ import annotations

import os
import time

from agent.base.errors import LeaseLost
from agent.base.record import dataclass
from agent.sessions import statements as sql
from agent.sessions.places import conversation_of
from agent.sessions.records import Lease
from agent.sessions.sqlite import Connection

_CLOCK_SLACK_S = 2.0
"""How far a process's reported start may lie after the instant at which it was surely running."""


@dataclass(frozen=True)
class Terms:
    """How long a lease lasts: until `ttl_s` after its last refresh, and never past `ceiling_s`."""

    ttl_s: float
    ceiling_s: float


def new_holder() -> str:
    """Return this process's name for a lease: host, pid, an instant at which it ran, a nonce."""
    return f"{os.uname().nodename}:{os.getpid()}:{time.time():.3f}:{os.urandom(8).hex()}"


def is_gone(holder: str) -> bool:
    """Return whether the holder's process is provably dead: of this host, and its pid is free or
    belongs to a process that began later."""
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


def release_lease(connection: Connection, lease: Lease) -> None:
    """Empty the holder; the row and its token stay."""
    connection.execute(sql.RELEASE_LEASE, (lease.conversation_id, lease.token, lease.holder))


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
