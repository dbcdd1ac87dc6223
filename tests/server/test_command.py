"""`hermes serve` as a process: where it listens, how it ends, what it lacks."""

from __future__ import annotations

import os
import signal
import socket
import stat
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx2
import pytest

from agent.testing.stub_server import DEFAULT_MODEL, StubModelServer

pytestmark = pytest.mark.timeout(90)  # a process takes seconds to start on a busy machine

MAIN = [sys.executable, "-c", "from agent.cli.app import main; main()"]


def environment(stub: StubModelServer, *first: Path) -> dict[str, str]:
    """Return the environment of a command whose model is the stub."""
    model = {"HERMES_MODEL__BASE_URL": stub.base_url, "HERMES_MODEL__NAME": DEFAULT_MODEL}
    paths = os.pathsep.join(map(str, (*first, Path.cwd())))
    return {**os.environ, **model, "PYTHONPATH": paths}


def run(stub: StubModelServer, *arguments: str, first: tuple[Path, ...] = ()) -> tuple[int, str]:
    """Run `hermes serve` to its end; return the exit code and what it told."""
    command = [*MAIN, "serve", *arguments]
    done = subprocess.run(command, env=environment(stub, *first), capture_output=True, text=True)
    return done.returncode, done.stderr


@contextmanager
def running(stub: StubModelServer) -> Iterator[tuple[subprocess.Popen, str]]:
    """Run the command on a free port; give the process and its address."""
    process = subprocess.Popen(
        [*MAIN, "serve", "--port", "0"], env=environment(stub), stderr=subprocess.PIPE, text=True
    )
    assert process.stderr is not None
    try:
        line = process.stderr.readline()
        assert line.startswith("serving at http://127.0.0.1:"), line
        yield process, line.split()[2]
    finally:
        process.kill()
        process.wait()
        process.stderr.close()


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 0), (signal.SIGINT, 130)])
def test_a_signal_ends_it_in_order(stub: StubModelServer, number: int, code: int) -> None:
    with running(stub) as (process, address):
        token = Path(os.environ["HERMES_HOME"], "server.token")
        assert stat.S_IMODE(token.stat().st_mode) == 0o600
        headers = {"Authorization": f"Bearer {token.read_text().strip()}"}
        listed = httpx2.get(f"{address}/v1/models", headers=headers, timeout=15.0).json()
        assert [model["id"] for model in listed["data"]] == [DEFAULT_MODEL]
        process.send_signal(number)
        assert process.wait(30) == code
        assert process.stderr is not None
        assert process.stderr.read() == ""


def test_an_address_that_is_taken_is_told_in_one_line(stub: StubModelServer) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        code, told = run(stub, "--port", port)
    assert code == 2
    assert told == (
        f"hermes: cannot listen on 127.0.0.1:{port}: Address already in use; "
        "choose another with --host and --port\n"
    )


def test_a_missing_extra_names_the_command_that_installs_it(
    stub: StubModelServer, tmp_path: Path
) -> None:
    (tmp_path / "starlette.py").write_text("raise ModuleNotFoundError('gone', name='starlette')\n")
    assert run(stub, first=(tmp_path,)) == (
        2,
        "hermes: 'starlette' is not installed; run: pip install 'hermes-continuum[server]'\n",
    )


def test_a_port_out_of_range_is_refused(stub: StubModelServer) -> None:
    told = "hermes: server.port 70000 (command line) is out of range; set it to 0 to 65535\n"
    assert run(stub, "--port", "70000") == (2, told)


def test_a_signal_is_heard_as_soon_as_the_address_was_told(stub: StubModelServer) -> None:
    with running(stub) as (process, _address):
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 0
        assert process.stderr is not None
        assert process.stderr.read() == ""


def test_a_model_that_cannot_be_asked_is_told_in_one_line(stub: StubModelServer) -> None:
    settings = environment(stub) | {"HERMES_MODEL__BASE_URL": "ftp://host/v1"}
    done = subprocess.run(
        [*MAIN, "serve", "--port", "0"], env=settings, capture_output=True, text=True
    )
    assert done.returncode == 2
    assert done.stderr == (
        "hermes: model.base_url 'ftp://host/v1' is no http or https address; "
        "set it to one such as 'https://host/v1'\n"
    )
