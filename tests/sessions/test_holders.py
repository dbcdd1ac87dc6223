"""Whose lease may be taken: processes told apart by host, pid and time."""

from __future__ import annotations

import os
import socket
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator

import pytest

from hermes_state import SessionDB
from tests.sessions.steps import SESSION, begin, take_lease


@pytest.fixture
def stranger() -> Iterator[int]:
    """The pid of another process that runs."""
    command = [sys.executable, "-c", "import sys; sys.stdin.read()"]
    with subprocess.Popen(command, stdin=subprocess.PIPE) as process:
        yield process.pid
        process.kill()


def _hold(store: SessionDB, host: str, pid: int, seen_at: float) -> None:
    """Put another process's name on the lease that this process holds."""
    other = sqlite3.connect(store.path, isolation_level=None)
    other.execute("UPDATE compression_locks SET holder = ?", (f"{host}:{pid}:{seen_at}:nonce",))
    other.close()


@pytest.mark.parametrize(
    ("is_here", "age_s", "is_free"),
    [(True, 0.0, False), (True, 3_600.0, True), (False, 3_600.0, False)],
    ids=["alive", "pid-given-again", "another-host"],
)
def test_a_running_process_keeps_its_lease_unless_it_began_later(
    store: SessionDB, stranger: int, is_here: bool, age_s: float, is_free: bool
) -> None:
    begin(store)
    take_lease(store)
    host = socket.gethostname() if is_here else "elsewhere"
    _hold(store, host, stranger, time.time() - age_s)
    assert (store.acquire_lease(SESSION) is not None) is is_free


@pytest.mark.parametrize(("age_s", "is_free"), [(0.0, False), (1e9, True)], ids=["ours", "before"])
def test_our_own_pid_may_have_been_another_process(
    store: SessionDB, age_s: float, is_free: bool
) -> None:
    """A container's first process has the same pid after each start."""
    begin(store)
    take_lease(store)
    _hold(store, socket.gethostname(), os.getpid(), time.time() - age_s)
    assert (store.acquire_lease(SESSION) is not None) is is_free
