"""Steps that store tests share: a session with rows, a pass from lease to commit."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from agent.base.ids import new_pass_id
from agent.base.messages import Message
from agent.sessions.protocol import SessionStore
from agent.sessions.records import (
    Lease,
    MaskedPlace,
    NewRow,
    PassCommit,
    PassKind,
    PassOpening,
    View,
)

SESSION = "s1"
LARGE = "".join(f"line {number} of a long log\n" for number in range(20_000))


def talk(count: int, *, first: int = 1) -> list[Message]:
    """Return `count` messages, user and assistant in turn."""
    roles = ("user", "assistant")
    return [
        {"role": roles[number % 2], "content": f"message {number + first}"}
        for number in range(count)
    ]


def begin(store: SessionStore, count: int = 0, session_id: str = SESSION) -> list[Message]:
    """Create a session and accept `count` messages."""
    store.create_session(session_id, "cli")
    return store.append(session_id, talk(count))


def take_lease(store: SessionStore, session_id: str = SESSION, **terms: float) -> Lease:
    """Take a lease that is free."""
    lease = store.acquire_lease(session_id, **terms)
    assert lease is not None
    return lease


def open_pass(
    store: SessionStore, lease: Lease, kind: PassKind = PassKind.SUMMARY, **fields: Any
) -> str:
    """Open a pass under a lease and return its id."""
    pass_id = new_pass_id()
    watermark = store.head(lease.session_id).watermark
    store.open_pass(
        PassOpening(pass_id, lease.session_id, kind, "manual", watermark, lease.token, **fields)
    )
    return pass_id


def summary(text: str = "what happened") -> NewRow:
    """Return the row of a summary pass."""
    return NewRow({"role": "user", "content": text}, PassKind.SUMMARY)


def draft(store: SessionStore, lease: Lease, pass_id: str, **fields: Any) -> PassCommit:
    """Return a commit at the present watermark."""
    fields.setdefault("watermark", store.head(lease.session_id).watermark)
    fields.setdefault("kind", PassKind.SUMMARY)
    return PassCommit(pass_id, lease, strategy="summary", **fields)


def run_pass(store: SessionStore, session_id: str = SESSION, **fields: Any) -> tuple[str, View]:
    """Run a whole pass: lease, ledger row, commit, release; return its id and the new view."""
    lease = take_lease(store, session_id)
    pass_id = open_pass(store, lease, fields.get("kind", PassKind.SUMMARY))
    view = store.commit_pass(draft(store, lease, pass_id, **fields), lambda: True)
    store.release_lease(lease)
    return pass_id, view


def cover(
    store: SessionStore, rows: Sequence[Message], text: str = "what happened", **fields: Any
) -> tuple[str, View]:
    """Cover stored rows with one summary."""
    row_ids = tuple(row["_row_id"] for row in rows)
    return run_pass(store, cover=row_ids, new_row=summary(text), **fields)


def mask(
    store: SessionStore, row: Message, content: str = "[left out]", tokens: int = 3
) -> tuple[str, View]:
    """Mask one stored row."""
    place = MaskedPlace(row["_row_id"], {"content": content}, tokens)
    return run_pass(store, kind=PassKind.MASK, mask=(place,))


def contents(messages: Sequence[Message]) -> list[Any]:
    """Return the contents of messages."""
    return [message.get("content") for message in messages]
