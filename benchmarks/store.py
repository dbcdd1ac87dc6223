"""The store's figures: durable appends, a view, a commit, a search, disk over payload.

    python benchmarks/store.py [--rows 10000]

Appends alternate with the least an append can cost: one INSERT of the same bytes in a bare table
with the same durability. Transcripts are seeded; times are medians.
"""

from __future__ import annotations

import argparse
import sqlite3
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import orjson

from agent.base.messages import Message
from agent.sessions.records import NewRow, PassCommit, PassKind, PassOpening
from agent.testing.transcripts import transcript
from hermes_state import SessionDB

SESSION = "bench"


def time_ms(work: Callable[[], object], times: int = 5) -> float:
    """Return the median milliseconds of `work`."""
    spans = []
    for _ in range(times):
        started = time.perf_counter()
        work()
        spans.append(time.perf_counter() - started)
    return statistics.median(spans) * 1000


def say(line: str) -> None:
    sys.stdout.write(line + "\n")


def measure_appends(store: SessionDB, folder: Path, messages: list[Message]) -> None:
    """Print durable rows a second, ours and bare, in alternating blocks of 50."""
    bare = sqlite3.connect(folder / "bare.db", isolation_level=None)
    bare.execute("PRAGMA journal_mode=WAL")
    bare.execute("PRAGMA synchronous=FULL")
    bare.execute("CREATE TABLE bare (id INTEGER PRIMARY KEY, body TEXT)")

    def append_bare(message: Message) -> None:
        bare.execute("BEGIN IMMEDIATE")
        bare.execute("INSERT INTO bare (body) VALUES (?)", (orjson.dumps(message).decode(),))
        bare.execute("COMMIT")

    def append_ours(message: Message) -> None:
        store.append(SESSION, [message])

    spans: dict[Callable[[Message], None], list[float]] = {append_bare: [], append_ours: []}
    for start in range(0, len(messages), 50):
        for append, found in spans.items():
            began = time.perf_counter()
            for message in messages[start : start + 50]:
                append(message)
            found.append((time.perf_counter() - began) / 50)
    bare.close()
    rates = [1 / statistics.median(found) for found in spans.values()]
    say(f"durable append   {rates[1]:8.0f} a second   bare {rates[0]:.0f}")


def measure_view(store: SessionDB) -> None:
    """Print the time to load the whole live view."""
    count = len(store.view(SESSION).messages)
    say(f"view             {time_ms(lambda: store.view(SESSION)):8.1f} ms  {count} rows")


def measure_search(store: SessionDB) -> None:
    """Print the time to index everything, and to find rare and common words."""
    started = time.perf_counter()
    rows = store.index_pending()
    per_row = (time.perf_counter() - started) / max(1, rows) * 1e6
    say(f"index            {per_row:8.0f} µs a row")
    for query in ("xylophone", "timeout", "the"):
        span = time_ms(partial(store.search, query))
        say(f"search {query:<10}{span:8.2f} ms")


def measure_commit(store: SessionDB) -> None:
    """Print the time to cover all but the newest twentieth of the view with one summary."""
    rows = store.view(SESSION).messages
    lease = store.acquire_lease(SESSION)
    assert lease is not None
    watermark = store.head(SESSION).watermark
    store.open_pass(
        PassOpening("bench", SESSION, PassKind.SUMMARY, "manual", watermark, lease.token)
    )
    commit = PassCommit(
        "bench",
        lease,
        PassKind.SUMMARY,
        "summary",
        watermark,
        cover=tuple(row["_row_id"] for row in rows[: -len(rows) // 20]),
        new_row=NewRow({"role": "user", "content": "what happened " * 200}, PassKind.SUMMARY),
    )
    started = time.perf_counter()
    store.commit_pass(commit, lambda: True)
    span = (time.perf_counter() - started) * 1000
    say(f"commit           {span:8.1f} ms  {len(commit.cover)} places")


def main() -> None:
    """Measure one store and print one line a figure."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=10_000)
    count: int = parser.parse_args().rows
    messages = transcript(7, messages=count)
    payload = sum(len(orjson.dumps(message)) for message in messages)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        store = SessionDB(folder / "state.db")
        store.create_session(SESSION, "bench")
        alone = min(2_000, count // 2)
        measure_appends(store, folder, messages[:alone])
        for start in range(alone, count, 200):
            store.append(SESSION, messages[start : start + 200])
        store.append_message(SESSION, "user", "play the xylophone")
        measure_view(store)
        measure_search(store)
        measure_commit(store)
        store.close()
        size = store.path.stat().st_size
        say(f"disk             {size / payload:8.2f} x payload, search included")


if __name__ == "__main__":
    main()
