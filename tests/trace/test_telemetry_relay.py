"""What `Telemetry` does with a Relay host: leases, turns, and where the marks of passes go."""

from __future__ import annotations

import threading
import time

import pytest

from agent import relay_runtime
from agent.base.settings import TelemetrySettings
from agent.providers.protocol import ModelReply
from agent.relay_runtime import RelayHostRegistry, RelayRuntime
from agent.sessions.records import PassStatus
from agent.telemetry import Telemetry
from tests.best_of import best_of
from tests.trace.conftest import fresh_fake
from tests.trace.fake_relay import FakeRelay
from tests.trace.ledger import ledger_row

RELAY = TelemetrySettings(relay=True)
OPEN_SESSION = ("push", "hermes.session", "agent")
CLOSE_SESSION = ("pop", "hermes.session", {"outcome": "closed"})
OPEN_TURN = ("push", "hermes.turn", "function")
REPLY = ModelReply(
    message={"role": "assistant", "content": "x"}, finish_reason="stop", usage=None, model="m"
)


def close_turn(outcome: str) -> tuple[object, ...]:
    return ("pop", "hermes.turn", {"outcome": outcome})


def test_a_pass_is_marked_on_the_turn_that_it_ran_in(fake: FakeRelay) -> None:
    traced = Telemetry(RELAY, platform="cli")
    with traced.turn("s1", "t1") as turn:
        with traced.model_call("m", "m at embedded", max_tokens=8) as call:
            call.reply = REPLY
        traced.publish_pass(ledger_row(), turn_session_id="s1")
        turn.stop_reason = "stop"
    traced.close()
    traced.close()

    assert fake.scope.calls == [
        OPEN_SESSION,
        OPEN_TURN,
        ("push", "hermes.logical_llm_call", "function"),
        ("pop", "hermes.logical_llm_call", {"outcome": "stop"}),
        ("event", "compaction", "hermes.turn"),
        close_turn("stop"),
        CLOSE_SESSION,
    ]


def test_a_pass_before_any_turn_is_marked_on_its_session(fake: FakeRelay) -> None:
    traced = Telemetry(RELAY)
    traced.publish_pass(ledger_row(status=PassStatus.ABORTED, failure_class="no_progress"))
    traced.close()

    assert fake.scope.calls == [
        OPEN_SESSION,
        ("event", "compaction.attempt", "hermes.session"),
        CLOSE_SESSION,
    ]


def test_a_pass_of_a_child_session_is_marked_on_the_turn_that_rotated_into_it(
    fake: FakeRelay, registry: RelayHostRegistry
) -> None:
    traced = Telemetry(RELAY)
    with traced.turn("s1", "t1") as turn:
        traced.publish_pass(ledger_row(child_session_id="s2"), turn_session_id="s1")
        traced.publish_pass(ledger_row(session_id="s2"), turn_session_id="s1")
        turn.stop_reason = "stop"
    host = registry.for_profile()
    assert isinstance(host, RelayRuntime)
    assert host.get_session("s2") is None
    with traced.turn("s2", "t2"):
        assert host.get_session("s1") is None
        traced.publish_pass(ledger_row(session_id="s2"), turn_session_id="s2")
    traced.close()

    mark = ("event", "compaction", "hermes.turn")
    assert fake.scope.calls == [
        OPEN_SESSION,
        OPEN_TURN,
        mark,
        mark,
        close_turn("stop"),
        OPEN_SESSION,
        CLOSE_SESSION,
        OPEN_TURN,
        mark,
        close_turn(""),
        CLOSE_SESSION,
    ]


def test_an_error_is_the_outcome_of_its_turn(fake: FakeRelay) -> None:
    traced = Telemetry(RELAY)
    with pytest.raises(ZeroDivisionError), traced.turn("s1", "t1"):
        raise ZeroDivisionError
    traced.close()

    assert close_turn("ZeroDivisionError") in fake.scope.calls


def test_marks_reach_a_host_that_somebody_else_opened(fake: FakeRelay) -> None:
    """Without `telemetry.relay` no scope is opened, but one that is there is used."""
    other = Telemetry(RELAY)
    with other.turn("s1", "t1"):
        Telemetry(TelemetrySettings()).publish_pass(ledger_row())
    other.close()

    assert ("event", "compaction", "hermes.turn") in fake.scope.calls


def test_nothing_is_opened_where_relay_is_off(fake: FakeRelay) -> None:
    traced = Telemetry(TelemetrySettings())
    with traced.turn("s1", "t1"), traced.model_call("m", "m at embedded", max_tokens=8):
        traced.publish_pass(ledger_row())
    traced.close()

    assert fake.scope.calls == []


@pytest.mark.parametrize("hanging", ["push", "event", "pop"])
def test_ten_passes_with_a_relay_that_blocks_for_ever_lose_one_timeout_together(
    registry: RelayHostRegistry, monkeypatch: pytest.MonkeyPatch, hanging: str
) -> None:
    monkeypatch.setattr(relay_runtime, "SCOPE_OP_TIMEOUT", 0.8)

    def lost_s() -> float:
        with fresh_fake(registry, monkeypatch) as fake:
            fake.scope.hanging.add(hanging)
            traced = Telemetry(RELAY)

            started = time.monotonic()
            for number in range(10):
                with traced.turn("s1", f"t{number}"):
                    traced.publish_pass(ledger_row())
            traced.close()
            return time.monotonic() - started

    assert 0.8 <= best_of(lost_s, 1.6) < 1.6


def test_two_agents_in_two_threads_keep_their_turns_apart(fake: FakeRelay) -> None:
    inside, done = threading.Event(), threading.Event()

    def other_agent() -> None:
        traced = Telemetry(RELAY)
        with traced.turn("s2", "t2"):
            inside.set()
            done.wait(10)
            traced.publish_pass(ledger_row(session_id="s2"))
        traced.close()

    traced = Telemetry(RELAY)
    worker = threading.Thread(target=other_agent)
    with traced.turn("s1", "t1"):
        worker.start()
        assert inside.wait(10)
        turn = relay_runtime.current_turn()
        assert turn is not None
        assert turn.lease.session_id == "s1"
        traced.publish_pass(ledger_row(session_id="s1"))
        done.set()
        worker.join()
    traced.close()

    assert [call for call in fake.scope.calls if call[0] == "event"] == [
        ("event", "compaction", "hermes.turn"),
        ("event", "compaction", "hermes.turn"),
    ]
