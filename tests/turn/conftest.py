"""Fixtures of turns."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from agent.testing.clock import FakeClock
from agent.testing.stub_server import StubModelServer
from tests.turn.route_bench import Bench


@pytest.fixture
def bench(stub: StubModelServer, tmp_path: Path) -> Iterator[Bench]:
    made = Bench(stub, tmp_path / "state.db", FakeClock())
    yield made
    made.close()
