"""What both benchmarks share: processes of their own for stub and server, and the lines shown."""

from __future__ import annotations

import os
import re
import signal
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import psutil

from benchmarks.server.load import Measured

ROOT = Path(__file__).resolve().parents[2]
CLIENTS = (1, 16, 64)
HERMES = (sys.executable, "-c", "from agent.cli.app import main; main()")
IDLE_PERCENT = 5.0
_ADDRESS = re.compile(r"http://\S+")
_STUB = """
import sys
from agent.testing.stub_reply import Reply
from agent.testing.stub_server import StubModelServer
with StubModelServer(then=Reply(text="noted", chunks=["noted"]), strict=False) as stub:
    print(stub.base_url, file=sys.stderr, flush=True)
    sys.stdin.read()
"""


class Running:
    """A server of the benchmark: its address, and how much it has worked."""

    def __init__(self, address: str, pid: int) -> None:
        self.address = address
        self._process = psutil.Process(pid)

    @property
    def cpu_s(self) -> float:
        """Processor time used so far, in seconds."""
        times = self._process.cpu_times()
        return float(times.user + times.system)

    def wait_until_idle(self) -> None:
        """Return when what is done after the replies has been done."""
        while self._process.cpu_percent(interval=0.5) > IDLE_PERCENT:
            pass


@contextmanager
def process(*words: str, **environment: str) -> Iterator[Running]:
    """Run a server that tells its address in the first line of its standard error."""
    with subprocess.Popen(
        words,
        env={**os.environ, **environment, "PYTHONPATH": str(ROOT)},
        stdin=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as server:
        assert server.stderr is not None
        try:
            line = server.stderr.readline()
            addresses = _ADDRESS.findall(line)
            if not addresses:
                raise RuntimeError(f"{words[-1]} did not start: {line}{server.stderr.read()}")
            yield Running(addresses[-1], server.pid)
        finally:
            server.send_signal(signal.SIGTERM)


def stub() -> AbstractContextManager[Running]:
    """Run the stub model server."""
    return process(sys.executable, "-c", _STUB)


def show(clients: int, direct: Measured, served: Measured, cpu_s: float) -> float:
    """Print one line and return what the server adds to the median, in milliseconds."""
    added = [
        served.percentile_ms(share) - direct.percentile_ms(share) for share in (0.5, 0.95, 0.99)
    ]
    cpu_ms = cpu_s * 1000 / len(served.first_byte_s)
    sys.stdout.write(
        f"{clients:>3} clients: direct {direct.per_second:7.1f}/s, through "
        f"{served.per_second:7.1f}/s; first byte {direct.median_ms:.2f} and "
        f"{served.median_ms:.2f} ms; added p50 {added[0]:.2f}, p95 {added[1]:.2f}, "
        f"p99 {added[2]:.2f} ms; {cpu_ms:.1f} ms of processor a request\n"
    )
    return added[0]


def show_machine() -> None:
    """Print what the figures depend on: the load, and what one durable commit takes here."""
    with tempfile.TemporaryDirectory() as folder:
        connection = sqlite3.connect(f"{folder}/probe.db", isolation_level=None)
        connection.execute("PRAGMA journal_mode=WAL")
        connection.execute("PRAGMA synchronous=FULL")
        connection.execute("CREATE TABLE probe (value)")
        times = []
        for _ in range(50):
            started = time.perf_counter()
            connection.execute("INSERT INTO probe VALUES (?)", ("x" * 1000,))
            times.append(time.perf_counter() - started)
        connection.close()
    sys.stdout.write(
        f"load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores; a durable commit takes "
        f"{statistics.median(times) * 1000:.2f} ms (median), {min(times) * 1000:.2f} ms at best\n"
    )
