"""What `hermes proxy` adds to a model call, beside the same client that talks to the stub directly.

    python benchmarks/server/proxy.py [--quick] [--messages 100] [--window 128000]

Each client sends a conversation of `--messages` messages and goes on with it, one turn a request,
so that each request stores two rows durably before it is forwarded; the first turn, in which the
proxy takes the whole conversation in, is not measured. Stub, proxy and clients are
processes of their own; direct and through the proxy take turns in one run. Times are those to the
first byte of a streamed answer. The machine's load is shown: times are not scaled.
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

import psutil  # noqa: E402  # the path is set above

from agent.base.messages import Message  # noqa: E402  # the path is set above
from agent.testing.transcripts import transcript  # noqa: E402
from benchmarks.server.load import Load, Measured, measure  # noqa: E402

CLIENTS = (1, 16, 64)
GOAL_MS = 3.0
IDLE_PERCENT = 5.0
STUB = """
import sys
from agent.testing.stub_reply import Reply
from agent.testing.stub_server import StubModelServer
with StubModelServer(then=Reply(text="noted", chunks=["noted"]), strict=False) as stub:
    print(stub.base_url, flush=True)
    sys.stdin.read()
"""


def talk(messages: int) -> list[list[Message]]:
    """Return a transcript for each of a few openings; clients differ by their keys."""
    rows = transcript(3, messages=messages, base64_share=0.0)
    return [rows if rows[-1]["role"] == "assistant" else [*rows, _answer()]]


def _answer() -> Message:
    return {"role": "assistant", "content": "noted"}


def conversation(rows: list[Message], number: int, place: int) -> list[Message]:
    """Return a client's history in one round: the transcript, then a turn for each round."""
    turns = [
        message
        for turn in range(place)
        for message in ({"role": "user", "content": f"client {number}, turn {turn}"}, _answer())
    ]
    return [*rows, *turns, {"role": "user", "content": f"client {number}, turn {place}"}]


@contextmanager
def process(
    words: list[str], environment: dict[str, str], *, stderr: bool
) -> Iterator[tuple[str, psutil.Process]]:
    """Run a server and give its address, the last word of the first line that it writes."""
    with subprocess.Popen(
        words,
        env={**os.environ, **environment, "PYTHONPATH": str(ROOT)},
        stdin=subprocess.PIPE,
        stdout=None if stderr else subprocess.PIPE,
        stderr=subprocess.PIPE if stderr else None,
        text=True,
    ) as server:
        stream = server.stderr if stderr else server.stdout
        assert stream is not None
        try:
            yield stream.readline().split()[-1], psutil.Process(server.pid)
        finally:
            server.send_signal(signal.SIGTERM)


def wait_until_idle(server: psutil.Process) -> None:
    """Return when a server has done what it does after its replies."""
    while server.cpu_percent(interval=0.5) > IDLE_PERCENT:
        pass


def show(clients: int, direct: Measured, proxied: Measured) -> float:
    """Print one line and return what the proxy adds to the median, in milliseconds."""
    added = [
        proxied.percentile_ms(share) - direct.percentile_ms(share) for share in (0.5, 0.95, 0.99)
    ]
    sys.stdout.write(
        f"{clients:>3} clients: direct {direct.per_second:7.1f}/s, proxy {proxied.per_second:7.1f}"
        f"/s ({proxied.per_second / direct.per_second:.2f}); first byte direct "
        f"{direct.median_ms:.2f} ms, proxy {proxied.median_ms:.2f} ms; added p50 {added[0]:.2f}, "
        f"p95 {added[1]:.2f}, p99 {added[2]:.2f} ms\n"
    )
    return added[0]


def run(rounds: int, messages: int, window_tokens: int) -> float:
    """Print one line for each number of clients; return what is added for one, in milliseconds."""
    [rows] = talk(messages)
    added = []
    with tempfile.TemporaryDirectory() as home:
        settings = {"HERMES_HOME": home, "HERMES_PROXY__CONTEXT_LENGTH": str(window_tokens)}
        hermes = [sys.executable, "-c", "from agent.cli.app import main; main()"]
        with (
            process([sys.executable, "-c", STUB], {}, stderr=False) as (stub, _stub),
            process(
                [*hermes, "proxy", "--upstream", stub, "--port", "0"], settings, stderr=True
            ) as (proxy, server),
        ):
            for clients in CLIENTS:
                share = max(3, rounds // clients)
                warm = Load(clients, 1, lambda number, place: conversation(rows, number, place))
                load = Load(
                    clients, share, lambda number, place: conversation(rows, number, place + 1)
                )
                measure(proxy, warm, key=f"of {clients}")
                wait_until_idle(server)
                direct = measure(stub, load, key="direct")
                proxied = measure(proxy, load, key=f"of {clients}")
                added.append(show(clients, direct, proxied))
    return added[0]


def main() -> int:
    """Run the benchmark; exit with 1 when the goal for one client is missed."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--quick", action="store_true", help="a tenth of the requests")
    parser.add_argument("--messages", type=int, default=100)
    parser.add_argument("--window", type=int, default=128_000)
    options = parser.parse_args()
    added_ms = run(30 if options.quick else 300, options.messages, options.window)
    verdict = "met" if added_ms < GOAL_MS else "missed"
    sys.stdout.write(
        f"goal: under {GOAL_MS:g} ms more to the first byte for one client at "
        f"{options.messages} messages: {verdict} ({added_ms:.2f} ms); load "
        f"{os.getloadavg()[0]:.1f} on {os.cpu_count()} cores\n"
    )
    return 0 if verdict == "met" else 1


if __name__ == "__main__":
    raise SystemExit(main())
