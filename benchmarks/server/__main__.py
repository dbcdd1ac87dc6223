"""What `hermes proxy` and `hermes serve` add to a model call.

    python -m benchmarks.server [--quick] [--messages 100] [--window 128000]

The same client talks to the stub directly and through the server, in turns, in one run; stub,
server and clients are processes of their own. Times are those to the first byte of a streamed
answer. The machine's load and what a durable commit takes on its disk are shown, and times are not
scaled: whoever measures beside other work measures that too. What a request costs in processor time
hardly depends on it.
"""

from __future__ import annotations

import argparse
import sys

from benchmarks.server import proxy, serve
from benchmarks.server.stage import show_machine

GOAL_MS = 3.0


def main() -> int:
    """Run both; exit with 1 when the proxy's goal for one client is missed."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--quick", action="store_true", help="a third of the requests")
    parser.add_argument("--messages", type=int, default=100)
    parser.add_argument("--window", type=int, default=128_000)
    options = parser.parse_args()
    rounds = 100 if options.quick else 300
    sys.stdout.write(f"hermes proxy, {options.messages} messages a request\n")
    added_ms = proxy.run(rounds, options.messages, options.window)
    sys.stdout.write("hermes serve, one new message a request in a warm session\n")
    serve.run(rounds, options.window)
    show_machine()
    verdict = "met" if added_ms < GOAL_MS else "missed"
    sys.stdout.write(
        f"goal: under {GOAL_MS:g} ms more to the first byte through the proxy for one client at "
        f"{options.messages} messages: {verdict} ({added_ms:.2f} ms)\n"
    )
    return 0 if verdict == "met" else 1


if __name__ == "__main__":
    raise SystemExit(main())
