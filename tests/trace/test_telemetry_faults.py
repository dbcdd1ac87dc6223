from __future__ import annotations

import json
import logging
import subprocess
import sys
import threading
import time
from typing import Any

import pytest

from agent import otel, telemetry
from agent.base.faults import FAULTS, FaultCounter
from agent.base.settings import TelemetrySettings
from agent.pass_events import PassContext, payload_of_pass
from agent.sessions.records import PassKind
from agent.telemetry import Telemetry
from tests.best_of import best_of
from tests.trace.collector import Collector
from tests.trace.ledger import ledger_row


def tracing(collector: Collector) -> Telemetry:
    return Telemetry(TelemetrySettings(otel=True, otel_endpoint=collector.endpoint))


def faults(channel: str) -> int:
    counted = FAULTS.counts().get(channel)
    return counted.count if counted else 0


@pytest.mark.parametrize("changes", [{"kind": PassKind.IMPORT}, {"count": 2}])
def test_what_is_not_published_leaves_no_trace(
    collector: Collector, caplog: pytest.LogCaptureFixture, changes: dict[str, Any]
) -> None:
    caplog.set_level(logging.INFO, "hermes.compaction")
    traced = tracing(collector)
    traced.publish_pass(ledger_row(**changes))
    traced.close()

    assert (collector.traces, collector.metrics, caplog.records) == ([], [], [])


def test_a_pass_is_one_line_of_json_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "hermes.compaction")
    ledger = ledger_row()

    Telemetry(TelemetrySettings()).publish_pass(ledger)

    [record] = caplog.records
    payload = payload_of_pass(ledger, PassContext())
    assert json.loads(record.getMessage()) == {
        "event": "compaction",
        **payload,
        "cost": ledger.cost,
    }
    assert "\n" not in record.getMessage()


def test_a_collector_that_refuses_is_counted_and_nothing_is_raised(collector: Collector) -> None:
    collector.status = 400
    before = faults("otel")
    traced = tracing(collector)
    traced.publish_pass(ledger_row())
    traced.close()

    assert faults("otel") - before == 2
    assert telemetry.failures()["otel"].last_error == "ExportFailed"


def test_a_collector_that_never_answers_holds_neither_pass_nor_close(
    collector: Collector, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(otel, "EXPORT_TIMEOUT_S", 0.2)
    collector.held.set()

    def slower_share() -> float:
        """Return the larger part that was taken of its bound: 1 s to publish, 2 s in all."""
        before = faults("otel")
        traced = tracing(collector)
        started = time.monotonic()
        for _ in range(10):
            traced.publish_pass(ledger_row())
        published_s = time.monotonic() - started
        traced.close()
        closed_s = time.monotonic() - started
        assert faults("otel") - before == 2
        return max(published_s / 1.0, closed_s / 2.0)

    assert best_of(slower_share, 1.0) < 1.0


def test_a_collector_that_is_slower_than_its_limit_does_not_hold_close(
    collector: Collector, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(otel, "CLOSE_TIMEOUT_S", 0.3)
    collector.held.set()

    def closed_after_s() -> float:
        for thread in threading.enumerate():  # what an earlier try left must not be counted here
            if thread.name == "hermes-otel":
                thread.join(10)
        before = faults("otel")
        traced = tracing(collector)
        traced.publish_pass(ledger_row())

        started = time.monotonic()
        traced.close()
        elapsed_s = time.monotonic() - started

        assert faults("otel") - before == 1
        assert telemetry.failures()["otel"].last_error == "TimeoutError"
        return elapsed_s

    assert 0.3 <= best_of(closed_after_s, 1.0) < 1.0


def test_a_row_that_cannot_be_read_is_counted_and_nothing_is_raised() -> None:
    before = faults("payload")

    Telemetry(TelemetrySettings()).publish_pass(ledger_row(receipt={"masked": "broken"}))

    assert faults("payload") - before == 1


def test_faults_are_seen_by_a_later_process() -> None:
    earlier, later = FaultCounter(), FaultCounter()
    path = telemetry._faults_file()
    for counter in (earlier, later):
        counter.note("relay", TimeoutError("slow"))
        counter.note("relay", "ExportFailed")
        counter.save(path)
        counter.save(path)

    found = telemetry.failures()["relay"]
    assert (found.count, found.last_error) == (4, "ExportFailed")
    assert telemetry.availability()[1].startswith("relay failed 4 times, last at 20")


@pytest.mark.parametrize("text", ["", "[]", "nonsense", '{"otel": 3}', '{"otel": {"count": 1}}'])
def test_a_broken_file_of_faults_counts_as_none(text: str) -> None:
    path = telemetry._faults_file()
    path.parent.mkdir(parents=True)
    path.write_text(text, "utf-8")

    assert telemetry.failures() == FAULTS.unsaved()


def test_the_extras_are_named_with_their_versions() -> None:
    [line] = telemetry.availability()[:1]

    relay, otel_part = line.split("; ")
    assert relay.startswith("relay: nemo-relay 0.")
    assert otel_part.startswith("otel: opentelemetry-exporter-otlp-proto-http 1.")


_WITHOUT_EXTRAS = """
import sys

class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.startswith(("nemo_relay", "opentelemetry.sdk", "opentelemetry.exporter")):
            raise ModuleNotFoundError(name)

sys.meta_path.insert(0, Missing())
import logging
logging.disable()
from agent.base.settings import TelemetrySettings
from agent.telemetry import Telemetry, availability, failures
from tests.trace.ledger import ledger_row
assert not any(name.startswith(("nemo_relay", "opentelemetry", "asyncio")) for name in sys.modules)
traced = Telemetry(TelemetrySettings(relay=True, otel=True))
for number in range(3):
    with traced.turn("s1", str(number)) as turn:
        with traced.model_call("m", "m at embedded", max_tokens=1):
            pass
        traced.publish_pass(ledger_row())
traced.close()
print(availability()[0])
print({channel: fault.count for channel, fault in failures().items()})
"""


def test_without_the_extras_everything_works_and_one_line_says_so() -> None:
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", _WITHOUT_EXTRAS],
        capture_output=True,
        text=True,
        timeout=15,
    )

    assert done.stderr == ""
    extras, counted = done.stdout.splitlines()
    assert extras == (
        "relay: not installed; otel: not installed; "
        "to trace, pip install 'hermes-continuum[relay,otel]'"
    )
    assert counted == "{'relay': 1, 'otel': 1}"
