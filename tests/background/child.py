"""A process that prepares a pass and dies: with `prepared` once it is kept, with `planned` before.

python -m tests.background.child URL PATH MOMENT
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from hermes_state import SessionDB
from run_agent import AIAgent
from tests.field_reports.harness import settings_for


class DyingStore(SessionDB):
    """A store whose process dies as a pass is prepared."""

    moment = ""

    def prepare_pass(self, pass_id: str, plan: Mapping[str, Any]) -> None:
        if self.moment == "prepared":
            super().prepare_pass(pass_id, plan)
        os.kill(os.getpid(), signal.SIGKILL)


def main(base_url: str, path: str, moment: str) -> None:
    """Run one turn and wait for the end."""
    store = DyingStore(db_path=Path(path))
    store.moment = moment
    settings = settings_for(
        base_url,
        window_tokens=8_000,
        output_tokens=500,
        background=True,
    )
    agent = AIAgent(
        session_db=store,
        session_id="s",
        settings=settings,
        builtin_tools=False,
        skip_memory=True,
        skip_context_files=True,
    )
    agent.chat("first")
    signal.pause()


if __name__ == "__main__":
    main(*sys.argv[1:])
