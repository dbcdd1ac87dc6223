"""A process that runs one turn with one very large tool result and tells what it took.

Prints seconds, bytes that the peak of its memory grew by, and the SHA-256 of what was stored.
"""

from __future__ import annotations

import hashlib
import resource
import sys
import time
from pathlib import Path

from agent.tools.protocol import Access, Tool
from hermes_state import SessionDB
from run_agent import AIAgent
from tests.field_reports.harness import settings_for
from tests.field_reports.test_d17_count import WINDOW, log_of


def peak_bytes() -> int:
    """Return the largest size that this process had so far."""
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def main(base_url: str, database: str, size: int) -> None:
    """Run the turn."""
    tool = Tool(
        name="fetch",
        description="Fetches.",
        parameters={"type": "object", "properties": {}},
        access=Access.READ,
        run=lambda _arguments, _context: log_of(size),
        describe=lambda _arguments: "fetch",
    )
    store = SessionDB(db_path=Path(database))
    agent = AIAgent(
        session_db=store,
        session_id="s",
        settings=settings_for(base_url, window_tokens=WINDOW),
        tools=[tool],
        builtin_tools=False,
        skip_memory=True,
        skip_context_files=True,
    )
    before, started = peak_bytes(), time.monotonic()
    agent.chat("fetch the log")
    seconds, grown = time.monotonic() - started, peak_bytes() - before
    stored = store.accepted_rows("s", 3, 3)[0]["content"]
    digest = hashlib.sha256(stored.encode()).hexdigest()
    sys.stdout.write(f"{seconds} {grown} {digest}\n")
    agent.close()
    store.close()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
