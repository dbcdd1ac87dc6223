"""A compaction that the provider did by itself: an answer that brought it, and its ledger row.

Nothing is covered: every row stays live, and a request on that route begins with the item that the
answer brought. It stands while the generation stays that of its pass. Read next: `undo.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from agent.base.errors import UndoRefused
from agent.base.ids import new_pass_id
from agent.base.messages import Message
from agent.sessions import statements as sql
from agent.sessions.accept import Incoming, accept, make_ready
from agent.sessions.passes import insert_pass
from agent.sessions.places import conversation_of, read_head
from agent.sessions.records import (
    CONTEXT_EDITING,
    NativePass,
    PassKind,
    PassRecord,
    PassStatus,
)
from agent.sessions.rows import dump_json
from agent.sessions.sqlite import Connection
from agent.sessions.standing import Scope

Accepting = Callable[[Connection, str, float], list[Message]]
"""Inserts rows into a session at an instant, inside the caller's write transaction."""


def accepting(messages: Sequence[Message], brought: NativePass | None) -> Accepting:
    """Return what inserts the messages, encoded already, and the pass that the last one brought.

    When the view has changed since its request was made the rows alone are inserted; else the last
    one comes back with `_brought`, the id of the pass.
    """
    plain = [make_ready(message) for message in messages]
    if brought is None:
        return partial(_accept_plain, plain)
    if not messages:
        return partial(_record_alone, brought)
    standing = [*plain[:-1], make_ready(messages[-1] | {"_generation": brought.generation + 1})]

    def write(connection: Connection, session_id: str, now: float) -> list[Message]:
        if read_head(connection, session_id).generation != brought.generation:
            return accept(connection, session_id, plain, now)
        conversation_id = conversation_of(connection, session_id)
        connection.execute(sql.BUMP_GENERATION, (1, conversation_id))
        stored = accept(connection, session_id, standing, now)
        scope = Scope(session_id, conversation_id, now)
        stored[-1]["_brought"] = _record(connection, scope, brought, stored[-1]["_seq"])
        return stored

    return write


def _accept_plain(
    plain: Sequence[Incoming], connection: Connection, session_id: str, now: float
) -> list[Message]:
    return accept(connection, session_id, plain, now) if plain else []


def _record_alone(
    brought: NativePass, connection: Connection, session_id: str, now: float
) -> list[Message]:
    """Write the ledger row of a pass that no row brought: the generation stays."""
    scope = Scope(session_id, conversation_of(connection, session_id), now)
    connection.execute(sql.COUNT_PASS, (scope.conversation_id,))
    _record(connection, scope, brought, None)
    return []


def _record(connection: Connection, scope: Scope, brought: NativePass, seq: int | None) -> str:
    """Write the ledger row and return its id."""
    pass_id = new_pass_id()
    receipt = {**brought.receipt} if seq is None else {**brought.receipt, "brought_by": seq}
    insert_pass(
        connection,
        pass_id=pass_id,
        conversation_id=scope.conversation_id,
        session_id=scope.session_id,
        status=PassStatus.COMMITTED,
        kind=PassKind.PROVIDER_NATIVE,
        trigger=brought.trigger,
        strategy=brought.strategy,
        tokens_before=brought.tokens_before,
        tokens_after=brought.tokens_after,
        messages_before=brought.messages_before,
        messages_after=brought.messages_after,
        model=brought.model,
        route=brought.route,
        receipt=dump_json(receipt, "the receipt"),
        created_at=scope.at,
        finished_at=scope.at,
    )
    return pass_id


def require_standing(connection: Connection, scope: Scope, target: PassRecord) -> None:
    """Raise UndoRefused for a compaction of the provider's that another change has ended.

    Context editing goes on behind any change.
    """
    if target.kind is not PassKind.PROVIDER_NATIVE or target.strategy == CONTEXT_EDITING:
        return
    if target.generation != read_head(connection, scope.session_id).generation:
        raise UndoRefused(
            f"pass {target.id!r} was the provider's own and ended when the view changed after it; "
            "no request carries it any more, so nothing is left to undo"
        )


def newest_standing(connection: Connection, scope: Scope) -> int | None:
    """Return the number of the provider's compaction that stands, None when there is none."""
    found = connection.execute(sql.NATIVE_STANDING, (scope.conversation_id,)).fetchone()
    return int(found[0]) if found else None


def stopped_by_undo(target: PassRecord) -> str:
    """Return what undoing a pass switches off in its conversation, empty for nothing."""
    return "context editing" if target.strategy == CONTEXT_EDITING else ""
