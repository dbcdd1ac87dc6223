"""Puts the mark of a pass on the Relay trace of the session that owns it.

The handle gives a mark its parent; the scope stack that it is sent on gives it its effect, which
is that the next model call below that session is recorded with its full history. So both are the
owner's, or there is no mark. Payloads: `agent/compaction_events.py`.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from agent import relay_runtime
from agent.relay_runtime import RelayRuntime, RelaySession, RelayTurnContext

COMPACTION_DATA_SCHEMA = {"name": "hermes.compaction", "version": "1"}

_stalled: bool = False
"""Set by the first mark that hangs, for the life of the process: a pass never waits twice."""


class _Target(NamedTuple):
    host: RelayRuntime
    session: RelaySession
    handle: Any


def emit_compaction_mark(
    session_id: str, name: str, data: dict[str, Any], *, turn_session_id: str | None = None
) -> bool:
    """Send one mark and return whether it was sent; False where there is nothing to mark.

    It goes to the live turn of `session_id`, else to that session, else to the live turn of
    `turn_session_id`, the session in which the agent's turn began; never from a turn that is not
    instrumented.
    Raises: TimeoutError when Relay hangs, once in a process; what Relay raises.
    """
    global _stalled
    target = None if _stalled else _find_target(session_id, turn_session_id)
    if target is None or target.host.stalled:
        return False
    host, session, handle = target
    try:
        host.run_in_session(
            session,
            host.relay.scope.event,
            name,
            handle=handle,
            data=data,
            data_schema=dict(COMPACTION_DATA_SCHEMA),
            metadata=host.metadata(),
            timeout=relay_runtime.SCOPE_OP_TIMEOUT,
        )
    except TimeoutError:
        _stalled = True
        raise
    return True


def _find_target(session_id: str, turn_session_id: str | None) -> _Target | None:
    if not session_id or not relay_runtime.relay_instrumentation_enabled():
        return None
    turn = relay_runtime.active_turn(session_id)
    if turn is not None:
        return _of_turn(turn)
    host = relay_runtime.HOST_REGISTRY.for_profile(create=False)
    session = host.get_session(session_id) if isinstance(host, RelayRuntime) else None
    if isinstance(host, RelayRuntime) and session is not None:
        return _Target(host, session, session.handle)
    turn = relay_runtime.active_turn(turn_session_id) if turn_session_id else None
    return _of_turn(turn) if turn is not None else None


def _of_turn(turn: RelayTurnContext) -> _Target | None:
    host, session = turn.lease.live_runtime(), turn.lease.session
    if host is None or session is None:
        return None
    return _Target(host, session, session.handle if turn.handle is None else turn.handle)
