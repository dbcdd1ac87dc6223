"""Accepted rows of one session for the recall tool, for Python and for the command line."""

from __future__ import annotations

from agent.base.messages import Message
from agent.sessions.protocol import SessionStore


class StoredRows:
    """Reads one session's accepted rows; rows that passes made never appear."""

    def __init__(self, store: SessionStore, session_id: str) -> None:
        self._store = store
        self._session_id = session_id

    def search(self, query: str, *, limit: int) -> list[Message]:
        """Return the rows that answer a query best, the best first."""
        hits = self._store.relevant(query, self._session_id, limit=limit)
        return [hit.message for hit in hits]

    def unseen(self, *, limit: int) -> list[tuple[int, str]]:
        """Return what left the view and is likeliest to be asked for: seq and part of the row."""
        return self._store.unseen(self._session_id, limit=limit)

    def rows(self, first_seq: int, last_seq: int) -> list[Message]:
        """Return the rows of a seq range, whole, oldest first."""
        return self._store.accepted_rows(self._session_id, first_seq, last_seq)
