"""The command itself: killed inside a pass, stopped by a signal; other commands read its store."""

from __future__ import annotations

import math
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx2
import pytest

from agent.cli.app import run
from agent.sessions.records import PassStatus
from agent.testing.stub_reply import RecordedRequest, Reply
from agent.testing.stub_server import StubModelServer
from agent.testing.summaries import GOOD_SUMMARY
from hermes_state import SessionDB
from tests.proxy.serving import Caller, serving
from tests.proxy.talk import is_summary
from tests.proxy.test_pressure import full, refusals

pytestmark = pytest.mark.timeout(90)  # a process takes seconds to start on a busy machine

HERMES = [sys.executable, "-c", "from agent.cli.app import main; main()"]


def environment(home: Path) -> dict[str, str]:
    return {
        "HERMES_HOME": str(home),
        "HERMES_PROXY__CONTEXT_LENGTH": "8192",
        "PATH": os.environ["PATH"],
    }


@contextmanager
def running(home: Path, upstream: str) -> Iterator[tuple[str, subprocess.Popen[str]]]:
    """Run `hermes proxy` and give its base URL and its process."""
    words = [*HERMES, "proxy", "--upstream", upstream, "--port", "0"]
    with subprocess.Popen(
        words, env=environment(home), stderr=subprocess.PIPE, text=True
    ) as process:
        try:
            assert process.stderr is not None
            line = process.stderr.readline().strip()
            yield line.rpartition(" ")[2], process
        finally:
            if process.poll() is None:
                process.send_signal(signal.SIGTERM)
            process.wait(30)


def test_a_kill_in_the_middle_of_a_pass_loses_nothing(
    stub: StubModelServer, tmp_path: Path
) -> None:
    release = threading.Event()
    asked = threading.Event()

    def script(request: RecordedRequest) -> Reply:
        if not is_summary(request):
            return Reply(text="noted")
        if not asked.is_set():
            asked.set()
            return Reply(before_first_byte_s=math.inf, release=release)
        return Reply(text=GOOD_SUMMARY)

    stub.script(script)
    with running(tmp_path, stub.base_url) as (url, process), Caller(url) as one:
        full(one)
        thread = threading.Thread(target=lambda: pytest.raises(httpx2.TransportError, one.post))
        thread.start()
        assert asked.wait(30)
        process.kill()
        process.wait()
        thread.join()
        release.set()
    with running(tmp_path, stub.base_url) as (url, process), Caller(url) as two:
        full(two)
        two.go_on()
        two.say("and then?")
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 0
    assert refusals(stub) == []
    store = SessionDB(tmp_path / "state.db")
    try:
        [session] = store.sessions()
        ended = [(p.status, p.failure_class) for p in store.passes(session.id)]
        stored = store.accepted_rows(session.id, 1, 200)
        assert store.check().problems == []
    finally:
        store.close()
    assert (PassStatus.ABORTED, "crashed") in ended
    assert PassStatus.COMMITTED in [status for status, _why in ended]
    assert [row["content"] for row in stored] == [message["content"] for message in two.messages]


def test_other_commands_read_what_went_through(
    store: SessionDB,
    stub: StubModelServer,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    stub.script(
        lambda request: Reply(text=GOOD_SUMMARY if is_summary(request) else "the answer is 42")
    )
    with serving(store, stub.base_url) as url, Caller(url) as one:
        full(one)
        one.go_on()
    monkeypatch.setenv("HERMES_HOME", str(tmp_path))

    def hermes(*words: str) -> str:
        capsys.readouterr()
        assert run(list(words)) == 0
        return capsys.readouterr().out

    [session] = store.sessions()
    title = session.title or ""
    assert title == "proxy: note 0: alpha beta gamma delta epsilon z"
    assert title[:20] in hermes("sessions", "list")
    assert "summary" in hermes("compactions", "list", title)
    assert "the answer is 42" in hermes("recall", title, "answer 42")
    assert "note 3:" in hermes("recall", title, "--rows", "7")
    hermes("compactions", "undo", title)
    assert "undone" in hermes("compactions", "list", title)
