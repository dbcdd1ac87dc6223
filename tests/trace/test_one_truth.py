"""What `hermes compactions show`, the event, the span and the ledger say of a pass is the same."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from agent.base.events import CompactionFinished, Event
from agent.base.settings import Settings, TelemetrySettings
from agent.cli.app import run
from agent.testing.builders import conversation, user
from agent.testing.scripted import ScriptedProvider
from hermes_state import SessionDB
from run_agent import AIAgent
from tests.trace.collector import Collector

NUMBERS = ("tokens_before", "tokens_after", "messages_before", "messages_after")


@pytest.mark.parametrize("commits", [True, False], ids=["committed", "refused"])
def test_surface_event_span_and_ledger_carry_the_same_numbers(
    capsys: pytest.CaptureFixture[str], *, commits: bool
) -> None:
    seen: list[Event] = []
    store = SessionDB(db_path=Path(os.environ["HERMES_HOME"]) / "state.db")
    with Collector() as collector:
        telemetry = TelemetrySettings(otel=True, otel_endpoint=collector.endpoint)
        agent = AIAgent(
            session_db=store,
            session_id="s",
            settings=Settings(telemetry=telemetry),
            provider=ScriptedProvider(),
            on_event=seen.append,
            skip_memory=True,
        )
        store.create_session("s", "test")
        store.append("s", conversation(10))
        agent.context_compressor.compress = lambda rows, **_: (
            [user("notes on what was said"), *rows[-2:]] if commits else rows
        )
        ledger = agent.compress()
        agent.close()
    store.close()

    assert run(["compactions", "show", ledger.id, "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    shown = shown.get("pass", shown)
    [event] = [event for event in seen if isinstance(event, CompactionFinished)]
    [span] = [span for span in collector.spans() if span.name == "hermes.compaction"]
    expected = {name: getattr(ledger, name) for name in NUMBERS}
    assert {name: shown[name] for name in NUMBERS} == expected
    assert {name: getattr(event, name) for name in NUMBERS} == expected
    prefix = "hermes.compaction."
    assert {name: span.attributes.get(prefix + name) for name in NUMBERS} == expected
    assert (
        ledger.durations["total"],
        shown["durations"]["total"],
        event.duration_ms,
        span.attributes[prefix + "duration_ms"],
    ) == (ledger.durations["total"],) * 4
    assert (shown["id"], event.pass_id, span.attributes[prefix + "attempt_id"]) == (ledger.id,) * 3
    assert (shown["status"], event.status) == (ledger.status.value,) * 2
    assert span.attributes[prefix + "outcome"] == ("committed" if commits else "aborted")
