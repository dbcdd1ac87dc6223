"""kill -9 at any moment of a turn: what was accepted is there, and the view is valid."""

from __future__ import annotations

import hashlib
import os
import random
import signal
import subprocess
import sys
import threading
from itertools import islice
from pathlib import Path

import pytest

from agent.base.messages import text_of, wire_message
from agent.testing.builders import call
from agent.testing.stub_reply import RecordedRequest, Reply
from agent.testing.stub_server import StubModelServer
from agent.testing.stub_strict import check_messages
from agent.turn.request import ShapeLimits, shape
from hermes_state import SessionDB

MOMENTS = 200 if os.environ.get("HERMES_SOAK") == "1" else 20
SUMMARY = "## State\n" + "The user asks for one part of the plan after another. " * 12
CHILD = Path(__file__).with_name("child.py")


def answer(request: RecordedRequest) -> Reply:
    """Answer with two tool calls after a user message, with text after results."""
    newest = request.messages[-1]
    if not request.body.get("tools"):
        return Reply(text=SUMMARY)
    if newest["role"] == "tool":
        return Reply(text="The part says: go on as planned. " * 10)
    calls = [
        call("todo", {"tasks": [{"text": "go on", "status": "pending"}]}, call_id="t1"),
        call("search_files", {"glob": "*"}, call_id="t2"),
    ]
    return Reply(text="Looking.", tool_calls=calls)


@pytest.fixture(scope="module")
def server():
    with StubModelServer(window_tokens=6_000) as running:
        running.script(answer)
        yield running


def run_until_killed(database: Path, base_url: str, after_rows: int, delay_s: float) -> list[str]:
    """Kill a child `delay_s` after it told of `after_rows` rows; return all that it told.

    One reader takes all lines, so none is cut in two; the last may be, by the kill.
    """
    errors = database.with_suffix(".errors")
    with (
        errors.open("wb") as stderr,
        subprocess.Popen(
            [sys.executable, str(CHILD), str(database), base_url],
            stdout=subprocess.PIPE,
            stderr=stderr,
            text=True,
            cwd=database.parent,
        ) as child,
    ):
        assert child.stdout is not None
        told = list(islice(child.stdout, after_rows))
        threading.Event().wait(delay_s)
        child.kill()
        told += [line for line in child.stdout if line.endswith("\n")]
    assert child.returncode == -signal.SIGKILL, errors.read_text()
    return told


@pytest.mark.fuller
@pytest.mark.parametrize("moment", range(MOMENTS))
def test_after_a_kill_nothing_accepted_is_missing_and_the_view_is_valid(tmp_path, server, moment):
    chance = random.Random(moment)
    database = tmp_path / "state.db"
    told = run_until_killed(
        database, server.base_url, chance.randrange(1, 60), chance.uniform(0, 0.03)
    )
    store = SessionDB(db_path=database)
    try:
        rows = {row["_seq"]: row for row in store.accepted_rows("crash", 1, 10_000)}
        for line in told:
            seq, role, digest = line.split()
            row = rows[int(seq)]
            text = text_of(row.get("content"))
            assert (row["role"], hashlib.sha256(text.encode()).hexdigest()) == (role, digest)
        lease = store.acquire_lease("crash")
        assert lease is not None
        store.release_lease(lease)
        assert store.check().problems == []
        view = store.view("crash").messages
        sent = shape(view, ShapeLimits(round_tokens=1_000, message_tokens=1_000)).messages
        assert check_messages([wire_message(message) for message in sent]) is None
        store.append_message("crash", "user", "still writable")
    finally:
        store.close()
