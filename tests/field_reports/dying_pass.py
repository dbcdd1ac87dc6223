"""A process that runs passes until it is killed.

python -m tests.field_reports.dying_pass once URL PATH
    runs one manual pass on the session `s` of the store
python -m tests.field_reports.dying_pass everywhere URL PATH FOLDER STRIDE
    for number 1, 1 + STRIDE, ...: copies the store into FOLDER/number.db, and a child runs the
    pass on it and gets kill -9 as its statement `number` begins; ends with the child that survives
"""

from __future__ import annotations

import os
import shutil
import signal
import sys
from itertools import count
from pathlib import Path

from hermes_state import SessionDB
from run_agent import AIAgent
from tests.field_reports.harness import settings_for

WINDOW = 8_000


def run_pass(base_url: str, path: Path, dies_at: int = 0) -> None:
    """Run one manual pass; kill this process as its statement `dies_at` begins, 0 for never."""
    store = SessionDB(db_path=path)
    settings = settings_for(base_url, window_tokens=WINDOW)
    agent = AIAgent(
        session_db=store,
        session_id="s",
        settings=settings,
        builtin_tools=False,
        skip_memory=True,
        skip_context_files=True,
    )
    agent.context()
    left = dies_at

    def die_in_time(_statement: str) -> None:
        nonlocal left
        left -= 1
        if left == 0:
            os.kill(os.getpid(), signal.SIGKILL)

    store._database._writer.set_trace_callback(die_in_time)
    agent.compress()
    agent.close()
    store.close()


def die_everywhere(base_url: str, path: Path, folder: Path, stride: int) -> None:
    """Let one child after another die `stride` statements later.

    A pass in this process loads first what each child would load anew.
    """
    warm = folder / "warm"
    shutil.copy(path, warm)
    run_pass(base_url, warm)
    for number in count(1, stride):
        copy = folder / f"{number}.db"
        shutil.copy(path, copy)
        child = os.fork()
        if child == 0:
            run_pass(base_url, copy, number)
            os._exit(0)
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        if status != -signal.SIGKILL:
            sys.exit(status)


if __name__ == "__main__":
    how, url, store_path, *more = sys.argv[1:]
    if how == "once":
        run_pass(url, Path(store_path))
    else:
        die_everywhere(url, Path(store_path), Path(more[0]), int(more[1]))
