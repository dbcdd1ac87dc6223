"""Stores on a clock that only tests move."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from agent.testing.clock import FakeClock
from hermes_state import SessionDB

for part in (
    "",
    "_extracts",
    "_forks",
    "_guards",
    "_ledger",
    "_passes",
    "_rows",
    "_search",
    "_sessions",
    "_undo",
):
    pytest.register_assert_rewrite(f"tests.sessions.contract{part}")
pytest.register_assert_rewrite("tests.sessions.modelled")


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def open_store(tmp_path: Path, clock: FakeClock) -> Iterator[Callable[[], SessionDB]]:
    """Open the test's store once more, as another process would; all are closed afterwards."""
    opened: list[SessionDB] = []

    def open_another() -> SessionDB:
        opened.append(SessionDB(tmp_path / "state.db", clock=clock))
        return opened[-1]

    yield open_another
    for store in opened:
        store.close()


@pytest.fixture
def store(open_store: Callable[[], SessionDB]) -> SessionDB:
    return open_store()


@pytest.fixture
def other(tmp_path: Path, clock: FakeClock) -> Iterator[SessionDB]:
    """Another store, empty."""
    store = SessionDB(tmp_path / "other.db", clock=clock)
    yield store
    store.close()
