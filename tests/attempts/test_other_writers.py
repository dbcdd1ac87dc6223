"""Another process changes the conversation while an attempt of this one is under way."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest

from agent.base.messages import Message
from agent.conversation_compression import compress_context
from agent.sessions.records import PassStatus
from agent.testing.builders import user
from hermes_state import SessionDB
from tests.attempts.harness import make_agent, messages, use_engine
from tests.sessions.steps import contents


def in_another_process(db: SessionDB, step: str) -> None:
    subprocess.run(
        [sys.executable, "-m", "tests.attempts.other", str(db.path), step], check=True, timeout=15
    )


@pytest.fixture
def agent(db):
    agent = make_agent(db)
    db.append("s", messages())
    assert contents(agent.live.messages) == [f"m{index}" for index in range(20)]
    return agent


def notes_on_all_but_the_newest(db: SessionDB, step: str) -> Any:
    """Return an engine while which another process does a step."""

    def compress(rows: list[Message], **_options: Any) -> list[Message]:
        in_another_process(db, step)
        return [user("notes"), rows[-1]]

    return compress


def test_rows_of_another_process_follow_the_summary_in_memory_as_on_disk(agent, db):
    use_engine(agent, notes_on_all_but_the_newest(db, "append"))
    result, _ = compress_context(agent, [], "sys")
    assert contents(result) == ["notes", "m19", "other 1", "other 2"]
    assert agent.live.messages == result == db.view("s").messages
    assert db.check().problems == []


@pytest.mark.parametrize("step", ["cover_oldest", "mask_newest", "rewind"])
def test_a_view_that_another_process_changed_ends_the_attempt(agent, db, step):
    use_engine(agent, notes_on_all_but_the_newest(db, step))
    given: list[Message] = []
    result, _ = compress_context(agent, given, "sys")
    assert result is given
    assert "notes" not in contents(db.view("s").messages)
    assert PassStatus.SUPERSEDED in [record.status for record in db.passes("s")]
    agent.live.refresh()
    assert agent.live.messages == db.view("s").messages
    assert db.check().problems == []


@pytest.mark.parametrize("step", ["append", "cover_oldest", "mask_newest", "rewind", "recreate"])
def test_an_attempt_starts_from_what_another_process_left(agent, db, step):
    in_another_process(db, step)
    before = db.view("s").messages
    calls: list[list[Message]] = []

    def compress(rows: list[Message], **_options: Any) -> list[Message]:
        calls.append(rows)
        return [user("notes"), rows[-1]]

    use_engine(agent, compress)
    result, _ = compress_context(agent, [], "sys")
    assert contents(calls[0]) == contents(before)
    assert contents(result) == ["notes", before[-1]["content"]]
    assert agent.live.messages == result == db.view("s").messages


def test_what_a_caller_does_to_a_result_does_not_show_in_the_live_view(agent, db):
    use_engine(agent, lambda rows, **_: [user("notes"), rows[-1]])
    result, _ = compress_context(agent, [], "sys")
    result[0]["content"] = "changed by the caller"
    assert contents(agent.live.messages) == ["notes", "m19"]
