"""A Relay host that is the only one of the process, and a collector of OpenTelemetry."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from agent import relay_compaction, relay_runtime
from agent.relay_runtime import RelayHostRegistry, RelayRuntime, RelaySessionCoordinator
from tests.trace.collector import Collector
from tests.trace.fake_relay import FakeRelay


@pytest.fixture
def registry(monkeypatch: pytest.MonkeyPatch) -> RelayHostRegistry:
    """A registry of its own for the test, with no host in it and no mark that ever hung."""
    registry = RelayHostRegistry()
    monkeypatch.setattr(relay_runtime, "HOST_REGISTRY", registry)
    monkeypatch.setattr(relay_compaction, "_stalled", False)
    return registry


@contextmanager
def fresh_fake(registry: RelayHostRegistry, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeRelay]:
    """A fake library behind a new host of the current profile, as in a process in which no mark
    ever hung; whatever hangs in it is let go."""
    monkeypatch.setattr(relay_compaction, "_stalled", False)
    fake = FakeRelay()
    key = relay_runtime.current_profile_key()
    host = RelayRuntime(fake, profile_key=key)
    registry._hosts[key] = host
    try:
        yield fake
    finally:
        fake.scope.free.set()
        host.shutdown()


@pytest.fixture
def fake(registry: RelayHostRegistry, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeRelay]:
    """A fake library behind the host of the current profile."""
    with fresh_fake(registry, monkeypatch) as fake:
        yield fake


@pytest.fixture
def coordinator() -> RelaySessionCoordinator:
    return RelaySessionCoordinator()


@pytest.fixture
def collector() -> Iterator[Collector]:
    """A running collector that takes everything."""
    with Collector() as running:
        yield running
