from __future__ import annotations

from typing import Any

import opentelemetry.metrics
import opentelemetry.trace
import pytest

from agent.base.errors import CallCancelled, RateError
from agent.base.events import TextDelta, ToolFinished, ToolStarted
from agent.base.settings import TelemetrySettings
from agent.pass_events import PassContext, payload_of_pass
from agent.providers.protocol import ModelReply, TokenUsage
from agent.sessions.records import (
    NewRow,
    PassCommit,
    PassKind,
    PassOpening,
    PassRecord,
    PassStatus,
)
from agent.telemetry import Telemetry
from hermes_state import SessionDB
from tests.trace.collector import Collector, SpanSeen
from tests.trace.ledger import ledger_row

REPLY = ModelReply(
    message={"role": "assistant", "content": "secret words"},
    finish_reason="stop",
    usage=TokenUsage(prompt=900, completion=40, cached=800, reasoning=5, cache_write=50),
    model="m-2026",
    request_id="req-1",
)


def tracing(collector: Collector) -> Telemetry:
    settings = TelemetrySettings(otel=True, otel_endpoint=collector.endpoint)
    return Telemetry(settings, platform="cli")


def committed_pass(store: SessionDB) -> PassRecord:
    """Return the ledger row of a pass that a real store committed."""
    store.create_session("s1", "cli")
    rows = store.append(
        "s1", [{"role": "user", "content": f"message {number} " * 50} for number in range(4)]
    )
    lease = store.acquire_lease("s1")
    assert lease is not None
    store.open_pass(
        PassOpening(
            pass_id="pass-1",
            session_id="s1",
            kind=PassKind.SUMMARY,
            trigger="post_tool",
            watermark=4,
            lease_token=lease.token,
            tokens_before=sum(row["_tokens"] for row in rows),
            messages_before=4,
            model="small-model",
            route="small-model at https://models.example/v1",
        )
    )
    store.commit_pass(
        PassCommit(
            pass_id="pass-1",
            lease=lease,
            kind=PassKind.SUMMARY,
            strategy="summary",
            watermark=4,
            cover=tuple(row["_row_id"] for row in rows[:3]),
            new_row=NewRow({"role": "user", "content": "a summary"}, PassKind.SUMMARY),
            tokens_after=170,
            messages_after=2,
            cost=0.0125,
            durations={"summary": 1_200, "total": 1_300},
            receipt={"masked": "", "summary_calls": 1},
        ),
        lambda: True,
    )
    store.release_lease(lease)
    return store.pass_record("pass-1")


def test_the_collector_gets_the_numbers_of_the_ledger(
    collector: Collector, store: SessionDB
) -> None:
    ledger = committed_pass(store)
    context = PassContext(context_limit_tokens=16_000, compression_count=1)
    traced = tracing(collector)
    traced.publish_pass(ledger, context)
    traced.close()

    [span] = collector.spans()
    payload = payload_of_pass(ledger, context)
    known = {key: value for key, value in payload.items() if value is not None}
    assert span.attributes == {
        **{f"hermes.compaction.{key}": value for key, value in known.items()},
        "hermes.compaction.cost": ledger.cost,
        "gen_ai.conversation.id": ledger.session_id,
    }
    assert (span.name, span.parent, span.is_error) == ("hermes.compaction", "", False)
    assert ledger.finished_at is not None
    assert span.started_ns == pytest.approx(ledger.created_at * 1e9, abs=1_000)
    assert span.ended_ns == pytest.approx(ledger.finished_at * 1e9, abs=1_000)
    assert ledger.tokens_before is not None
    assert ledger.tokens_after is not None
    labels = {"kind": "summarize", "outcome": "committed", "failure_class": "none"}
    assert collector.points() == {
        "hermes.compaction.attempts": [(labels, 1)],
        "hermes.compaction.tokens_reclaimed": [
            (labels, ledger.tokens_before - ledger.tokens_after)
        ],
        "hermes.compaction.duration": [(labels, (1, ledger.durations["total"]))],
        "hermes.compaction.cost": [(labels, ledger.cost)],
    }


def test_attempts_are_counted_by_outcome_and_class(collector: Collector) -> None:
    failed = ledger_row(
        status=PassStatus.FAILED, failure_class="summary_network_failure", tokens_after=None
    )
    blocked = ledger_row(
        status=PassStatus.BLOCKED,
        failure_class="blocked:cooldown",
        tokens_before=None,
        tokens_after=None,
        cost=None,
        durations={},
    )
    traced = tracing(collector)
    for ledger in (failed, failed, blocked):
        traced.publish_pass(ledger)
    traced.close()

    network = {
        "kind": "summarize",
        "outcome": "failed",
        "failure_class": "summary_network_failure",
    }
    cooldown = {"kind": "summarize", "outcome": "blocked", "failure_class": "blocked:cooldown"}
    assert collector.points() == {
        "hermes.compaction.attempts": [(network, 2), (cooldown, 1)],
        "hermes.compaction.duration": [(network, (2, 2_600))],
        "hermes.compaction.cost": [(network, 0.025)],
    }
    assert [(span.is_error, span.attributes.get("error.type")) for span in collector.spans()] == [
        (True, "summary_network_failure"),
        (True, "summary_network_failure"),
        (False, None),
    ]


AGENT = "invoke_agent hermes"
CONVERSATION = {"gen_ai.conversation.id": "s1"}


def tool_shape(name: str, call_id: str, size: int, **more: str) -> tuple[Any, ...]:
    attributes = {
        **CONVERSATION,
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": name,
        "gen_ai.tool.type": "function",
        "gen_ai.tool.call.id": call_id,
        "hermes.tool.bytes": size,
        **{key.replace("_", "."): value for key, value in more.items()},
    }
    return f"execute_tool {name}", AGENT, "SPAN_KIND_INTERNAL", bool(more), attributes


CALL_SHAPE = (
    "chat m",
    AGENT,
    "SPAN_KIND_CLIENT",
    False,
    {
        **CONVERSATION,
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": "models.example",
        "gen_ai.request.model": "m",
        "gen_ai.request.max_tokens": 512,
        "gen_ai.response.model": "m-2026",
        "gen_ai.response.id": "req-1",
        "gen_ai.response.finish_reasons": ["stop"],
        "gen_ai.usage.input_tokens": 900,
        "gen_ai.usage.output_tokens": 40,
        "gen_ai.usage.cache_read.input_tokens": 800,
        "gen_ai.usage.cache_creation.input_tokens": 50,
        "gen_ai.usage.reasoning.output_tokens": 5,
    },
)
TURN_SHAPE = (
    AGENT,
    "",
    "SPAN_KIND_INTERNAL",
    False,
    {
        **CONVERSATION,
        "gen_ai.operation.name": "invoke_agent",
        "gen_ai.agent.name": "hermes",
        "hermes.turn.id": "t1",
        "hermes.platform": "cli",
        "hermes.turn.stop_reason": "stop",
    },
)


def test_a_turn_holds_its_model_calls_tools_and_passes(collector: Collector) -> None:
    traced = tracing(collector)
    with traced.turn("s1", "t1") as turn:
        with traced.model_call("m", "m at https://models.example/v1", max_tokens=512) as call:
            call.reply = REPLY
        traced.observe(ToolStarted(name="shell", call_id="c1", arguments={"command": "secret"}))
        traced.observe(ToolStarted(name="read", call_id="c2"))
        traced.observe(TextDelta(text="secret"))
        traced.observe(ToolFinished(call_id="c2", ok=True, bytes=10, duration_ms=1))
        traced.observe(ToolFinished(call_id="c1", ok=False, bytes=20, duration_ms=2))
        traced.publish_pass(ledger_row())
        turn.stop_reason = "stop"
    traced.close()

    spans = [span for span in collector.spans() if span.name != "hermes.compaction"]
    assert [shape(span) for span in spans] == [
        CALL_SHAPE,
        tool_shape("read", "c2", 10),
        tool_shape("shell", "c1", 20, error_type="tool_error"),
        TURN_SHAPE,
    ]
    [compaction] = [span for span in collector.spans() if span.name == "hermes.compaction"]
    assert compaction.parent == AGENT
    assert "secret" not in repr([message.SerializeToString() for message in collector.traces])


def shape(span: SpanSeen) -> tuple[Any, ...]:
    return span.name, span.parent, span.kind, span.is_error, span.attributes


@pytest.mark.parametrize(
    ("error", "error_type"),
    [
        (RateError("slow down"), "rate"),
        (CallCancelled("stopped"), "cancelled"),
        (KeyboardInterrupt(), "KeyboardInterrupt"),
    ],
)
def test_an_error_passes_through_and_is_named_on_the_spans(
    collector: Collector, error: BaseException, error_type: str
) -> None:
    traced = tracing(collector)
    with (
        pytest.raises(type(error)),
        traced.turn("s1", "t1"),
        traced.model_call("m", "m at embedded", max_tokens=1),
    ):
        raise error
    traced.close()

    assert [
        (span.name, span.is_error, span.attributes["error.type"]) for span in collector.spans()
    ] == [("chat m", True, error_type), ("invoke_agent hermes", True, error_type)]


def test_agents_share_one_pipeline_until_the_last_is_closed(collector: Collector) -> None:
    first, second = tracing(collector), tracing(collector)
    first.publish_pass(ledger_row())
    second.publish_pass(ledger_row())
    first.close()
    assert collector.metrics == []
    second.close()
    second.close()

    [(_labels, attempts)] = collector.points()["hermes.compaction.attempts"]
    assert attempts == 2


def test_no_provider_is_set_for_the_rest_of_the_process(collector: Collector) -> None:
    traced = tracing(collector)
    traced.publish_pass(ledger_row())
    traced.close()

    providers = [
        opentelemetry.trace.get_tracer_provider(),
        opentelemetry.metrics.get_meter_provider(),
    ]
    assert [type(provider).__name__ for provider in providers] == [
        "ProxyTracerProvider",
        "_ProxyMeterProvider",
    ]
