"""Cold start beside a bare interpreter: import, construct, first turn; medians of paired runs.

python benchmarks/start.py [--rounds 15]
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import tempfile
import time

from agent.testing.stub_reply import Reply
from agent.testing.stub_server import StubModelServer

BARE = "pass"
CONSTRUCT = """
from pathlib import Path
from hermes_state import SessionDB
from run_agent import AIAgent
store = SessionDB(db_path=Path({folder!r}) / "state.db")
agent = AIAgent(base_url={url!r}, model="stub", session_db=store, skip_memory=True)
"""
TURN = (
    CONSTRUCT
    + """
assert agent.chat("hello") == "hello to you"
"""
)


def run_ms(code: str) -> float:
    """Return the wall time of a new interpreter that runs `code`, in milliseconds."""
    started = time.perf_counter()
    subprocess.run([sys.executable, "-c", code], check=True)
    return (time.perf_counter() - started) * 1000


def main() -> None:
    """Print the medians and their ratios to the bare interpreter."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=15)
    rounds = parser.parse_args().rounds
    times: dict[str, list[float]] = {"bare": [], "construct": [], "first turn": []}
    with StubModelServer(then=Reply(text="hello to you")) as server:
        for _ in range(rounds):
            with tempfile.TemporaryDirectory() as folder:
                times["bare"].append(run_ms(BARE))
                given = {"folder": folder, "url": server.base_url}
                times["construct"].append(run_ms(CONSTRUCT.format(**given)))
                times["first turn"].append(run_ms(TURN.format(**given)))
    bare = statistics.median(times["bare"])
    for what, measured in times.items():
        middle = statistics.median(measured)
        sys.stdout.write(f"{what:<12} {middle:8.1f} ms   {middle / bare:5.1f} x bare\n")


if __name__ == "__main__":
    main()
