"""The live view kept in memory, so that a turn reads only what is new.

Messages in it are stored ones and treated as immutable.
"""

from __future__ import annotations

import threading

from agent.base.messages import Message
from agent.sessions.protocol import SessionStore
from agent.sessions.records import Head, View


class LiveView:
    """A session's live messages, oldest first, with their token total; `seen` is an earlier view.

    Concurrency: one turn loop reads it; attempts in other threads may bring it up to date.
    """

    def __init__(self, store: SessionStore, session_id: str, seen: View | None = None) -> None:
        self._store = store
        self._lock = threading.RLock()
        self.session_id = session_id
        self.adopt(seen or store.view(session_id))

    @property
    def head(self) -> Head:
        """Generation and watermark that the messages stand for."""
        return Head(self._generation, self._watermark)

    def view(self) -> View:
        """Catch up with the store and return what is live now, in a list of the caller's own."""
        with self._lock:
            self.adopt(self._store.view(self.session_id, self._seen()))
            return self._seen()

    def _seen(self) -> View:
        return View(
            self._conversation_id,
            self._generation,
            self._watermark,
            [*self.messages],
            self.tokens,
        )

    def adopt(self, view: View) -> None:
        """Take a whole view, such as the one that a commit returned."""
        with self._lock:
            self.messages: list[Message] = [*view.messages]
            self.tokens: int = view.tokens
            self._conversation_id = view.conversation_id
            self._generation = view.generation
            self._watermark = view.watermark

    def refresh(self) -> None:
        """Catch up with the store: new rows are read, and a changed view whole."""
        with self._lock:
            if self._store.head(self.session_id) != self.head:
                self.adopt(self._store.view(self.session_id, self._seen()))
