"""Undoing one pass of a conversation, of whatever kind: what may be undone, and why not."""

from __future__ import annotations

from agent.base.errors import UndoRefused
from agent.sessions import statements as sql
from agent.sessions.native import newest_standing, require_standing, stopped_by_undo
from agent.sessions.passes import decode_pass, pass_state, read_pass
from agent.sessions.records import Guards, PassKind, PassRecord, PassStatus, UndoResult
from agent.sessions.rewind import undo_rewind
from agent.sessions.sqlite import Connection
from agent.sessions.standing import Scope, finish, take_over, undo_standing


def undo_pass(connection: Connection, scope: Scope, name: str | None, guards: Guards) -> UndoResult:
    """Undo the pass of that id or unique prefix, or the newest compaction that shows in the view;
    first those that stand on it."""
    target = _newest(connection, scope) if name is None else _named(connection, scope, name)
    ordinal = pass_state(connection, target.id, scope.conversation_id)[0]
    take_over(connection, scope)
    if target.kind is PassKind.REWIND:
        ledger = [undo_rewind(connection, scope, target, ordinal)]
    else:
        ledger = undo_standing(connection, scope, [ordinal], stops=stopped_by_undo(target))
    return finish(connection, scope, ledger, guards)


def _newest(connection: Connection, scope: Scope) -> PassRecord:
    pointers = connection.execute(sql.NEWEST_POINTERS, (scope.conversation_id,)).fetchone()
    found = (*pointers, newest_standing(connection, scope))
    ordinals = [ordinal for ordinal in found if ordinal is not None]
    if not ordinals:
        raise UndoRefused(f"session {scope.session_id!r} has no compaction in force to undo")
    return decode_pass(connection.execute(sql.PASS_BY_ORDINAL, (max(ordinals),)).fetchone())


def _named(connection: Connection, scope: Scope, name: str) -> PassRecord:
    """Return the pass to undo. Raises: UndoRefused: it changed nothing, or does so no more."""
    target = read_pass(connection, name, scope.conversation_id)
    if target.kind is PassKind.UNDO:
        raise UndoRefused(
            f"pass {target.id!r} is an undo and cannot be undone; compact again instead"
        )
    if target.kind is PassKind.IMPORT:
        raise UndoRefused(
            f"pass {target.id!r} is the import that brought this conversation; "
            f"`hermes sessions delete {scope.session_id}` takes it away again"
        )
    if target.status is PassStatus.UNDONE:
        undo = connection.execute(sql.UNDO_OF, (scope.conversation_id, target.id)).fetchone()
        raise UndoRefused(f"pass {target.id!r} was undone already, by pass {undo[0]!r}")
    if target.status is not PassStatus.COMMITTED:
        raise UndoRefused(
            f"pass {target.id!r} is {target.status} and changed nothing; only a committed pass "
            "can be undone"
        )
    require_standing(connection, scope, target)
    return target
