"""An OTLP collector over HTTP on loopback: keeps what it is sent, decoded."""

from __future__ import annotations

import gzip
import threading
from collections.abc import Iterable
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceRequest,
)
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest


@dataclass(frozen=True)
class SpanSeen:
    """One span; `parent` is the name of its parent, "" for a root; times in nanoseconds."""

    name: str
    parent: str
    kind: str
    attributes: dict[str, Any]
    is_error: bool
    started_ns: int
    ended_ns: int


@dataclass
class Collector:
    """A running stand-in. `status` is what it answers; while `held` is set it never does."""

    status: int = 200
    held: threading.Event = field(default_factory=threading.Event)
    traces: list[Any] = field(default_factory=list)
    metrics: list[Any] = field(default_factory=list)

    def __enter__(self) -> Collector:
        collector = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                collector._take(self)

            def log_message(self, format: str, *_arguments: Any) -> None:
                """Say nothing."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self._free = threading.Event()
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,))
        self._thread.start()
        return self

    def __exit__(self, *_error: object) -> None:
        self._free.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def _take(self, request: BaseHTTPRequestHandler) -> None:
        body = request.rfile.read(int(request.headers["Content-Length"]))
        if request.headers.get("Content-Encoding") == "gzip":
            body = gzip.decompress(body)
        if self.held.is_set():
            self._free.wait()
            return
        if self.status == 200:
            self._keep(request.path, body)
        request.send_response(self.status)
        request.send_header("Content-Length", "0")
        request.end_headers()

    def _keep(self, path: str, body: bytes) -> None:
        if path == "/v1/traces":
            self.traces.append(ExportTraceServiceRequest.FromString(body))
        elif path == "/v1/metrics":
            self.metrics.append(ExportMetricsServiceRequest.FromString(body))

    def spans(self) -> list[SpanSeen]:
        """Return every span, in the order in which they ended."""
        raw = [
            span
            for message in self.traces
            for resource in message.resource_spans
            for scope in resource.scope_spans
            for span in scope.spans
        ]
        names = {span.span_id: span.name for span in raw}
        return [
            SpanSeen(
                name=span.name,
                parent=names.get(span.parent_span_id, ""),
                kind=type(span).SpanKind.Name(span.kind),
                attributes=_values(span.attributes),
                is_error=span.status.code == 2,
                started_ns=span.start_time_unix_nano,
                ended_ns=span.end_time_unix_nano,
            )
            for span in raw
        ]

    def points(self) -> dict[str, list[tuple[dict[str, Any], Any]]]:
        """Return the newest values of each metric with labels; of a histogram (count, sum)."""
        newest = self.metrics[-1]
        return {
            metric.name: _points(metric)
            for resource in newest.resource_metrics
            for scope in resource.scope_metrics
            for metric in scope.metrics
        }


def _points(metric: Any) -> list[tuple[dict[str, Any], Any]]:
    if metric.WhichOneof("data") == "histogram":
        return [
            (_values(point.attributes), (point.count, point.sum))
            for point in metric.histogram.data_points
        ]
    return [
        (_values(point.attributes), getattr(point, point.WhichOneof("value")))
        for point in metric.sum.data_points
    ]


def _values(attributes: Iterable[Any]) -> dict[str, Any]:
    return {pair.key: _value(pair.value) for pair in attributes}


def _value(value: Any) -> Any:
    which = value.WhichOneof("value")
    if which == "array_value":
        return [_value(item) for item in value.array_value.values]
    return getattr(value, which)
