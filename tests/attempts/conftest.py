from __future__ import annotations

import pytest

from hermes_state import SessionDB


@pytest.fixture
def db(store: SessionDB) -> SessionDB:
    """The store of the test."""
    return store
