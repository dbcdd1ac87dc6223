"""What an agent takes back: compactions, its user's last message, and branches."""

from __future__ import annotations

import json
import logging
import threading
from typing import Any

import pytest

from agent.base.errors import UndoRefused, UnknownPass
from agent.base.messages import Message, wire_message
from agent.compaction.cooldown import Health
from agent.sessions.records import PassKind, PassStatus
from agent.testing.builders import assistant, call, result, user
from agent.testing.scripted import ScriptedProvider
from hermes_state import SessionDB
from run_agent import AIAgent
from tests.attempts.harness import make_agent, messages, use_engine


def open_agent(db: SessionDB, **options: Any) -> AIAgent:
    """Return an agent that compacts by hand only."""
    agent = make_agent(db, **options)
    agent.context_compressor.threshold_tokens = 100_000
    return agent


def contents(rows: list[Message]) -> list[Any]:
    return [row["content"] for row in rows]


def test_an_undone_compaction_is_back_in_the_next_request_whole(db):
    provider = ScriptedProvider()
    agent = open_agent(db, provider=provider)
    db.append("s", messages())
    use_engine(agent, lambda rows, **_: [user("notes"), *rows[-2:]])
    record = agent.compress()
    agent.submit("later")
    result = agent.undo_compaction()
    assert [row.target_pass for row in result.ledger] == [record.id]
    assert contents(result.view.messages) == [*contents(messages()), "later"]
    agent.run_pending()
    assert "notes" not in provider.requests[-1].messages[1]["content"]
    assert provider.requests[-1].messages[1]["content"].startswith("m0\n\nm1\n\n")


def test_no_verdict_is_awaited_for_what_was_undone(db):
    agent = open_agent(db)
    db.append("s", messages())
    use_engine(agent, lambda rows, **_: [user("notes"), *rows[-2:]])
    agent.compress()
    assert Health.from_dict(db.health("s")).awaiting_verdict
    agent.undo_compaction()
    assert not Health.from_dict(db.health("s")).awaiting_verdict


def test_an_undo_is_published_like_any_pass(db, caplog):
    agent = open_agent(db)
    db.append("s", messages())
    use_engine(agent, lambda rows, **_: [user("notes"), *rows[-2:]])
    agent.compress()
    with caplog.at_level(logging.INFO, "hermes.compaction"):
        [row] = agent.undo_compaction().ledger
    payloads = [json.loads(record.getMessage()) for record in caplog.records]
    told = [(p["attempt_id"], p["kind"], p["outcome"], p["trigger"]) for p in payloads]
    assert told == [(row.id, "other", "committed", "manual")]
    assert payloads[0]["tokens_after"] == row.tokens_after


def test_what_cannot_be_undone_says_why(db):
    agent = open_agent(db)
    with pytest.raises(UndoRefused, match="no compaction in force"):
        agent.undo_compaction()
    with pytest.raises(UnknownPass):
        agent.undo_compaction("nothing")


def test_an_undo_stops_the_pass_that_runs_and_undoes_the_one_before(db):
    agent = open_agent(db)
    db.append("s", messages())
    use_engine(agent, lambda rows, **_: [user("notes"), *rows[-2:]])
    first = agent.compress()
    db.append("s", messages())
    working = threading.Event()

    def work_until_stopped(rows: list[Message], **options: Any) -> list[Message]:
        working.set()
        options["attempt"].fence.token.wait(10)
        return [user("too late"), *rows[-2:]]

    use_engine(agent, work_until_stopped)
    ended: list[Any] = []
    thread = threading.Thread(target=lambda: ended.append(agent.compress()))
    thread.start()
    assert working.wait(10)
    view = agent.undo_compaction().view
    thread.join(10)
    assert db.pass_record(first.id).status is PassStatus.UNDONE
    assert ended[0].status in (PassStatus.SUPERSEDED, PassStatus.ABORTED)
    assert contents(view.messages) == contents(messages()) * 2
    assert db.view("s") == view
    assert db.get_compression_failure_cooldown("s") is None
    assert db.check().problems == []


def test_taking_back_a_turn_hides_it_and_returns_its_text(db):
    agent = open_agent(db, provider=ScriptedProvider(["one", "two"]))
    agent.chat("first")
    agent.chat("second")
    assert agent.undo_turn() == "second"
    assert contents(db.view("s").messages) == ["first", "one"]
    [record] = db.passes("s")
    assert (record.kind, record.receipt["hidden"]) == (PassKind.REWIND, "3-4")
    assert agent.undo_turn() == "first"
    with pytest.raises(UndoRefused, match="'s' shows no message of the user"):
        agent.undo_turn()


def test_messages_without_an_answer_between_them_are_taken_back_together(db):
    agent = open_agent(db)
    agent.chat("first")
    agent.submit("second")
    agent.submit("third")
    assert agent.undo_turn() == "second\n\nthird"
    assert contents(db.view("s").messages) == ["first", "ok"]
    assert agent.pending_messages() == 0


def test_requests_whose_answers_were_compacted_away_are_taken_back_one_by_one(db):
    agent = open_agent(db)
    for text in ("first", "second", "third"):
        agent.chat(text)
    use_engine(agent, lambda rows, **_: [rows[0], rows[2], user("notes"), *rows[4:]])
    agent.compress()
    assert contents(db.view("s").messages) == ["first", "second", "notes", "third", "ok"]
    assert agent.undo_turn() == "third"
    assert agent.undo_turn() == "second"
    assert contents(db.view("s").messages) == ["first", "ok"]


def test_a_rewind_is_undone_by_its_id_until_the_conversation_goes_on(db):
    agent = open_agent(db)
    agent.chat("first")
    before = db.view("s").messages
    agent.undo_turn()
    [record] = db.passes("s")
    assert agent.undo_compaction(record.id).view.messages == before
    agent.undo_turn()
    agent.chat("instead")
    with pytest.raises(UndoRefused, match="row 3 was accepted since; fork"):
        agent.undo_compaction(db.passes("s")[-1].id)


def test_a_retry_sends_the_same_message_again_as_it_was(db):
    provider = ScriptedProvider(["bad", "better"])
    agent = open_agent(db, provider=provider)
    parts: list[dict[str, Any]] = [
        {"type": "text", "text": "look"},
        {"type": "image_url", "image_url": {"url": "x:y"}},
    ]
    agent.chat("first")
    look = call("read_file")
    db.append("s", [user(parts), assistant(None, look), result(look, "text"), assistant("no")])
    answer = agent.retry()
    assert answer.final_text == "better"
    view = [wire_message(row) for row in db.view("s").messages]
    assert view == [user("first"), assistant("bad"), user(parts), assistant("better")]
    assert [row["_seq"] for row in answer.messages] == [7, 8]
    assert [m["content"] for m in provider.requests[-1].messages[1:]] == ["first", "bad", parts]


def test_a_pass_that_reaches_across_the_message_is_undone_with_it(db):
    agent = open_agent(db)
    db.append("s", [*messages(), user("request"), assistant("working"), assistant("on it")])
    use_engine(agent, lambda rows, **_: [rows[20], user("notes"), rows[22]])
    record = agent.compress()
    assert agent.undo_turn() == "request"
    assert contents(db.view("s").messages) == contents(messages())
    assert db.pass_record(record.id).status is PassStatus.UNDONE


def test_a_branch_goes_on_alone_and_the_old_session_stays(db):
    agent = open_agent(db, provider=ScriptedProvider(["one", "two", "three"]))
    agent.chat("first")
    branch = agent.branch("elsewhere")
    assert agent.session_id == branch != "s"
    assert (db.session(branch).title, db.session(branch).parent_session_id) == ("elsewhere", "s")
    assert agent.chat("second") == "two"
    assert contents(db.view("s").messages) == ["first", "one"]
    assert contents(db.view(branch).messages) == ["first", "one", "second", "two"]
    assert agent.context_compressor._session_id == branch
    assert db.session(branch).system_prompt == db.session("s").system_prompt
