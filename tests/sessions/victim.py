"""A process that works on a store until it is killed, or that lets children die at each statement.

python -m tests.sessions.victim append PATH
    appends for ever and says each row id
python -m tests.sessions.victim STEP PATH FOLDER
    for number 1, 2, ...: copies the store into FOLDER/number.db, and a child runs the step on
    it and gets kill -9 as its statement `number` begins; ends with the child that survives
"""

from __future__ import annotations

import os
import shutil
import signal
import sys
from collections.abc import Callable
from itertools import count
from pathlib import Path

from agent.sessions.records import Guards, MaskedPlace, PassCommit, PassKind
from hermes_state import SessionDB
from tests.sessions.steps import LARGE, SESSION, summary, talk

DEADLINE = 9e9
"""A cooldown that a step arms; far in the future."""


def append_batch(store: SessionDB) -> None:
    """Accept two rows, one of them a blob."""
    store.append(SESSION, [*talk(1), {"role": "tool", "tool_call_id": "c", "content": LARGE}])


def commit(store: SessionDB, child_session_id: str = "") -> None:
    """Commit the prepared pass: cover, mask, accept pending rows, arm the brake."""
    record = store.prepared_pass(SESSION)
    assert record is not None
    rows = store.view(SESSION).messages
    lease = store.acquire_lease(SESSION)
    assert lease is not None
    store.adopt_pass(record.id, lease, "manual")
    store.commit_pass(
        PassCommit(
            record.id,
            lease,
            PassKind.SUMMARY,
            "mask,summary",
            record.watermark,
            cover=tuple(row["_row_id"] for row in rows[:2]),
            mask=(MaskedPlace(rows[3]["_row_id"], {"content": "[left out]"}, 3),),
            pending=tuple(talk(2, first=50)),
            cover_pending=(0,),
            new_row=summary(),
            guards=Guards(cooldown_until=DEADLINE, cooldown_error="armed", health={"strikes": 1}),
            child_session_id=child_session_id,
        ),
        lambda: True,
    )


def rotate(store: SessionDB) -> None:
    """Commit the prepared pass and give the conversation another session."""
    commit(store, "child")


def undo(store: SessionDB) -> None:
    """Undo the pass that the store has, and close the prepared one."""
    store.undo_pass(SESSION)


def rewind(store: SessionDB) -> None:
    """Take the last rows back."""
    store.rewind(SESSION, 4)


def fork(store: SessionDB) -> None:
    """Fork the conversation."""
    store.fork_session(SESSION, "fork", up_to_seq=4)


def index(store: SessionDB) -> None:
    """Complete the search index."""
    store.index_pending()


def delete(store: SessionDB) -> None:
    """Delete the conversation."""
    store.delete_session(SESSION)


STEPS: dict[str, Callable[[SessionDB], None]] = {
    "append_batch": append_batch,
    "commit": commit,
    "rotate": rotate,
    "undo": undo,
    "rewind": rewind,
    "fork": fork,
    "index": index,
    "delete": delete,
}


def _run_until(step: str, path: Path, number: int) -> None:
    store = SessionDB(path)
    left = number

    def die_in_time(_statement: str) -> None:
        nonlocal left
        left -= 1
        if left == 0:
            os.kill(os.getpid(), signal.SIGKILL)

    store._database._writer.set_trace_callback(die_in_time)
    STEPS[step](store)
    store.close()


def _die_everywhere(step: str, path: Path, folder: Path) -> None:
    for number in count(1):
        copy = folder / f"{number}.db"
        shutil.copy(path, copy)
        child = os.fork()
        if child == 0:
            _run_until(step, copy, number)
            os._exit(0)
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        if status != -signal.SIGKILL:
            sys.exit(status)


def _append_for_ever(path: Path) -> None:
    store = SessionDB(path)
    while True:
        row_id = store.append_message(SESSION, "user", "still here " * 20)
        sys.stdout.write(f"{row_id}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    task, store_path, *more = sys.argv[1:]
    if task == "append":
        _append_for_ever(Path(store_path))
    _die_everywhere(task, Path(store_path), Path(more[0]))
