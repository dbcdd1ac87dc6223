"""What is done for rows after they were accepted, in one thread, so that no reply waits for it."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

from agent.base.errors import StoreError
from hermes_state import SessionDB

_GAP_S = 0.02
_PATIENCE = 50
"""How often a gap is looked for."""
_PAUSE_S = 0.25
"""Between two rounds of care, so that many short requests share one."""
_log = logging.getLogger(__name__)


class Caretaker:
    """Completes the search index and the extracts between requests where there is a gap, else
    after a while all the same. Thread-safe."""

    def __init__(self, store: SessionDB, is_busy: Callable[[], bool]) -> None:
        self._store = store
        self._is_busy = is_busy
        self._work = threading.Event()
        self._extracts = threading.Event()
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._run, name="hermes-caretaker", daemon=True)
        self._thread.start()

    def wake(self, *, extracts: bool = True) -> None:
        """Say that rows were accepted; without `extracts` nothing will ask for theirs soon."""
        if extracts:
            self._extracts.set()
        self._work.set()

    def close(self) -> None:
        """Let what is under way end, and stop."""
        self._closed.set()
        self._work.set()
        self._thread.join()

    def _run(self) -> None:
        while self._work.wait() and not self._closed.is_set():
            self._work.clear()
            for _ in range(_PATIENCE):
                if not self._is_busy() or self._closed.wait(_GAP_S):
                    break
            try:
                self._store.index_pending()
                if self._extracts.is_set():
                    self._extracts.clear()
                    self._store.extract_pending()
            except StoreError as error:
                _log.warning("the search index is behind: %s", error)
            self._closed.wait(_PAUSE_S)
