"""The live view kept in memory, so that a turn reads only what is new.

One `LiveView` serves one turn loop; it is not for several threads. Messages in it are stored
ones and treated as immutable.
"""

from __future__ import annotations

from collections.abc import Iterable

from agent.base.messages import Message
from agent.sessions.protocol import SessionStore
from agent.sessions.records import Head, View


class LiveView:
    """A session's live messages, oldest first, with their token total."""

    def __init__(self, store: SessionStore, session_id: str) -> None:
        self._store = store
        self.session_id = session_id
        self.adopt(store.view(session_id))

    @property
    def head(self) -> Head:
        """Generation and watermark that the messages stand for."""
        return Head(self._generation, self._watermark)

    def adopt(self, view: View) -> None:
        """Take a whole view, such as the one that a commit returned."""
        self.messages: list[Message] = view.messages
        self.tokens: int = view.tokens
        self._generation = view.generation
        self._watermark = view.watermark

    def refresh(self) -> None:
        """Catch up with the store: new rows are appended, a changed view is loaded again."""
        head = self._store.head(self.session_id)
        if head == self.head:
            return
        if head.generation == self._generation:
            rows = self._store.rows_after(self.session_id, self._watermark)
            # An equal generation now means that no pass came between the two reads above.
            if self._store.head(self.session_id).generation == self._generation:
                self._extend(rows)
                return
        self.adopt(self._store.view(self.session_id))

    def add(self, stored: Iterable[Message]) -> None:
        """Append rows that this loop had accepted; rows of others that came between are fetched."""
        rows = [row for row in stored if row["_seq"] > self._watermark]
        if not rows:
            return
        if rows[0]["_seq"] == self._watermark + 1:
            self._extend(rows)
        else:
            self.refresh()

    def _extend(self, rows: list[Message]) -> None:
        for row in rows:
            self.messages.append(row)
            self.tokens += row["_tokens"]
            self._watermark = row["_seq"]
