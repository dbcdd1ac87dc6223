"""Running `hermes` in this process: arguments in, exit code and both outputs out."""

from __future__ import annotations

import io
import sys
from collections.abc import Callable

import pytest

from agent.base.record import dataclass
from agent.cli.app import run
from agent.testing.stub_server import DEFAULT_MODEL, StubModelServer


@dataclass(frozen=True)
class Ran:
    """What a command did."""

    code: int
    out: str
    err: str


Hermes = Callable[..., Ran]


@pytest.fixture
def hermes(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Hermes:
    """Run the command line with the given arguments; `lines` is its standard input."""

    def call(*arguments: str, lines: str = "") -> Ran:
        monkeypatch.setattr(sys, "stdin", io.StringIO(lines))
        capsys.readouterr()
        code = run(list(arguments))
        captured = capsys.readouterr()
        return Ran(code, captured.out, captured.err)

    return call


@pytest.fixture
def endpoint(stub: StubModelServer, monkeypatch: pytest.MonkeyPatch) -> StubModelServer:
    """The stub server as the configured endpoint, with its model and window set."""
    monkeypatch.setenv("HERMES_MODEL__BASE_URL", stub.base_url)
    monkeypatch.setenv("HERMES_MODEL__NAME", DEFAULT_MODEL)
    monkeypatch.setenv("HERMES_MODEL__CONTEXT_LENGTH", "128000")
    return stub
