"""What `/metrics` tells: turns, passes by outcome, tokens, queue and latency, for Prometheus."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from agent.base.events import (
    CompactionFinished,
    Event,
    ReasoningDelta,
    TextDelta,
    TurnFinished,
    TurnStarted,
    Usage,
)

if TYPE_CHECKING:
    from agent.server.jobs import Jobs

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_TURN_S = (0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300)
_REQUEST_S = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.5, 1, 5, 30, 120)


class Metrics:
    """Counts what happens. Thread-safe."""

    def __init__(self, jobs: Jobs) -> None:
        self._registry = registry = CollectorRegistry()
        self._begun: dict[str, float] = {}
        self._turns = Counter(
            "hermes_turns", "Turns by how they ended.", ["stop_reason"], registry=registry
        )
        self._passes = Counter(
            "hermes_passes", "Passes by outcome.", ["status", "failure_class"], registry=registry
        )
        self._tokens = Counter(
            "hermes_tokens", "Tokens of model calls.", ["kind"], registry=registry
        )
        self._turn_s = Histogram(
            "hermes_turn_seconds", "Time of a turn.", buckets=_TURN_S, registry=registry
        )
        self._first_s = Histogram(
            "hermes_first_token_seconds",
            "Time from the start of a turn to its first token.",
            buckets=_TURN_S,
            registry=registry,
        )
        self._requests = Histogram(
            "hermes_request_seconds",
            "Time until a request was answered, of a stream until it ended.",
            ["method", "path", "status"],
            buckets=_REQUEST_S,
            registry=registry,
        )
        _watch(registry, "hermes_turns_running", "Turns that run.", lambda: jobs.running)
        _watch(registry, "hermes_turns_waiting", "Requests that wait.", lambda: jobs.waiting)

    def observe(self, event: Event) -> None:
        """Count one event."""
        count = _COUNTS.get(type(event))
        if count is not None:
            count(self, event)

    def observe_request(self, method: str, path: str, status: int, seconds: float) -> None:
        """Count one request; `path` is the route's, not the client's."""
        self._requests.labels(method, path, str(status)).observe(seconds)

    def render(self) -> bytes:
        """Return everything in Prometheus' text form."""
        return generate_latest(self._registry)

    def _turn_started(self, event: Event) -> None:
        self._begun[event.turn_id] = self._begun[f"first {event.turn_id}"] = time.monotonic()

    def _said(self, event: Event) -> None:
        begun = self._begun.pop(f"first {event.turn_id}", None)
        if begun is not None:
            self._first_s.observe(time.monotonic() - begun)

    def _turn_finished(self, event: TurnFinished) -> None:
        self._turns.labels(event.stop_reason).inc()
        self._begun.pop(f"first {event.turn_id}", None)
        begun = self._begun.pop(event.turn_id, None)
        if begun is not None:
            self._turn_s.observe(time.monotonic() - begun)

    def _used(self, event: Usage) -> None:
        for kind in ("prompt", "completion", "cached", "cache_write"):
            self._tokens.labels(kind).inc(getattr(event, kind))

    def _pass_finished(self, event: CompactionFinished) -> None:
        self._passes.labels(event.status, event.failure_class).inc()


_COUNTS: dict[type[Event], Callable[[Metrics, Any], None]] = {
    TurnStarted: Metrics._turn_started,
    TextDelta: Metrics._said,
    ReasoningDelta: Metrics._said,
    TurnFinished: Metrics._turn_finished,
    Usage: Metrics._used,
    CompactionFinished: Metrics._pass_finished,
}


def _watch(registry: CollectorRegistry, name: str, about: str, read: Callable[[], float]) -> None:
    Gauge(name, about, registry=registry).set_function(read)
