"""What one whole pass costs beside its model: plan, mask, digest or summary, review, commit.

    python benchmarks/compaction.py [--rows 1000 10000]

A session of seeded transcript rows (1.66 KB each on average) is compacted by hand, first with a
summary from the stub server, then without a model; processor time is counted, so that a busy
machine and the wait for a model do not show. The same rows were
extracted before, as they are after each turn. Beside it stands what the least pass must do: encode
and hash every row once.
"""

from __future__ import annotations

import argparse
import cProfile
import pstats
import sys
import tempfile
import time
from pathlib import Path

import orjson

from agent.base.settings import CompressionSettings, ModelSettings, Settings
from agent.sessions.records import PassRecord
from agent.testing.stub_reply import Reply
from agent.testing.stub_server import StubModelServer
from agent.testing.summaries import GOOD_SUMMARY
from agent.testing.transcripts import transcript
from hermes_state import SessionDB
from run_agent import AIAgent


def open_agent(store: SessionDB, session_id: str, base_url: str) -> AIAgent:
    """Return an agent whose window the rows just fit."""
    settings = Settings(
        model=ModelSettings(name="stub", base_url=base_url, context_length=10_000_000),
        compression=CompressionSettings(background=False),
    )
    return AIAgent(
        session_db=store,
        session_id=session_id,
        settings=settings,
        builtin_tools=False,
        skip_memory=True,
        skip_context_files=True,
    )


def compact(agent: AIAgent) -> tuple[PassRecord, float]:
    """Run one pass; return its ledger row and the processor milliseconds of this process."""
    started = time.process_time()
    record = agent.compress()
    return record, (time.process_time() - started) * 1000


def measure(rows: int, *, profile: bool) -> None:
    """Print what a pass over `rows` messages costs, with a summary and without a model."""
    messages = transcript(3, messages=rows)
    started = time.process_time()
    for message in messages:
        orjson.dumps(message)
    floor_ms = (time.process_time() - started) * 1000
    sys.stdout.write(f"{rows} rows, encoded once in {floor_ms:.1f} ms\n")
    with tempfile.TemporaryDirectory() as folder, StubModelServer(strict=False) as server:
        store = SessionDB(db_path=Path(folder) / "state.db")
        for name, reply in (
            ("summary", Reply(text=GOOD_SUMMARY)),
            ("no model", Reply(status=400, error="no such model")),
        ):
            server.script([], then=reply)
            store.create_session(name, "benchmark")
            for start in range(0, rows, 500):
                store.append(name, messages[start : start + 500])
            agent = open_agent(store, name, server.base_url)
            agent.pins()
            agent.context()
            profiler = cProfile.Profile(time.process_time)
            if profile:
                profiler.enable()
            record, took_ms = compact(agent)
            profiler.disable()
            sys.stdout.write(
                f"  {name:<9} {record.status} {record.kind} {record.failure_class}"
                f" {record.messages_before} -> {record.messages_after} rows:"
                f" {took_ms:8.1f} ms, {took_ms / floor_ms:.1f} x the encoding\n"
            )
            if profile:
                pstats.Stats(profiler).sort_stats("cumulative").print_stats(60)
            agent.close()
        store.close()


def main() -> None:
    """Measure each size that is asked for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, nargs="+", default=[1_000, 10_000])
    parser.add_argument("--profile", action="store_true")
    given = parser.parse_args()
    for rows in given.rows:
        measure(rows, profile=given.profile)


if __name__ == "__main__":
    main()
