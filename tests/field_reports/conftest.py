"""Fixtures of the field reports: benches, whose agents are closed after the test."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from agent.base.settings import Settings
from agent.testing.stub_server import StubModelServer
from hermes_state import SessionDB
from tests.cli.conftest import hermes
from tests.field_reports.harness import Bench
from tests.trace.conftest import collector

pytest.register_assert_rewrite("tests.field_reports.stopped")

__all__ = ["collector", "hermes"]

OpenBench = Callable[..., Bench]


@pytest.fixture
def open_bench(stub: StubModelServer, store: SessionDB) -> Iterator[OpenBench]:
    """A function that opens an agent on the test's stub and store, on session `s` by default."""
    with contextlib.ExitStack() as opened:

        def open_one(settings: Settings, **options: Any) -> Bench:
            bench = Bench(stub, store, settings, **options)
            opened.callback(bench.agent.close)
            return bench

        yield open_one
