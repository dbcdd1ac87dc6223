"""`compression.in_place: false`: each summary gives the conversation a new session."""

from __future__ import annotations

from typing import Any

import pytest

from agent.base.errors import NetworkError
from agent.base.events import CompactionFinished, CompactionStarted, Event, TurnFinished
from agent.base.messages import Message, wire_message
from agent.base.settings import CompressionSettings, Settings
from agent.compaction.attempt import Candidate
from agent.sessions.records import PassKind, PassStatus
from agent.testing.builders import assistant, user
from agent.testing.scripted import ScriptedProvider
from hermes_state import SessionDB
from run_agent import AIAgent
from tests.attempts.harness import make_agent, messages, use_engine


def rotating(db: SessionDB, **options: Any) -> AIAgent:
    """Return an agent that rotates and whose engine keeps the last two rows."""
    given = {"settings": Settings(compression=CompressionSettings(in_place=False))} | options
    agent = make_agent(db, **given)
    use_engine(agent, lambda rows, **_: [user("notes"), *rows[-2:]])
    return agent


def test_a_summary_moves_the_agent_to_a_new_session_of_the_same_conversation(db):
    events: list[Event] = []
    agent = rotating(db, on_event=events.append)
    db.set_title("s", "walnuts")
    prompt = agent.system_prompt
    agent.context_compressor.tail_token_budget = 10
    db.append("s", messages())
    record = agent.compress()
    child = agent.session_id
    assert (record.status, record.session_id, record.child_session_id) == (
        PassStatus.COMMITTED,
        "s",
        child,
    )
    assert child != "s"
    assert [wire_message(row) for row in agent.live.messages] == [
        user("notes"),
        user("m18"),
        user("m19"),
    ]
    assert agent.context_compressor._session_id == child
    assert agent.context_compressor.tail_token_budget == 10
    session = db.session(child)
    assert (session.title, session.parent_session_id) == ("walnuts", "s")
    assert session.system_prompt == agent.system_prompt == prompt
    assert db.session("s").end_reason == "compression"
    told = [e for e in events if isinstance(e, CompactionStarted | CompactionFinished)]
    assert [event.session_id for event in told] == ["s", "s"]
    assert db.check().problems == []


def test_a_turn_goes_on_in_the_new_session_and_late_rows_of_the_old_id_are_carried(db):
    provider = ScriptedProvider()
    agent = rotating(db, provider=provider)
    agent.context_compressor.threshold_tokens = 100_000
    db.append("s", messages())
    agent.compress()
    child = agent.session_id
    db.append_message("s", "user", "late")
    result = agent.run_conversation("hello")
    assert result.session_id == child
    assert provider.requests[-1].messages[-1]["content"].endswith("late\n\nhello")
    assert [row["content"] for row in db.rows_after("s", 20)] == ["late", "hello", "ok"]


def test_a_turn_that_rotates_says_so_and_tells_the_rest_in_the_new_session(db):
    events: list[Event] = []
    provider = ScriptedProvider(window_tokens=4_096)
    agent = rotating(db, provider=provider, on_event=events.append)
    db.append("s", [user(f"m{index} " + "word " * 150) for index in range(20)])
    result = agent.run_conversation("hello")
    assert len(result.passes) == 1
    assert result.session_id == agent.session_id != "s"
    [finished] = [event for event in events if isinstance(event, TurnFinished)]
    assert finished.session_id == agent.session_id


def test_two_rotations_within_one_second_have_different_ids(db):
    agent = rotating(db)
    first, _prompt = agent._compress_context(messages(), "sys")
    child = agent.session_id
    agent._compress_context([*first, *messages()], "sys")
    assert len({"s", child, agent.session_id}) == 3
    assert [record.session_id for record in db.passes("s")] == ["s", child]
    assert db.session(agent.session_id).parent_session_id == child


def test_an_agent_opened_with_an_old_id_goes_on_at_the_newest(db):
    agent = rotating(db)
    db.append("s", messages())
    agent.compress()
    again = make_agent(db)
    assert again.chat("hello") == "ok"
    assert again.session_id == agent.session_id


def test_what_is_no_summary_stays_in_its_session(db):
    agent = rotating(db)
    db.append("s", messages())

    def only_mask(rows: list[Message], **_options: Any) -> list[Message]:
        return Candidate([{**rows[0], "content": "-"}, *rows[1:]], kind=PassKind.MASK)

    db.append("s", [assistant("a long answer " * 20)])
    use_engine(agent, only_mask)
    record = agent.compress()
    assert (record.status, record.kind) == (PassStatus.COMMITTED, PassKind.MASK)
    assert (agent.session_id, record.child_session_id) == ("s", None)


def test_a_failed_attempt_does_not_rotate(db):
    agent = rotating(db)
    db.append("s", messages())

    def fail(_rows: list[Message], **_options: Any) -> list[Message]:
        raise NetworkError("no route")

    use_engine(agent, fail)
    assert agent.compress().status is PassStatus.FAILED
    assert agent.session_id == "s"
    assert [record.id for record in db.sessions()] == ["s"]


def test_a_prepared_pass_rotates_when_it_is_committed(db):
    agent = rotating(db)
    db.append("s", messages())
    assert agent.compress(preview=True).status is PassStatus.PREPARED
    assert agent.session_id == "s"
    assert agent.commit_prepared().child_session_id == agent.session_id != "s"


@pytest.mark.parametrize("takes_away", [True, False], ids=["missing", "set by hand"])
def test_the_attribute_decides_and_a_missing_one_means_in_place(db, takes_away):
    agent = rotating(db, settings=Settings())
    if takes_away:
        del agent.compression_in_place
    else:
        agent.compression_in_place = False
    db.append("s", messages())
    agent.compress()
    assert (agent.session_id == "s") is takes_away


def test_undo_search_and_recall_work_as_if_nothing_had_rotated(db):
    agent = rotating(db)
    rows = db.append("s", messages())
    record = agent.compress()
    assert [hit.session_id for hit in db.search("m3", session_id="s")] == [agent.session_id]
    assert agent.recall(rows="4") == rows[3:4]
    assert agent.undo_compaction(record.id).view.messages == rows
    assert agent.session_id == record.child_session_id
