"""The store as the server needs it: besides everything else, which row a response ended with."""

from __future__ import annotations

from typing import Final

from agent.base.record import dataclass
from agent.sessions.directory import read_tip
from agent.sessions.places import conversation_of
from agent.sessions.records import SessionRecord
from hermes_state import SessionDB

_NOTE: Final = "INSERT INTO responses (response_id, conversation_id, seq) VALUES (?, ?, ?)"
_FIND: Final = "SELECT conversation_id, seq FROM responses WHERE response_id = ?"


@dataclass(frozen=True)
class ResponsePlace:
    """Where a response ended: its session, the last row, and whether more has been said since."""

    session: SessionRecord
    seq: int
    is_last: bool


class ServedStore(SessionDB):
    """A `SessionDB` that knows the responses of `/v1/responses`."""

    def note_response(self, response_id: str, session_id: str, seq: int) -> None:
        """Keep that a response ended with row `seq` of a session's conversation."""
        with self._database.write() as connection:
            conversation_id = conversation_of(connection, session_id)
            connection.execute(_NOTE, (response_id, conversation_id, seq))

    def find_response(self, response_id: str) -> ResponsePlace | None:
        """Return where a response ended, None when it is not known (any more)."""
        with self._database.read() as connection:
            row = connection.execute(_FIND, (response_id,)).fetchone()
            if row is None:
                return None
            session = read_tip(connection, row[0])
        return ResponsePlace(session, row[1], self.head(session.id).watermark == row[1])
