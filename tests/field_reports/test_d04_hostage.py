"""D04: while a summary hangs, everything else goes on: appends, search, sessions, processes."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import pytest

from agent.sessions.records import PassStatus
from agent.testing.oracle import Oracle
from agent.testing.stub_reply import Reply
from tests.field_reports.harness import SUMMARISER, SUMMARY, settings_for, small_talk, texts

SILENT_S = 8.0
LATENCY_S = 4 * 0.25
APPENDS = 10
WINDOW = 8_000

PROBE = """
import sqlite3, sys, time
started = time.monotonic()
connection = sqlite3.connect(sys.argv[1], timeout=5, isolation_level=None)
connection.execute("BEGIN IMMEDIATE")
connection.execute("ROLLBACK")
print(time.monotonic() - started)
"""


@pytest.fixture
def hanging(stub, open_bench):
    """A bench with a pass that waits for its summary, the pass's future, and what ends the wait."""
    release = threading.Event()
    reply = Reply(text=SUMMARY, before_first_byte_s=SILENT_S, release=release)
    stub.script([], model=SUMMARISER, then=reply)
    bench = open_bench(settings_for(stub.base_url, window_tokens=WINDOW))
    bench.fill(small_talk(20, tokens=150))
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(bench.agent.compress)
        stub.wait_for_requests(1)
        yield bench, running, release
        release.set()


def timed(action: Callable[[], object]) -> float:
    started = time.monotonic()
    action()
    return time.monotonic() - started


def test_d04_appends_to_the_same_and_to_another_session_are_quick_and_follow_the_summary(
    store, hanging
):
    bench, running, release = hanging
    store.create_session("other", "test")
    accepted = texts(bench.rows)
    late = [f"late {number}" for number in range(APPENDS)]
    elsewhere = [f"elsewhere {number}" for number in range(APPENDS)]
    taken = [timed(lambda: bench.agent.submit(late[0]))]
    for session_id, said in (("s", late[1:]), ("other", elsewhere)):
        append = partial(store.append_message, session_id, "user")
        taken += [timed(partial(append, text)) for text in said]
    assert not running.done()
    assert bench.passes[-1].status is PassStatus.PLANNED
    assert max(taken) < LATENCY_S
    release.set()
    record = running.result(10)
    assert record.status is PassStatus.COMMITTED
    assert len(bench.summary_requests) == 1
    view = bench.view
    assert texts(view[-APPENDS:]) == late
    summary = next(i for i, row in enumerate(view) if row.get("_kind") == "summary")
    assert summary < len(view) - APPENDS
    assert texts(bench.rows) == [*accepted, *late]
    assert not any(text in bench.summary_requests[0].raw.decode() for text in late)
    assert texts(store.view("other").messages) == elsewhere
    assert store.check().problems == []


def test_d04_another_process_can_write_meanwhile(tmp_path, hanging):
    _bench, running, _release = hanging
    probe = subprocess.run(
        [sys.executable, "-c", PROBE, str(tmp_path / "state.db")],
        capture_output=True,
        text=True,
        timeout=15,
        check=True,
    )
    assert float(probe.stdout) < LATENCY_S
    assert not running.done()


def test_d04_search_reading_and_a_turn_in_another_session_go_on(stub, store, hanging, open_bench):
    _bench, running, _release = hanging
    other = open_bench(settings_for(stub.base_url, window_tokens=WINDOW), session_id="other")
    oracle = Oracle("other")
    taken = [
        timed(lambda: store.search("answer", session_id="s")),
        timed(lambda: store.view("s")),
        timed(lambda: store.passes("s")),
        timed(lambda: other.agent.recall(query="nothing")),
        timed(lambda: other.agent.chat("hello")),
    ]
    oracle.note({"role": "user", "content": "hello"}, {"role": "assistant", "content": "ok"})
    oracle.check_store(store)
    assert not running.done()
    assert max(taken[:4]) < LATENCY_S
    assert taken[4] < 2 * LATENCY_S


def test_d04_a_second_pass_on_the_session_does_not_wait_for_the_first(hanging, stub, open_bench):
    bench, running, _release = hanging
    second = open_bench(settings_for(stub.base_url, window_tokens=WINDOW))
    record = []
    assert timed(lambda: record.append(second.agent.compress())) < LATENCY_S
    assert (record[0].status, record[0].failure_class) == (PassStatus.SKIPPED, "lock_contended")
    assert not running.done()
    assert len(bench.summary_requests) == 1
