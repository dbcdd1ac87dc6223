"""A process that changes a view until it is killed; `acts.py` says in which ways.

python -m tests.field_reports.dying_pass once ACT URL PATH
    does the act on the store
python -m tests.field_reports.dying_pass everywhere ACT URL PATH FOLDER STRIDE
    for number 1, 1 + STRIDE, ...: copies the store into FOLDER/number.db, and a child does the
    act on it and gets kill -9 as its statement `number` begins; ends with the child that survives
"""

from __future__ import annotations

import os
import shutil
import signal
import sys
from itertools import count
from pathlib import Path

from hermes_state import SessionDB
from tests.field_reports.acts import ACTS, Act, open_agent


def run_act(act: Act, base_url: str, path: Path, dies_at: int = 0) -> None:
    """Do the act; kill this process as its statement `dies_at` begins, 0 for never."""
    store = SessionDB(db_path=path)
    agent = open_agent(act, base_url, store)
    left = dies_at

    def die_in_time(_statement: str) -> None:
        nonlocal left
        left -= 1
        if left == 0:
            os.kill(os.getpid(), signal.SIGKILL)

    store._database._writer.set_trace_callback(die_in_time)
    act.run(agent)
    agent.close()
    store.close()


def die_everywhere(act: Act, base_url: str, path: Path, folder: Path, stride: int) -> None:
    """Let one child after another die `stride` statements later.

    An act in this process loads first what each child would load anew.
    """
    warm = folder / "warm"
    shutil.copy(path, warm)
    run_act(act, base_url, warm)
    for number in count(1, stride):
        copy = folder / f"{number}.db"
        shutil.copy(path, copy)
        child = os.fork()
        if child == 0:
            run_act(act, base_url, copy, number)
            os._exit(0)
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        if status != -signal.SIGKILL:
            sys.exit(status)


if __name__ == "__main__":
    how, name, url, store_path, *more = sys.argv[1:]
    if how == "once":
        run_act(ACTS[name], url, Path(store_path))
    else:
        die_everywhere(ACTS[name], url, Path(store_path), Path(more[0]), int(more[1]))
