"""A process to be killed: runs turns with tools and passes, and tells what the store accepted.

Each line on standard output is one accepted row: session, seq, role and the SHA-256 of its text,
written only after the store said that the row is durable.
"""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from agent.base.messages import Message, text_of
from agent.base.settings import ModelSettings, Settings, ToolSettings
from agent.sessions.records import NativePass
from hermes_state import SessionDB
from run_agent import AIAgent

SESSION = "crash"


class TellingStore(SessionDB):
    """A store that reports every accepted row once it is durable."""

    def append(
        self, session_id: str, messages: Sequence[Message], brought: NativePass | None = None
    ) -> list[Message]:
        stored = super().append(session_id, messages, brought)
        for row in stored:
            digest = hashlib.sha256(text_of(row.get("content")).encode()).hexdigest()
            sys.stdout.write(f"{row['_seq']} {row['role']} {digest}\n")
        sys.stdout.flush()
        return stored


def main(database: str, base_url: str) -> None:
    """Talk to the stub until somebody kills this process."""
    settings = Settings(
        model=ModelSettings(
            name="stub", base_url=base_url, context_length=6_000, max_output_tokens=500
        ),
        tools=ToolSettings(approval="off"),
    )
    store: Any = TellingStore(db_path=Path(database))
    agent = AIAgent(session_db=store, session_id=SESSION, settings=settings, skip_memory=True)
    turn = 0
    while True:
        turn += 1
        agent.chat(f"turn {turn}: " + f"please look at part {turn} of the plan. " * 30)


if __name__ == "__main__":
    main(*sys.argv[1:])
