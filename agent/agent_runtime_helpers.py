"""Which turn runs in which session of this process, so that its marks find their way back.

A rotation moves an agent to a child session in the middle of a turn; what is remembered here is
the session in which the turn began.
"""

from __future__ import annotations

import logging
import threading
import time
from typing import Protocol

_log = logging.getLogger(__name__)
_lock = threading.Lock()
_turns: dict[str, str] = {}
"""Session id to the id of the turn that runs in it."""


class TurnBearer(Protocol):
    """What an agent remembers of its running turn; None between turns."""

    session_id: str
    _inflight_turn_id: str | None
    _inflight_turn_started_at: float | None
    _inflight_turn_session_id: str | None


def note_turn_start(agent: TurnBearer, turn_id: str) -> str | None:
    """Remember that a turn began, and return the id of another one that runs in its session.

    An agent whose `_persist_disabled` is true takes no place: it only looks on at the session.
    """
    session_id = agent.session_id
    agent._inflight_turn_id = turn_id
    agent._inflight_turn_started_at = time.time()
    agent._inflight_turn_session_id = session_id
    if getattr(agent, "_persist_disabled", False):
        return None
    with _lock:
        other = _turns.get(session_id)
        _turns[session_id] = turn_id
    if other is None or other == turn_id:
        return None
    _log.info("turn %s began in session %s while %s runs there", turn_id, session_id, other)
    return other


def note_turn_persisted(agent: TurnBearer) -> None:
    """Forget the agent's turn; what it did is stored. Its place is that of where it began."""
    session_id = agent._inflight_turn_session_id
    if session_id is not None and not getattr(agent, "_persist_disabled", False):
        with _lock:
            _turns.pop(session_id, None)
    agent._inflight_turn_id = None
    agent._inflight_turn_started_at = None
    agent._inflight_turn_session_id = None
