"""The store contract on SQLite."""

from __future__ import annotations

from tests.sessions.contract import StoreContract


class TestSqliteStore(StoreContract):
    """Fixtures: `conftest.py`."""
