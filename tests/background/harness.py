"""An agent whose summary model answers when a test says so, and a conversation near the trigger."""

from __future__ import annotations

import math
import threading
from typing import Any

from agent.base.events import CompactionFinished, CompactionStarted, Event
from agent.base.settings import CompressionSettings, Settings
from agent.sessions.records import PassRecord, PassStatus
from agent.testing.stub_reply import Reply
from agent.testing.stub_server import StubModelServer
from tests.field_reports.harness import SUMMARISER, SUMMARY, Bench, settings_for, small_talk

WINDOW = 8_000
NEAR = 4_700
"""Tokens of a view that lie between 80 % of the trigger and the trigger."""
OVER_TRIGGER = 6_200
"""Tokens of a view above the trigger that still fit."""
WAIT_S = 10.0


def settings(stub: StubModelServer, **compression: Any) -> Settings:
    """Return settings of the two models with passes in the background."""
    background = compression.pop("background", True)
    given = CompressionSettings(**compression)
    return settings_for(
        stub.base_url,
        window_tokens=WINDOW,
        output_tokens=500,
        compression=given,
        background=background,
    )


def held_summary(stub: StubModelServer, text: str = SUMMARY) -> threading.Event:
    """Let the summary model answer with `text` once the returned event is set."""
    release = threading.Event()
    stub.script(
        [],
        model=SUMMARISER,
        then=Reply(text=text, before_first_byte_s=math.inf, release=release),
    )
    return release


def fill_near(bench: Bench, tokens: int = NEAR) -> None:
    """Accept small talk up to a size between the two thresholds."""
    number = 0
    while bench.store.view(bench.session_id).tokens < tokens:
        number += 1
        bench.fill(small_talk(1, tokens=100, topic=f"talk {number}"))


def wait_for_summary_request(bench: Bench, count: int = 1) -> None:
    """Wait until the summary model was asked `count` times in all."""
    asked = threading.Event()
    for _ in range(int(WAIT_S / 0.01)):
        if len(bench.summary_requests) >= count:
            return
        asked.wait(0.01)
    raise TimeoutError(f"the summary model was asked {len(bench.summary_requests)} times")


def settle(bench: Bench) -> None:
    """Wait until nothing is being prepared any more."""
    job = bench.agent.background._job
    assert job is not None
    assert job.done.wait(WAIT_S)
    job.thread.join(WAIT_S)


def rows_of(bench: Bench, *statuses: PassStatus) -> list[PassRecord]:
    """Return the ledger's rows of these statuses, oldest first."""
    return [row for row in bench.store.passes("s") if row.status in statuses]


def pass_events(events: list[Event]) -> list[tuple[str, str]]:
    """Return (type, pass id) of the events that begin and end passes, in order."""
    told = [e for e in events if isinstance(e, CompactionStarted | CompactionFinished)]
    return [(event.type, event.pass_id) for event in told]


def background_threads() -> list[threading.Thread]:
    """Return the threads of preparations and engines that do not end."""
    names = ("hermes-background", "hermes-engine")
    found = [thread for thread in threading.enumerate() if thread.name in names]
    for thread in found:
        thread.join(WAIT_S)
    return [thread for thread in found if thread.is_alive()]
