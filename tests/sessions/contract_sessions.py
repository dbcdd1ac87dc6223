"""What any store must do with sessions: create, find, name, end, delete."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from agent.base.errors import StoreError, UnknownSession, UsageError
from agent.sessions.protocol import SessionStore
from agent.sessions.records import Guards, SessionRecord
from agent.testing.clock import FakeClock
from tests.sessions.steps import LARGE, SESSION, begin, contents, cover


class SessionsContract:
    def test_a_session_is_read_back_as_created(self, store: SessionStore, clock: FakeClock) -> None:
        store.create_session(
            SESSION,
            "cli",
            model="m",
            model_config={"temperature": 0.5},
            parent_session_id="p",
            title="First",
            origin={"platform": "web"},
            cwd="/tmp/x",
        )
        record = store.session(SESSION)
        assert record == SessionRecord(
            id=SESSION,
            conversation_id=record.conversation_id,
            source="cli",
            model="m",
            system_prompt=None,
            parent_session_id="p",
            title="First",
            started_at=clock.now(),
            ended_at=None,
            end_reason=None,
            cwd="/tmp/x",
            last_active_at=clock.now(),
            message_count=0,
            pass_count=0,
            model_config={"temperature": 0.5},
            origin={"platform": "web"},
        )

    def test_creating_a_session_twice_leaves_the_first(self, store: SessionStore) -> None:
        begin(store, 2)
        before = store.session(SESSION)
        store.create_session(SESSION, "web", title="Other")
        assert store.session(SESSION) == before

    def test_a_session_counts_accepted_rows_and_passes(self, store: SessionStore) -> None:
        rows = begin(store, 4)
        cover(store, rows[:2])
        record = store.session(SESSION)
        assert (record.message_count, record.pass_count) == (4, 1)

    def test_every_method_names_an_unknown_session(self, store: SessionStore) -> None:
        calls: list[Callable[[], object]] = [
            lambda: store.session("nobody"),
            lambda: store.find_session("nobody"),
            lambda: store.set_title("nobody", "x"),
            lambda: store.set_system_prompt("nobody", "x"),
            lambda: store.end_session("nobody", "x"),
            lambda: store.delete_session("nobody"),
            lambda: store.append_message("nobody", "user", "x"),
            lambda: store.view("nobody"),
            lambda: store.head("nobody"),
            lambda: store.rows_after("nobody", 0),
            lambda: store.history("nobody"),
            lambda: store.accepted_rows("nobody", 1, 2),
            lambda: store.search("word", session_id="nobody"),
            lambda: store.record_compression_failure_cooldown("nobody", 1.0),
            lambda: store.get_compression_failure_cooldown("nobody"),
            lambda: store.clear_compression_failure_cooldown("nobody"),
            lambda: store.health("nobody"),
            lambda: store.settle("nobody", Guards()),
            lambda: store.usage_anchor("nobody"),
            lambda: store.set_usage_anchor("nobody", {}),
            lambda: store.acquire_lease("nobody"),
            lambda: store.get_compression_lock_holder("nobody"),
            lambda: store.prepared_pass("nobody"),
            lambda: store.passes("nobody"),
            lambda: store.undo_pass("nobody"),
            lambda: store.rewind("nobody", 1),
            lambda: store.fork_session("nobody", "x"),
            lambda: store.pass_record("x", session_id="nobody"),
            lambda: store.note_unstarted(
                "nobody", status="skipped", failure_class="x", trigger="manual"
            ),
        ]
        for call in calls:
            with pytest.raises(UnknownSession, match="'nobody'"):
                call()

    def test_a_session_is_found_by_id_then_prefix_then_title(self, store: SessionStore) -> None:
        for session_id, title in (("abc1", "abc"), ("abd2", "abc1"), ("x", None)):
            store.create_session(session_id, "cli", title=title)
        found = {name: store.find_session(name).id for name in ("abc1", "abd", "abc", "x")}
        assert found == {"abc1": "abc1", "abd": "abd2", "abc": "abc1", "x": "x"}

    def test_an_ambiguous_prefix_names_the_sessions(self, store: SessionStore) -> None:
        store.create_session("abc1", "cli")
        store.create_session("abd2", "cli")
        with pytest.raises(UnknownSession, match="'ab'.*abc1, abd2"):
            store.find_session("ab")
        with pytest.raises(UnknownSession):
            store.find_session("")

    def test_a_title_wins_over_an_ambiguous_prefix(self, store: SessionStore) -> None:
        store.create_session("abc1", "cli")
        store.create_session("abd2", "cli", title="ab")
        assert store.find_session("ab").id == "abd2"

    def test_sessions_come_most_recently_active_first(
        self, store: SessionStore, clock: FakeClock
    ) -> None:
        for session_id in ("a", "b", "c"):
            clock.advance(1)
            store.create_session(session_id, "cli")
        clock.advance(1)
        store.append_message("a", "user", "hello")
        assert [record.id for record in store.sessions()] == ["a", "c", "b"]
        assert [record.id for record in store.sessions(limit=1)] == ["a"]

    def test_a_title_is_unique_and_can_be_taken_away(self, store: SessionStore) -> None:
        store.create_session("a", "cli", title="Plan")
        store.create_session("b", "cli")
        with pytest.raises(UsageError, match=r"'a'.*'Plan'"):
            store.set_title("b", "Plan")
        with pytest.raises(UsageError, match="'Plan'"):
            store.create_session("c", "cli", title="Plan")
        store.set_title("a", "Plan")
        store.set_title("a", None)
        store.set_title("b", "Plan")
        assert store.find_session("Plan").id == "b"

    def test_the_first_end_wins_and_appends_still_arrive(
        self, store: SessionStore, clock: FakeClock
    ) -> None:
        begin(store, 1)
        store.end_session(SESSION, "quit")
        ended_at = clock.now()
        clock.advance(5)
        store.end_session(SESSION, "crash")
        store.append_message(SESSION, "user", "late")
        record = store.session(SESSION)
        assert (record.ended_at, record.end_reason, record.message_count) == (ended_at, "quit", 2)

    def test_the_system_prompt_is_kept_and_is_no_row(self, store: SessionStore) -> None:
        begin(store)
        store.set_system_prompt(SESSION, "be kind")
        assert store.session(SESSION).system_prompt == "be kind"
        assert store.view(SESSION).messages == []

    def test_deleting_a_session_leaves_nothing_of_its_conversation(
        self, store: SessionStore
    ) -> None:
        rows = begin(store, 4)
        cover(store, rows[:2])
        store.append(SESSION, [{"role": "tool", "tool_call_id": "c", "content": LARGE}])
        sha256 = store.view(SESSION).messages[-1]["_blob"]
        begin(store, 2, "other")
        store.index_pending()
        store.delete_session(SESSION)
        with pytest.raises(UnknownSession):
            store.view(SESSION)
        with pytest.raises(StoreError):
            store.blob(sha256)
        report = store.check()
        assert (list(report.problems), report.conversations, report.rows) == ([], 1, 2)
        assert report.passes == 0
        assert [hit.session_id for hit in store.search("message")] == ["other", "other"]

    def test_a_blob_that_another_conversation_uses_stays(self, store: SessionStore) -> None:
        result = {"role": "tool", "tool_call_id": "c", "content": LARGE}
        for session_id in ("a", "b"):
            store.create_session(session_id, "cli")
            store.append(session_id, [result])
        store.delete_session("a")
        assert contents(store.accepted_rows("b", 1, 1)) == [LARGE]

    def test_rows_accepted_after_a_deletion_are_found(self, store: SessionStore) -> None:
        begin(store, 3, "a")
        store.index_pending()
        store.delete_session("a")
        begin(store)
        store.append_message(SESSION, "user", "a cuckoo in the nest")
        store.index_pending()
        assert [hit.snippet for hit in store.search("cuckoo")] == ["a cuckoo in the nest"]
        assert store.search("message") == []
