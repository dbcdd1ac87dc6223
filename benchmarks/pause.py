"""How long a turn waits for a compaction while passes are prepared in the background.

    python benchmarks/pause.py [--speed 10] [--turns 120] [--window 64000]

One turn each 5 s, a summary takes 20 s; both are divided by `--speed`, so that 120 turns take a
minute. A pause is what passes between the beginning of a turn and the arrival of its request at the
stub server. It is shown for turns that committed a pass and for all others; turns that found the
window full before the pass was ready are counted apart, with what they waited. The first line adds
1 % of the window a turn, the second 12 %, which is faster than the summary, and the third is the
second with background passes off. The machine's load is shown: pauses are not scaled.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile
import time
from pathlib import Path

from agent.base.record import dataclass
from agent.base.settings import (
    AuxiliaryCompressionSettings,
    AuxiliarySettings,
    CompressionSettings,
    ModelSettings,
    Settings,
)
from agent.testing.stub_reply import Reply
from agent.testing.stub_server import DEFAULT_MODEL, StubModelServer
from agent.testing.summaries import GOOD_SUMMARY
from hermes_state import SessionDB
from run_agent import AIAgent

SUMMARISER = "stub-summary"
TURN_EVERY_S, SUMMARY_S = 5.0, 20.0
LIMIT_MS = 100.0


@dataclass(frozen=True)
class Load:
    """What is run: turns, the share of the window that each adds, and how time is divided."""

    turns: int
    share: float
    window_tokens: int
    speed: float
    background: bool


@dataclass(frozen=True)
class Pause:
    """One turn: milliseconds before its request, those it waited, and the passes it committed."""

    before_ms: float
    waited_ms: int
    passes: int


def run(load: Load) -> list[Pause]:
    """Return the pauses of a new conversation under a load, in the order of its turns."""
    answer = "word " * int(load.share * load.window_tokens)
    summary = Reply(text=GOOD_SUMMARY, before_first_byte_s=SUMMARY_S / load.speed)
    with (
        tempfile.TemporaryDirectory() as folder,
        StubModelServer(
            then=Reply(text=answer, chunks=[answer]), window_tokens=load.window_tokens
        ) as server,
    ):
        server.script([], model=SUMMARISER, then=summary)
        store = SessionDB(db_path=Path(folder) / "state.db")
        agent = AIAgent(
            session_db=store, settings=_settings(server.base_url, load), skip_memory=True
        )
        agent.chat("warm up")
        pauses = []
        due_at = time.monotonic()
        for number in range(load.turns):
            time.sleep(max(0.0, due_at - time.monotonic()))
            due_at = time.monotonic() + TURN_EVERY_S / load.speed
            pauses.append(_take_turn(agent, server, number))
        agent.close()
        store.close()
    return pauses


def _settings(base_url: str, load: Load) -> Settings:
    return Settings(
        model=ModelSettings(
            name=DEFAULT_MODEL, base_url=base_url, context_length=load.window_tokens
        ),
        compression=CompressionSettings(background=load.background),
        auxiliary=AuxiliarySettings(AuxiliaryCompressionSettings(model=SUMMARISER)),
    )


def _take_turn(agent: AIAgent, server: StubModelServer, number: int) -> Pause:
    seen = len(server.requests_for(DEFAULT_MODEL))
    started = time.monotonic()
    result = agent.run_conversation(f"turn {number}")
    arrived_at = server.requests_for(DEFAULT_MODEL)[seen].arrived_at
    return Pause((arrived_at - started) * 1000, result.waited_ms, len(result.passes))


def show(load: Load) -> float:
    """Print one line for a load; return by how many milliseconds a commit prolonged a pause most.

    Turns that found the window full are left out of that.
    """
    pauses = run(load)
    full = [pause for pause in pauses if pause.waited_ms]
    others = [pause for pause in pauses if not pause.waited_ms]
    committing = [pause.before_ms for pause in others if pause.passes]
    plain = [pause.before_ms for pause in others if not pause.passes]
    waits = ", ".join(f"{pause.waited_ms * load.speed / 1000:.1f} s" for pause in full) or "none"
    sys.stdout.write(
        f"{'background' if load.background else 'foreground'}, {load.share:.0%} a turn: "
        f"{len(pauses)} turns, {sum(pause.passes for pause in pauses)} passes; pause "
        f"{_figures(plain)} plain, {_figures(committing)} with a commit; "
        f"{len(full)} full windows waited: {waits}\n"
    )
    return max(committing, default=0.0) - (statistics.median(plain) if plain else 0.0)


def _figures(pauses_ms: list[float]) -> str:
    if not pauses_ms:
        return "none"
    return f"{statistics.median(pauses_ms):.0f} ms (most {max(pauses_ms):.0f})"


def main() -> None:
    """Measure both loads with background passes, and the heavier one without."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--speed", type=float, default=10.0)
    parser.add_argument("--turns", type=int, default=120)
    parser.add_argument("--window", type=int, default=64_000)
    options = parser.parse_args()
    few = max(1, options.turns // 4)
    loads = [
        Load(options.turns, 0.01, options.window, options.speed, background=True),
        Load(few, 0.12, options.window, options.speed, background=True),
        Load(few, 0.12, options.window, options.speed, background=False),
    ]
    longest = [show(load) for load in loads][0]
    sys.stdout.write(
        f"first line: a compaction held a turn up for {longest:.0f} ms at most, "
        f"goal {LIMIT_MS:.0f} ms; load of the machine {os.getloadavg()[0]:.1f}\n"
    )


if __name__ == "__main__":
    main()
