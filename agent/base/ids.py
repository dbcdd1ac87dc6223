"""Identifiers: sortable by the second, unique within it."""

from __future__ import annotations

import os
import time


def new_session_id(at: float | None = None) -> str:
    """Return an id like `20261130_144020_3fa9c1`; `at` is Unix epoch seconds (default now)."""
    stamp = time.strftime("%Y%m%d_%H%M%S", time.localtime(at if at is not None else time.time()))
    return f"{stamp}_{os.urandom(3).hex()}"


def new_pass_id() -> str:
    """Return the id of one compaction attempt: ledger id, `pass_id` and `attempt_id` alike."""
    return os.urandom(16).hex()


def new_turn_id() -> str:
    """Return the id of one turn."""
    return os.urandom(8).hex()
