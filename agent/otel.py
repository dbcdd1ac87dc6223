"""OpenTelemetry spans and metrics on their way to one OTLP collector (extra `otel`).

Providers are this module's own and never set globally. Sending happens in the SDK's threads; what
the collector does not take is counted. What is sent: `agent/telemetry.py`.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from agent.base.bounded import BoundedCalls
from agent.base.faults import FAULTS

if TYPE_CHECKING:
    from opentelemetry.trace import Span

Attributes = Mapping[str, str | int | float | bool | list[str]]

SERVICE_NAME = "hermes"
EXPORT_TIMEOUT_S = 2
"""Seconds for one export, retries included."""
CLOSE_TIMEOUT_S = 5.0
"""Seconds for sending what is left when a pipeline is closed."""

_calls = BoundedCalls(4, "hermes-otel")
_lock = threading.Lock()
_open: dict[str, OtelPipeline] = {}
"""Collector to the pipeline that is open to it."""


def open_pipeline(endpoint: str) -> OtelPipeline:
    """Return the process's pipeline to a collector; give it back with `close_pipeline`.

    `endpoint` is the collector's root; empty takes the variables of OpenTelemetry.
    Raises: ImportError when the extra `otel` is not installed.
    """
    with _lock:
        pipeline = _open.get(endpoint)
        if pipeline is None:
            pipeline = _open[endpoint] = OtelPipeline(endpoint)
        pipeline.users += 1
        return pipeline


def close_pipeline(pipeline: OtelPipeline) -> None:
    """Give a pipeline back; the last user sends what is left, for a few seconds at most.

    Raises: TimeoutError when the collector is too slow.
    """
    with _lock:
        pipeline.users -= 1
        if pipeline.users:
            return
        _open.pop(pipeline.endpoint, None)
    _calls.run(pipeline.shutdown, limit_s=CLOSE_TIMEOUT_S, what="sending the last telemetry")


class _Counted:
    """An exporter whose failures are counted."""

    def __init__(self, exporter: Any) -> None:
        self._exporter = exporter

    def __getattr__(self, name: str) -> Any:
        return getattr(self._exporter, name)

    def export(self, batch: Any, *arguments: Any, **named: Any) -> Any:
        result = self._exporter.export(batch, *arguments, **named)
        if result.name != "SUCCESS":
            FAULTS.note("otel", "ExportFailed")
        return result


def _counted(exporter: Any) -> Any:
    return _Counted(exporter)


class OtelPipeline:
    """A tracer and four instruments. Thread-safe; nothing here waits for the network."""

    def __init__(self, endpoint: str) -> None:
        from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.metrics import MeterProvider
        from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor

        # The SDK reports each failed export; with no handler set up that would go to the terminal.
        logging.getLogger("opentelemetry").addHandler(logging.NullHandler())
        self.endpoint = endpoint
        self.users = 0
        root = endpoint.rstrip("/")
        spans = OTLPSpanExporter(
            endpoint=f"{root}/v1/traces" if root else None, timeout=EXPORT_TIMEOUT_S
        )
        metrics = OTLPMetricExporter(
            endpoint=f"{root}/v1/metrics" if root else None, timeout=EXPORT_TIMEOUT_S
        )
        resource = Resource.create(
            {"service.name": SERVICE_NAME, "service.instance.id": os.urandom(8).hex()}
        )
        self._tracers = TracerProvider(resource=resource)
        self._tracers.add_span_processor(BatchSpanProcessor(_counted(spans)))
        reader = PeriodicExportingMetricReader(_counted(metrics))
        self._meters = MeterProvider(metric_readers=[reader], resource=resource)
        self._tracer = self._tracers.get_tracer(SERVICE_NAME)
        meter = self._meters.get_meter(SERVICE_NAME)
        self._attempts = meter.create_counter("hermes.compaction.attempts", unit="{attempt}")
        self._reclaimed = meter.create_counter("hermes.compaction.tokens_reclaimed", unit="{token}")
        self._duration = meter.create_histogram("hermes.compaction.duration", unit="ms")
        self._cost = meter.create_counter("hermes.compaction.cost", unit="{USD}")

    def start_span(
        self,
        name: str,
        attributes: Attributes,
        *,
        parent: Span | None = None,
        is_call: bool = False,
        started_at: float | None = None,
    ) -> Span:
        """Start a span below `parent`; without one it begins a trace of its own.

        Units: `started_at` is Unix epoch seconds, now when it is None.
        """
        from opentelemetry.context import Context
        from opentelemetry.trace import SpanKind, set_span_in_context

        context = Context() if parent is None else set_span_in_context(parent, Context())
        return self._tracer.start_span(
            name,
            context=context,
            kind=SpanKind.CLIENT if is_call else SpanKind.INTERNAL,
            attributes=dict(attributes),
            start_time=_nanoseconds(started_at),
        )

    def end_span(
        self, span: Span, attributes: Attributes, *, error: str = "", ended_at: float | None = None
    ) -> None:
        """End a span with what became known; `error` is the class of what went wrong."""
        from opentelemetry.trace import StatusCode

        span.set_attributes(dict(attributes))
        if error:
            span.set_attribute("error.type", error)
            span.set_status(StatusCode.ERROR)
        span.end(_nanoseconds(ended_at))

    def count_attempt(
        self,
        labels: Mapping[str, str],
        *,
        reclaimed_tokens: int | None,
        duration_ms: int | None,
        cost: float | None,
    ) -> None:
        """Count one compaction attempt; what is unknown (None) is not counted."""
        self._attempts.add(1, dict(labels))
        if reclaimed_tokens is not None and reclaimed_tokens > 0:
            self._reclaimed.add(reclaimed_tokens, dict(labels))
        if duration_ms is not None:
            self._duration.record(duration_ms, dict(labels))
        if cost is not None:
            self._cost.add(cost, dict(labels))

    def shutdown(self) -> None:
        """Send what is left and stop the SDK's threads."""
        self._tracers.shutdown()
        self._meters.shutdown()


def _nanoseconds(at: float | None) -> int | None:
    return None if at is None else round(at * 1_000_000) * 1_000
