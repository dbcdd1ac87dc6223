"""Rows are indexed and extracted after the replies, also where requests never leave a gap."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from agent.server.caretaker import Caretaker
from agent.sessions import search
from hermes_state import SessionDB


@pytest.mark.parametrize(("is_busy", "extracts"), [(False, True), (True, True), (False, False)])
def test_what_was_accepted_is_indexed_and_extracted(
    tmp_path: Path, is_busy: bool, extracts: bool
) -> None:
    store, asked = SessionDB(db_path=tmp_path / "care.db"), threading.Event()

    def look() -> bool:
        asked.set()
        return is_busy

    caretaker = Caretaker(store, look)
    store.create_session("s", "server")
    store.append("s", [{"role": "user", "content": "Never touch the file /etc/hosts."}])
    caretaker.wake(extracts=extracts)
    assert asked.wait(10.0)
    caretaker.close()
    assert search.backlog(store.database) == 0
    assert bool(store.extracts("s")) == extracts
    store.close()
