"""What any store must do.

A back end runs it with a class that inherits `StoreContract` and fixtures `store` (empty),
`open_store` (opens the same data once more) and `clock`.
"""

from __future__ import annotations

import dataclasses

import pytest

from agent.base.errors import StoreError
from agent.sessions.protocol import SessionStore
from tests.sessions.contract_extracts import ExtractsContract
from tests.sessions.contract_forks import ForksContract, RotationContract
from tests.sessions.contract_guards import GuardsContract, LeasesContract
from tests.sessions.contract_ledger import LedgerContract
from tests.sessions.contract_passes import PassesContract
from tests.sessions.contract_rows import BlobsContract, RowsContract
from tests.sessions.contract_search import SearchContract
from tests.sessions.contract_sessions import SessionsContract
from tests.sessions.contract_undo import RewindContract, UndoContract
from tests.sessions.steps import SESSION, begin, talk


class StoreContract(
    SessionsContract,
    RowsContract,
    BlobsContract,
    SearchContract,
    ExtractsContract,
    GuardsContract,
    LeasesContract,
    PassesContract,
    LedgerContract,
    UndoContract,
    RewindContract,
    ForksContract,
    RotationContract,
):
    """All parts of the contract."""

    def test_a_new_store_is_sound(self, store: SessionStore) -> None:
        report = store.check()
        assert dataclasses.astuple(report) == ([], 0, 0, 0)

    def test_closing_twice_is_allowed_and_ends_all_use(self, store: SessionStore) -> None:
        begin(store, 1)
        store.close()
        store.close()
        for call in (lambda: store.view(SESSION), lambda: store.append(SESSION, talk(1))):
            with pytest.raises(StoreError, match="closed"):
                call()
