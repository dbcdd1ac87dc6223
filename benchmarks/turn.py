"""Local time of a turn at 10, 1,000 and 10,000 live messages, beside the least the work can cost.

    python benchmarks/turn.py [--messages 10000] [--rounds 5]

The floor is one `orjson` encode of the same request and one plain HTTP exchange of the same bytes
with the same stub server. Local time is the turn's wall time less the stub's own.
"""

from __future__ import annotations

import argparse
import gc
import statistics
import sys
import tempfile
import time
from pathlib import Path

import httpx2
import orjson

from agent.base.messages import wire_message
from agent.base.settings import CompressionSettings, ModelSettings, Settings
from agent.testing.stub_reply import Reply
from agent.testing.stub_server import StubModelServer
from agent.testing.transcripts import transcript
from hermes_state import SessionDB
from run_agent import AIAgent

WINDOW = 8_000_000


def floor_ms(base_url: str, body: bytes, document: object) -> tuple[float, float]:
    """Return (encode, exchange) in milliseconds, each the better of three."""
    encodes, exchanges = [], []
    with httpx2.Client(trust_env=False, timeout=60) as client:
        for _ in range(3):
            started = time.perf_counter()
            orjson.dumps(document)
            encodes.append(time.perf_counter() - started)
            started = time.perf_counter()
            client.post(
                f"{base_url}/chat/completions",
                content=body,
                headers={"content-type": "application/json"},
            ).raise_for_status()
            exchanges.append(time.perf_counter() - started)
    return min(encodes) * 1000, min(exchanges) * 1000


def measure(count: int, rounds: int) -> None:
    """Print one line for conversations of `count` live messages."""
    with (
        tempfile.TemporaryDirectory() as folder,
        StubModelServer(then=Reply(text="done"), strict=False, window_tokens=WINDOW) as server,
    ):
        store = SessionDB(db_path=Path(folder) / "state.db")
        model = ModelSettings(name="stub", base_url=server.base_url, context_length=WINDOW)
        settings = Settings(model=model, compression=CompressionSettings(threshold=0.85))
        agent = AIAgent(session_db=store, session_id="bench", settings=settings, skip_memory=True)
        store.create_session("bench", "bench")
        store.append("bench", transcript(7, messages=count))
        agent.chat("warm up")
        sent = server.requests[-1]
        del server.requests[:]
        turns = []
        for number in range(rounds):
            gc.collect()
            started = time.perf_counter()
            agent.chat(f"question {number}")
            turns.append((time.perf_counter() - started) * 1000)
            del server.requests[:]
        document = orjson.loads(sent.raw)
        assert document["messages"] == [wire_message(row) for row in document["messages"]]
        encode, exchange = floor_ms(server.base_url, sent.raw, document)
        agent.close()
        store.close()
    turn = statistics.median(turns)
    floor = encode + exchange
    sys.stdout.write(
        f"{count:>8} live  {len(sent.raw) / 1e6:6.1f} MB  turn {turn:8.1f} ms  "
        f"encode {encode:6.1f} + exchange {exchange:7.1f} = floor {floor:7.1f} ms  "
        f"ratio {turn / floor:5.2f}\n"
    )


def main() -> None:
    """Measure each size and print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--messages", type=int, action="append")
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    for count in options.messages or (10, 1_000, 10_000):
        measure(count, options.rounds)


if __name__ == "__main__":
    main()
