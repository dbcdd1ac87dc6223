"""An attempt as a transaction: what a commit accepts and covers, previews, leases, options."""

from __future__ import annotations

import copy
import time
from typing import Any

import pytest

from agent.base.errors import UsageError
from agent.base.messages import Message, wire_message
from agent.base.settings import CompressionSettings, Settings
from agent.conversation_compression import (
    compress_context,
)
from agent.sessions.records import PassStatus
from agent.testing.builders import assistant, user
from tests.attempts.harness import SUMMARY, make_agent, messages, state_of, use_engine
from tests.best_of import best_of


def test_a_commit_accepts_the_pending_rows_and_covers_them_in_one_transaction(db):
    agent = make_agent(db)
    use_engine(agent, lambda rows, **_: [*SUMMARY[:1], *rows[18:]])
    live = [{"role": "system", "content": "sys"}, *messages()]
    given = copy.deepcopy(live)
    result, prompt = compress_context(agent, live, "sys", approx_tokens=50_000)
    assert prompt == "sys"
    assert live == given
    assert [wire_message(row) for row in result] == [*SUMMARY[:1], user("m18"), user("m19")]
    assert [row["_seq"] for row in result] == [18, 19, 20]
    accepted = db.accepted_rows("s", 1, 20)
    assert [wire_message(row) for row in accepted] == messages()
    [row] = db.passes("s")
    assert row.status is PassStatus.COMMITTED
    assert (row.messages_before, row.messages_after) == (20, 3)
    assert row.receipt["covered"] == ""
    assert db.check().problems == []


def test_the_second_attempt_starts_from_the_stored_view_and_adds_the_new_rows(db):
    agent = make_agent(db)
    use_engine(agent, lambda rows, **_: [user(f"notes on {len(rows)}"), *rows[-2:]])
    first, _ = compress_context(agent, messages(), "sys")
    second, _ = compress_context(agent, [*first, assistant("hello"), user("m20")], "sys")
    assert [wire_message(row) for row in second] == [
        user("notes on 5"),
        assistant("hello"),
        user("m20"),
    ]
    assert db.passes("s")[-1].receipt["covered"] == "18-20"
    assert db.check().problems == []


def test_rows_accepted_while_the_engine_works_follow_the_summary(db):
    agent = make_agent(db)
    stored = db.append("s", messages())
    took_s: list[float] = []

    def append_one() -> float:
        started = time.monotonic()
        db.append_message("s", "user", "late")
        took_s.append(time.monotonic() - started)
        return took_s[-1]

    def append_meanwhile(rows: list[Message], **_options: Any) -> list[Message]:
        assert best_of(append_one, 1.0) < 1.0
        return [user("notes"), rows[-1]]

    use_engine(agent, append_meanwhile)
    result, _ = compress_context(agent, stored, "sys")
    late = [user("late")] * len(took_s)
    assert [wire_message(row) for row in result] == [user("notes"), user("m19"), *late]


def test_pending_rows_are_not_accepted_when_another_row_came_first(db):
    agent = make_agent(db)
    db.append("s", messages())

    def append_meanwhile(rows: list[Message], **_options: Any) -> list[Message]:
        db.append_message("s", "user", "first come")
        return [user("notes"), rows[-1]]

    use_engine(agent, append_meanwhile)
    live = [user("mine")]
    result, _ = compress_context(agent, live, "sys")
    assert result is live
    assert [row["content"] for row in db.view("s").messages][-1] == "first come"
    assert db.passes("s")[-1].status is PassStatus.SUPERSEDED
    assert db.get_compression_failure_cooldown("s") is None


def test_a_conversation_that_is_being_compacted_is_left_to_the_one_who_does_it(db):
    agent = make_agent(db)
    db.append("s", messages())
    lease = db.acquire_lease("s")
    assert lease is not None
    calls = use_engine(agent, lambda rows, **_: rows)
    live = messages()
    assert compress_context(agent, live, "sys")[0] is live
    assert calls == []
    assert db.passes("s")[-1].failure_class == "lock_contended"
    db.release_lease(lease)


def test_compaction_that_is_switched_off_is_off_for_everybody(db):
    agent = make_agent(db, settings=Settings(compression=CompressionSettings(enabled=False)))
    calls = use_engine(agent, lambda rows, **_: rows)
    compress_context(agent, messages(), "sys", force=True)
    assert calls == []
    assert db.passes("s")[-1].failure_class == "blocked:disabled"


def test_a_preview_is_kept_and_committed_later_without_a_second_summary(db):
    agent = make_agent(db)
    db.append("s", messages())
    calls = use_engine(agent, lambda rows, **_: [user("notes"), rows[-1]])
    before = state_of(db)
    record = agent.compress(preview=True)
    assert record.status is PassStatus.PREPARED
    assert state_of(db) == before
    committed = agent.commit_prepared()
    assert (committed.id, committed.status) == (record.id, PassStatus.COMMITTED)
    assert len(calls) == 1
    assert [wire_message(row) for row in db.view("s").messages] == [user("notes"), user("m19")]


def test_an_automatic_pass_does_not_adopt_a_preview(db):
    agent = make_agent(db)
    db.append("s", messages())
    calls = use_engine(agent, lambda rows, **_: [user("notes"), rows[-1]])
    preview = agent.compress(preview=True)
    compress_context(agent, [], "sys")
    assert len(calls) == 2
    assert db.pass_record(preview.id).status is PassStatus.SUPERSEDED


def test_a_discarded_preview_changes_nothing_and_committing_it_is_an_error(db):
    agent = make_agent(db)
    db.append("s", messages())
    use_engine(agent, lambda rows, **_: [user("notes"), rows[-1]])
    before = state_of(db)
    agent.compress(preview=True)
    record = agent.discard_prepared()
    assert record is not None
    assert record.status is PassStatus.ABORTED
    assert state_of(db) == before
    with pytest.raises(UsageError, match="no prepared pass"):
        agent.commit_prepared()


def test_an_engine_gets_only_the_options_that_it_takes(db):
    agent = make_agent(db)
    seen: list[int | None] = []

    def plain(messages: list[Message], current_tokens: int | None = None) -> list[Message]:
        seen.append(current_tokens)
        return messages

    agent.context_compressor.compress = plain
    compress_context(agent, messages(), "sys", approx_tokens=7)
    assert seen == [7]
