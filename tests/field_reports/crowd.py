"""Processes that compact one session, all at once or one told by the other.

python -m tests.field_reports.crowd many URL PATH PLACE COUNT ROUNDS
    COUNT processes begin each of ROUNDS rounds together: each appends a message and compacts
python -m tests.field_reports.crowd one URL PATH PLACE
    does what lines on standard input say: `load`, `append TEXT`, `compact`, `hold`

PLACE is `in_place` or `rotating`. What happened comes on standard output, one JSON line each.
"""

from __future__ import annotations

import hashlib
import multiprocessing
import os
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import orjson

from agent.base.messages import wire_message
from agent.base.settings import CompressionSettings
from agent.sessions.records import Lease
from hermes_state import SessionDB
from run_agent import AIAgent
from tests.field_reports.harness import settings_for, words

WINDOW = 8_000
MESSAGE_TOKENS = 90


class HeldStore(SessionDB):
    """A store that can wait between the view an attempt read and the lease it asks for."""

    is_held = False

    def acquire_lease(self, *arguments: Any, **options: Any) -> Lease | None:
        if self.is_held:
            self.is_held = False
            say(held=True)
            sys.stdin.readline()
        return super().acquire_lease(*arguments, **options)


def say(**fields: object) -> None:
    """Write a line in one piece, so that lines of several processes never mix."""
    os.write(1, orjson.dumps(fields) + b"\n")


def open_agent(base_url: str, path: str, place: str) -> AIAgent:
    """Open a store of this process and an agent on the session `s`, and load its view."""
    in_place = CompressionSettings(in_place=place == "in_place")
    agent = AIAgent(
        session_db=HeldStore(db_path=Path(path)),
        session_id="s",
        settings=settings_for(base_url, window_tokens=WINDOW, compression=in_place),
        builtin_tools=False,
        skip_memory=True,
        skip_context_files=True,
    )
    agent.context()
    return agent


def seen_by(agent: AIAgent) -> dict[str, Any]:
    """Return what the agent takes for the conversation, once it caught up."""
    agent.live.refresh()
    shown = [[row["_seq"], wire_message(row)] for row in agent.live.messages]
    digest = hashlib.sha256(orjson.dumps(shown)).hexdigest()
    return {"generation": agent.live.head.generation, "view": digest}


def compact(agent: AIAgent) -> dict[str, Any]:
    """Run one pass and return how it ended."""
    ended = agent.compress()
    return {"status": ended.status, "class": ended.failure_class, "session": agent.session_id}


def take_part(number: int, rounds: int, opened: Callable[[], AIAgent], barrier: Any) -> None:
    """Append and compact in every round, beginning when all others do."""
    agent = opened()
    for round_number in range(rounds):
        text = f"process {number} round {round_number}: {words(MESSAGE_TOKENS, f'{number}')}"
        barrier.wait()
        agent.submit(text)
        told = {"text": text, **compact(agent)}
        barrier.wait()
        say(process=number, round=round_number, **told, **seen_by(agent))
    agent.close()
    agent.store.close()


def run_many(opened: Callable[[], AIAgent], count: int, rounds: int) -> None:
    """Run the processes, children of this one that has loaded everything already."""
    fork = multiprocessing.get_context("fork")
    barrier = fork.Barrier(count)
    crowd = [
        fork.Process(target=take_part, args=(number, rounds, opened, barrier))
        for number in range(count)
    ]
    for process in crowd:
        process.start()
    for process in crowd:
        process.join()
    sys.exit(max(abs(process.exitcode or 0) for process in crowd))


def obey(agent: AIAgent) -> None:
    """Do what each line says."""
    for line in sys.stdin:
        order, _, rest = line.strip().partition(" ")
        if order == "append":
            say(seq=agent.submit(rest))
        elif order == "hold":
            agent.store.is_held = True  # type: ignore[attr-defined]  # it is a HeldStore
            say(**compact(agent))
        elif order == "compact":
            say(**compact(agent))
        else:
            say(**seen_by(agent))


if __name__ == "__main__":
    how, *where = sys.argv[1:5]
    if how == "one":
        obey(open_agent(*where))
    else:
        run_many(partial(open_agent, *where), int(sys.argv[5]), int(sys.argv[6]))
