"""Fixture `served`: a running server with the stub as its model."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from agent.testing.stub_server import StubModelServer
from tests.server.served import Served


@pytest.fixture
def hermes(tmp_path: Path, stub: StubModelServer, monkeypatch: pytest.MonkeyPatch) -> Served:
    """A server that was not started yet, in a working folder of its own."""
    folder = tmp_path / "work"
    folder.mkdir()
    monkeypatch.chdir(folder)
    return Served(tmp_path, stub)


@pytest.fixture
def served(hermes: Served) -> Iterator[Served]:
    """A running server."""
    hermes.start()
    yield hermes
    hermes.stop()
