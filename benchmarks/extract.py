"""What extraction costs: CPU time a text of 1.7 KB, growth with size, and a whole conversation.

    python benchmarks/extract.py [--messages 2000]

CPU time is counted, not wall time, so that a busy machine does not show.
"""

from __future__ import annotations

import argparse
import functools
import random
import sqlite3
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from agent.base.extract import extract
from agent.base.extract_words import languages_of
from agent.base.messages import text_of
from agent.compaction.attempt import reconcile
from agent.compaction.budget import budget_for
from agent.compaction.conserve import conserve
from agent.compaction.context_compressor import ContextCompressor
from agent.compaction.material import read_material
from agent.testing.transcripts import transcript
from hermes_state import SessionDB

SIZE = 1_700
SAID = Path(__file__).parent.parent / "tests" / "base" / "said"
LANGUAGES = ("en", "de", "fr", "es", "zh", "ja")
_RULE = "Never rename public functions; the port of the test database is 5433 now. "
_TALK = "I had a look at the importer in src/importer/parse.py and it chokes on empty lines. "


def best_ms(work: Callable[[], object], rounds: int = 30) -> float:
    """Return the least CPU milliseconds of a piece of work that finds no sentence known."""
    spent = []
    for _ in range(rounds):
        languages_of.cache_clear()
        started = time.process_time_ns()
        work()
        spent.append(time.process_time_ns() - started)
    return min(spent) / 1e6


def texts(rng: random.Random) -> dict[str, tuple[str, str]]:
    """Return texts of `SIZE` characters with their roles by name."""
    log = "\n".join(
        f"2026-11-30 12:00:{line % 60:02d} INFO worker {line} took {rng.randrange(900)} ms "
        f"trace={rng.randrange(16**12):012x} path=/srv/app/{rng.randrange(999)}.json"
        for line in range(40)
    )
    code = Path(__file__).read_text("utf-8")
    return {
        "log, tool": (log, "tool"),
        "code, tool": (code, "tool"),
        "talk, assistant": (_TALK * 40, "assistant"),
        "talk, user": (_TALK * 40, "user"),
        "rules, user": (_RULE * 40, "user"),
        "Chinese, user": ("生产库先不要动，财务这两天在对账，端口是 5433。" * 80, "user"),
        **{f"{name}, user": (said(rng, name), "user") for name in LANGUAGES},
    }


def said(rng: random.Random, language: str) -> str:
    """Return short sentences of a language, none twice: as many rules as anything else."""
    found = []
    for name in ("rules", "talk"):
        blocks = (SAID / f"{name}.txt").read_text("utf-8").split("# ")
        found += next(block for block in blocks if block.startswith(language)).splitlines()[1:]
    rng.shuffle(found)
    return " ".join(line for line in found if line)


def measure_texts() -> None:
    """Print milliseconds by kind of text, and how they grow."""
    rows = texts(random.Random(1))
    sys.stdout.write(f"{'text of 1.7 KB':<20}{'ms':>8}{'x 16 size':>12}\n")
    for name, (text, role) in rows.items():
        short, long = text[:SIZE], (text[:SIZE] + "\n") * 16
        one = best_ms(functools.partial(extract, short, role))
        many = best_ms(functools.partial(extract, long, role), rounds=5)
        sys.stdout.write(f"{name:<20}{one:>8.2f}{many / one:>11.1f}x\n")


def size_of(store: SessionDB) -> int:
    """Return the bytes of the database file with its log written back."""
    with sqlite3.connect(store.path) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    connection.close()
    return store.path.stat().st_size


def measure_store(count: int) -> None:
    """Print what a conversation costs after its turns, and what a plan reads and restores."""
    with tempfile.TemporaryDirectory() as folder:
        store = SessionDB(db_path=Path(folder) / "state.db")
        store.create_session("bench", "bench")
        rows = transcript(7, messages=count)
        store.append("bench", rows)
        chars = sum(len(text_of(row.get("content"))) for row in rows)
        before = size_of(store)
        started = time.process_time()
        store.extract_pending()
        spent = time.process_time() - started
        found = len(store.extracts("bench", limit=10**7))
        grown = size_of(store) - before
        sys.stdout.write(
            f"\n{count} messages, {chars / 1e6:.1f} MB: {spent / count * 1e3:.2f} ms a message, "
            f"{found / count:.1f} extracts, {grown / max(chars, 1):.2f} bytes a character\n"
        )
        view = store.view("bench").messages
        read = best_ms(lambda: read_material(store, "bench"), rounds=3)
        material = read_material(store, "bench")
        budget = budget_for(128_000, 4_096, 0)
        engine = ContextCompressor()
        candidate = engine.compress(view)
        changes = reconcile(view, candidate)
        plan = best_ms(lambda: engine.compress(view), rounds=3)
        keep = best_ms(lambda: conserve(view, changes, material, budget), rounds=3)
        sys.stdout.write(f"plan {plan:.0f} ms; read {read:.0f} ms, conserve {keep:.0f} ms\n")
        store.close()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--messages", type=int, default=2_000)
    options = parser.parse_args()
    measure_texts()
    measure_store(options.messages)
