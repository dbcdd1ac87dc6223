"""The micro pass after a turn: what it changes, what its failure leaves, and when there is none."""

from __future__ import annotations

import logging
import threading
from typing import Any

import pytest

from agent.base.errors import NetworkError
from agent.base.events import CompactionFinished, Event, Notice, TurnFinished
from agent.base.messages import Message, text_of, wire_message
from agent.base.settings import CompressionSettings, Settings
from agent.providers.protocol import ModelRequest
from agent.sessions.protocol import SessionStore
from agent.sessions.records import Guards, PassKind, PassRecord, PassStatus
from agent.testing.builders import assistant, user
from agent.testing.scripted import Reply, Scripted, ScriptedProvider
from agent.turn_finalizer import _micro_compact_after_turn
from hermes_state import SessionDB
from run_agent import AIAgent

NOTE = "The three reports were read; the port is 5433."
LONG = "the report names every file that was read and what stood in it; " * 30
LOG = logging.getLogger("test")


def is_micro(request: ModelRequest) -> bool:
    return bool(request.messages[0]["role"] != "system")


def replying(note: Reply = NOTE, answer: str = LONG) -> ScriptedProvider:
    """Return a provider that answers at length and writes `note` when it is asked to condense."""
    return ScriptedProvider(lambda request: note if is_micro(request) else answer)


def open_agent(
    db: SessionStore,
    provider: ScriptedProvider | None = None,
    *,
    on_event: Any = None,
    **micro: Any,
) -> AIAgent:
    """Return an agent with micro passes on and no tail."""
    fields: dict[str, Any] = {"micro_compact": True, "background": False} | micro
    agent = AIAgent(
        session_db=db,
        session_id="s",
        provider=provider or replying(),
        settings=Settings(compression=CompressionSettings(**fields)),
        builtin_tools=False,
        skip_memory=True,
        skip_context_files=True,
        on_event=on_event,
    )
    agent.context_compressor.tail_token_budget = 0
    return agent


def micro_rows(db: SessionStore) -> list[PassRecord]:
    return [record for record in db.passes("s") if record.kind is PassKind.MICRO]


def view(db: SessionStore) -> list[Message]:
    return [wire_message(row) for row in db.view("s").messages]


def test_after_a_turn_the_oldest_finished_exchange_gives_way_to_a_marker(db):
    events: list[Event] = []
    agent = open_agent(db, on_event=events.append)
    agent.chat("first")
    assert micro_rows(db) == []
    agent.chat("second")
    assert view(db) == [user("first"), assistant(NOTE), user("second"), assistant(LONG)]
    [record] = micro_rows(db)
    assert (record.status, record.trigger, record.strategy, record.session_id) == (
        PassStatus.COMMITTED,
        "between_turns",
        "micro",
        "s",
    )
    assert (record.messages_before, record.messages_after) == (4, 4)
    assert record.tokens_after == db.view("s").tokens
    assert record.receipt["covered"] == "2"
    assert [type(e) for e in events[-2:]] == [CompactionFinished, TurnFinished]
    assert db.accepted_rows("s", 2, 2)[0]["content"] == LONG
    assert list(db.check().problems) == []


def test_the_marker_is_shown_as_the_assistants_and_names_its_rows(db):
    provider = replying()
    agent = open_agent(db, provider)
    for text in ("first", "second", "third"):
        agent.chat(text)
    chats = [request for request in provider.requests if not is_micro(request)]
    shown = [(m["role"], text_of(m["content"])) for m in chats[-1].messages[1:]]
    assert [role for role, _text in shown] == ["user", "assistant"] * 2 + ["user"]
    assert shown[1][1].startswith("[Condensed: what was done and said here; ")
    assert shown[1][1].endswith(f"]\n{NOTE}")
    assert shown[3][1] == LONG


def test_there_is_at_most_one_pass_a_turn_and_markers_are_rolled_up_in_time(db):
    long_note = "The port is 5433 and the report of day {} was read to its end. " * 3
    notes = iter(range(100))
    provider = ScriptedProvider(
        lambda request: long_note.format(*[next(notes)] * 3) if is_micro(request) else LONG
    )
    agent = open_agent(db, provider, micro_compact_defrag_threshold_tokens=120)
    passes = 0
    for number in range(8):
        agent.chat(f"request {number}")
        assert len(micro_rows(db)) - passes <= 1
        passes = len(micro_rows(db))
    strategies = [record.strategy for record in micro_rows(db)]
    assert strategies == ["micro", "micro", "roll_up", "micro", "roll_up", "micro", "roll_up"]
    assert {record.status for record in micro_rows(db)} == {PassStatus.COMMITTED}
    assert sum(row.get("_kind") == "micro" for row in db.view("s").messages) == 1
    assert list(db.check().problems) == []


def test_a_micro_pass_is_undone_like_any_other(db):
    agent = open_agent(db)
    agent.chat("first")
    agent.chat("second")
    result = agent.undo_compaction()
    assert [wire_message(row) for row in result.view.messages] == [
        user("first"),
        assistant(LONG),
        user("second"),
        assistant(LONG),
    ]


def test_what_was_undone_is_not_condensed_again(db):
    """Also not by another process; the exchanges after it are, and markers when there are more."""
    agent = open_agent(db)
    for text in ("first", "second", "third"):
        agent.chat(text)
    assert [record.receipt["covered"] for record in micro_rows(db)] == ["2", "4"]
    agent.undo_compaction(micro_rows(db)[0].id)
    agent = open_agent(db)
    agent.chat("fourth")
    agent.chat("fifth")
    assert [record.receipt["covered"] for record in micro_rows(db)] == ["2", "4", "6", "8"]
    assert view(db)[:4] == [user("first"), assistant(LONG), user("second"), assistant(NOTE)]


def test_a_roll_up_that_was_undone_waits_for_another_marker(db):
    agent = open_agent(db, micro_compact_defrag_threshold_tokens=30)
    for text in ("first", "second", "third", "fourth"):
        agent.chat(text)
    rolled = micro_rows(db)[-1]
    assert (rolled.strategy, rolled.receipt["covered"]) == ("roll_up", "2,4")
    agent.undo_compaction(rolled.id)
    agent.chat("fifth")
    agent.chat("sixth")
    later = [(record.strategy, record.receipt["covered"]) for record in micro_rows(db)[3:]]
    assert later == [("micro", "6"), ("roll_up", "2,4,6")]


@pytest.mark.parametrize(
    ("note", "status", "failure_class"),
    [
        (NetworkError("no route"), PassStatus.FAILED, "summary_network_failure"),
        ("", PassStatus.FAILED, "summary_empty_content_failure"),
        (Scripted("cut off here", finish="length"), PassStatus.FAILED, "summary_truncated_failure"),
        (LONG + "and much more " * 100, PassStatus.ABORTED, "would_grow"),
    ],
    ids=["network", "empty", "truncated", "grown"],
)
def test_a_failed_pass_changes_nothing_but_the_ledger(db, note, status, failure_class):
    events: list[Event] = []
    agent = open_agent(db, replying(note), on_event=events.append)
    agent.chat("first")
    assert agent.chat("second") == LONG
    [record] = micro_rows(db)
    assert (record.status, record.failure_class) == (status, failure_class)
    assert view(db) == [user("first"), assistant(LONG), user("second"), assistant(LONG)]
    assert db.get_compression_failure_cooldown("s") is None
    assert db.health("s") == {}
    assert [event.text for event in events if isinstance(event, Notice)] == []
    assert list(db.check().problems) == []


def test_an_engine_that_breaks_down_is_logged_and_on_the_ledger(db, caplog):
    agent = open_agent(db)

    def break_down(*_: Any) -> str:
        raise RuntimeError("bug in an engine")

    agent.context_compressor._micro_summarize_one = break_down
    agent.chat("first")
    assert agent.chat("second") == LONG
    [record] = micro_rows(db)
    assert (record.status, record.failure_class) == (PassStatus.FAILED, "exception:RuntimeError")
    assert "failed and changed nothing" in caplog.text
    assert db.get_compression_lock_holder("s") is None


def test_a_stop_ends_the_pass_and_leaves_the_answer(db):
    provider = replying(Scripted(NOTE, hold=threading.Event()))
    agent = open_agent(db, provider)
    agent.chat("first")
    answers: list[str] = []
    thread = threading.Thread(target=lambda: answers.append(agent.chat("second")))
    thread.start()
    provider.wait_for_requests(3)
    agent.interrupt()
    thread.join(10)
    assert answers == [LONG]
    [record] = micro_rows(db)
    assert (record.status, record.failure_class) == (PassStatus.ABORTED, "explicit_interrupt")


def test_pending_rows_are_accepted_by_the_commit_and_the_list_becomes_the_view(db):
    agent = open_agent(db)
    agent._open_session()
    rows = db.append("s", [user("first"), assistant(LONG)])
    given = [{"role": "system", "content": "sys"}, *rows, user("second"), assistant("done")]
    _micro_compact_after_turn(agent, given, "done", LOG, "task")
    assert [wire_message(row) for row in given] == view(db)
    assert view(db) == [user("first"), assistant(NOTE), user("second"), assistant("done")]
    assert [row["_seq"] for row in given] == [1, 2, 3, 4]


def _off(agent: AIAgent, _db: SessionDB) -> None:
    agent.context_compressor._micro_compact_enabled = False


def _not_quite_on(agent: AIAgent, _db: SessionDB) -> None:
    agent.context_compressor._micro_compact_enabled = 1


def _not_kept(agent: AIAgent, _db: SessionDB) -> None:
    vars(agent)["_persist_disabled"] = True


def _braked(agent: AIAgent, db: SessionDB) -> None:
    db.settle("s", Guards(cooldown_until=agent.clock.now() + 60, cooldown_error="x"))


def _leased(_agent: AIAgent, db: SessionDB) -> None:
    assert db.acquire_lease("s") is not None


def _previewed(agent: AIAgent, _db: SessionDB) -> None:
    agent.context_compressor.compress = lambda rows, **_: [user("notes"), *rows[2:]]
    assert agent.compress(preview=True).status is PassStatus.PREPARED


@pytest.mark.parametrize(
    "hinder",
    [_off, _not_quite_on, _not_kept, _braked, _leased, _previewed],
    ids=lambda f: f.__name__,
)
def test_there_is_no_pass_when(db, hinder):
    agent = open_agent(db)
    agent._open_session()
    rows = db.append("s", [user("first"), assistant(LONG), user("second"), assistant(LONG)])
    hinder(agent, db)
    _micro_compact_after_turn(agent, list(rows), "done", LOG, "task")
    assert micro_rows(db) == []
    assert db.view("s").messages == rows


def test_there_is_no_pass_without_an_answer_or_with_compaction_off(db):
    agent = open_agent(db)
    agent._open_session()
    rows = db.append("s", [user("first"), assistant(LONG), user("second"), assistant(LONG)])
    for answer in (None, ""):
        _micro_compact_after_turn(agent, list(rows), answer, LOG, "task")
    off = open_agent(db, enabled=False)
    _micro_compact_after_turn(off, list(rows), "done", LOG, "task")
    assert db.passes("s") == []


def test_a_store_that_fails_is_logged_and_nothing_is_raised(db, caplog):
    agent = open_agent(db)
    agent._open_session()
    rows = db.append("s", [user("first"), assistant(LONG), user("second"), assistant(LONG)])
    db.close()
    _micro_compact_after_turn(agent, list(rows), "done", LOG, "task")
    assert "the micro pass after turn task failed" in caplog.text


def test_a_later_summary_condenses_the_markers_with_everything_else(db):
    agent = open_agent(db)
    for text in ("first", "second", "third"):
        agent.chat(text)
    agent.context_compressor.compress = lambda rows, **_: [user("notes"), *rows[-2:]]
    agent.compress()
    assert view(db) == [user("notes"), user("third"), assistant(LONG)]
    assert list(db.check().problems) == []
