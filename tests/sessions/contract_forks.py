"""What any store must do when a conversation is forked and when it gets another session."""

from __future__ import annotations

import dataclasses

import pytest

from agent.base.errors import UnknownSession, UsageError
from agent.sessions.protocol import SessionStore
from agent.sessions.records import PassKind, PassStatus
from agent.testing.clock import FakeClock
from tests.sessions.steps import (
    LARGE,
    SESSION,
    begin,
    contents,
    cover,
    mask,
    run_pass,
    summary,
    take_lease,
    talk,
)

FORK = "fork"


class ForksContract:
    def test_a_fork_has_the_same_rows_and_goes_its_own_way(self, store: SessionStore) -> None:
        rows = begin(store, 4)
        pass_id, view = cover(store, rows[:2])
        store.fork_session(SESSION, FORK)
        assert store.view(FORK).messages == view.messages
        assert store.accepted_rows(FORK, 1, 9) == rows
        [mine] = store.append(SESSION, talk(1, first=5))
        [its] = store.append(FORK, talk(1, first=6))
        assert (mine["_seq"], its["_seq"]) == (5, 5)
        assert store.view(SESSION).messages == [*view.messages, mine]
        assert store.view(FORK).messages == [*view.messages, its]
        assert [record.id for record in store.passes(FORK)] == [pass_id]
        assert list(store.check().problems) == []

    def test_a_fork_takes_over_what_the_session_is_but_not_its_names(
        self, store: SessionStore, clock: FakeClock
    ) -> None:
        store.create_session(
            SESSION,
            "telegram",
            model="m",
            model_config={"temperature": 0.5},
            title="walnuts",
            origin={"chat": 7},
            cwd="/tmp",
        )
        store.set_system_prompt(SESSION, "be brief")
        store.append(SESSION, talk(1))
        store.record_compression_failure_cooldown(SESSION, clock.now() + 60, "network")
        clock.advance(5)
        parent = store.session(SESSION)
        record = store.fork_session(SESSION, FORK, title="pears")
        assert record == dataclasses.replace(
            parent,
            id=FORK,
            conversation_id=record.conversation_id,
            parent_session_id=SESSION,
            title="pears",
            origin={},
            started_at=clock.now(),
            last_active_at=clock.now(),
        )
        assert record.conversation_id != parent.conversation_id
        assert store.get_compression_failure_cooldown(FORK) is None

    def test_an_inherited_pass_is_undone_in_the_fork_alone(self, store: SessionStore) -> None:
        rows = begin(store, 4)
        pass_id, view = cover(store, rows[:2])
        store.fork_session(SESSION, FORK)
        [undo] = store.undo_pass(FORK).ledger
        assert (undo.kind, undo.target_pass) == (PassKind.UNDO, pass_id)
        assert store.view(FORK).messages == rows
        assert store.view(SESSION).messages == view.messages
        assert store.pass_record(pass_id).status is PassStatus.COMMITTED
        assert store.pass_record(pass_id, session_id=FORK).status is PassStatus.UNDONE
        assert store.pass_rows(pass_id)[0] == rows[:2]
        assert store.pass_rows(pass_id, session_id=FORK)[0] == []
        store.undo_pass(SESSION, pass_id)
        assert store.view(SESSION).messages == rows

    def test_a_fork_inherits_only_passes_that_cover_nothing_behind_its_row(
        self, store: SessionStore
    ) -> None:
        rows = begin(store, 8)
        early, _view = cover(store, rows[:2], "early")
        masking, _view = mask(store, rows[2])
        cover(store, rows[3:6], "late")
        record = store.fork_session(SESSION, FORK, up_to_seq=5)
        assert contents(store.view(FORK).messages) == [
            "early",
            "[left out]",
            "message 4",
            "message 5",
        ]
        assert [p.id for p in store.passes(FORK)] == [early, masking]
        assert (record.message_count, record.pass_count) == (5, 2)
        assert store.head(FORK).watermark == 5
        assert list(store.check().problems) == []

    def test_a_mask_of_a_pass_that_is_not_inherited_is_left_out(self, store: SessionStore) -> None:
        rows = begin(store, 4)
        masked, _view = mask(store, rows[0])
        store.undo_pass(SESSION, masked)
        mask(store, rows[3])
        store.fork_session(SESSION, FORK, up_to_seq=2)
        assert store.view(FORK).messages == rows[:2]
        assert store.passes(FORK) == []

    @pytest.mark.parametrize("which", [SESSION, FORK], ids=["the first", "the fork"])
    def test_deleting_one_leaves_the_other_whole(self, store: SessionStore, which: str) -> None:
        store.create_session(SESSION, "cli")
        large = {"role": "tool", "tool_call_id": "c", "name": "read", "content": LARGE}
        rows = store.append(SESSION, [*talk(3), large])
        pass_id, _view = cover(store, rows[:2])
        store.index_pending()
        store.fork_session(SESSION, FORK)
        left = FORK if which == SESSION else SESSION
        store.append(which, [{"role": "user", "content": "only here"}])
        view, ledger = store.view(left), store.passes(left)
        whole = store.accepted_rows(left, 1, 9)
        store.delete_session(which)
        with pytest.raises(UnknownSession):
            store.view(which)
        assert (store.view(left), store.passes(left)) == (view, ledger)
        assert store.accepted_rows(left, 1, 9) == whole
        assert whole[3]["content"] == LARGE
        [hit] = store.search("message 1")
        assert hit.session_id == left
        [hit] = store.search("message 1", session_id=left)
        assert hit.message["_seq"] == 1
        assert store.search("only here") == []
        assert store.undo_pass(left, pass_id).view.messages[:2] == rows[:2]
        assert store.session(left).parent_session_id is None
        assert list(store.check().problems) == []
        store.delete_session(left)
        assert dataclasses.astuple(store.check()) == ([], 0, 0, 0)

    def test_a_row_that_forks_share_is_found_once_and_in_each(self, store: SessionStore) -> None:
        begin(store, 2)
        store.index_pending()
        store.fork_session(SESSION, FORK)
        store.append(FORK, [{"role": "user", "content": "message in the fork"}])
        assert [(hit.session_id, hit.message["_seq"]) for hit in store.search("message")] == [
            (FORK, 3),
            (SESSION, 2),
            (SESSION, 1),
        ]
        for session_id, seqs in ((SESSION, [2, 1]), (FORK, [3, 2, 1])):
            hits = store.search("message", session_id=session_id)
            assert [hit.message["_seq"] for hit in hits] == seqs
            assert {hit.session_id for hit in hits} == {session_id}
        store.rewind(SESSION, 2)
        assert [hit.session_id for hit in store.search('"message 2"')] == [FORK]

    @pytest.mark.parametrize("is_late", [False, True], ids=["before", "after the fork"])
    def test_a_fork_inherits_pins_as_they_stood_at_its_row(
        self, store: SessionStore, is_late: bool
    ) -> None:
        store.create_session(SESSION, "cli")
        store.add_pin(SESSION, "Answer in French.")
        store.append(
            SESSION, [{"role": "user", "content": "Don't touch the audit log until I say so."}]
        )
        store.append(SESSION, talk(1))
        later = ("Never deploy on Fridays.", "You may now touch the audit log.")
        store.append(SESSION, [{"role": "user", "content": text} for text in later])
        if not is_late:
            store.extract_pending()
        store.fork_session(SESSION, FORK, up_to_seq=2)
        store.extract_pending()
        wanted = ["Answer in French.", "Don't touch the audit log until I say so."]
        assert [pin.text for pin in store.pins(FORK)] == wanted
        assert [pin.text for pin in store.pins(SESSION)] == [wanted[0], later[0]]

    @pytest.mark.parametrize("is_late", [False, True], ids=["before", "after the fork"])
    def test_a_fork_shows_beside_a_pin_what_was_said_of_it_up_to_its_row(
        self, store: SessionStore, is_late: bool
    ) -> None:
        store.create_session(SESSION, "cli")
        said = ("Don't touch the audit log.", "Legal is happy with it.", "The audit log is huge.")
        store.append(SESSION, [{"role": "user", "content": text} for text in said])
        if not is_late:
            store.extract_pending()
        store.fork_session(SESSION, FORK, up_to_seq=2)
        store.fork_session(SESSION, "whole")
        store.extract_pending()
        beside = {name: store.pins(name)[0].doubt for name in (SESSION, FORK, "whole")}
        assert beside == {SESSION: said[2], FORK: "", "whole": said[2]}

    def test_a_fork_of_a_fork_outlives_both(self, store: SessionStore) -> None:
        rows = begin(store, 2)
        store.fork_session(SESSION, FORK)
        store.append(FORK, talk(1, first=3))
        store.fork_session(FORK, "third")
        store.delete_session(SESSION)
        store.delete_session(FORK)
        assert contents(store.view("third").messages) == ["message 1", "message 2", "message 3"]
        assert store.accepted_rows("third", 1, 2) == rows
        assert [hit.session_id for hit in store.search('"message 1"')] == ["third"]
        assert list(store.check().problems) == []

    def test_what_cannot_be_forked_is_refused(self, store: SessionStore) -> None:
        begin(store, 2)
        begin(store, 1, "other")
        store.set_title("other", "walnuts")
        for name, options, reason in (
            ("other", {}, "a session has the id 'other' already"),
            ("", {}, "needs an id"),
            (FORK, {"title": "walnuts"}, "'other' has the title 'walnuts' already"),
            (FORK, {"up_to_seq": 0}, "has no row up to 0"),
        ):
            with pytest.raises(UsageError, match=reason):
                store.fork_session(SESSION, name, **options)
        with pytest.raises(UnknownSession):
            store.fork_session("nobody", FORK)
        assert len(store.sessions()) == 2


class RotationContract:
    def test_a_rotation_is_the_ordinary_commit_and_a_new_session(
        self, store: SessionStore, clock: FakeClock
    ) -> None:
        store.create_session(
            SESSION,
            "telegram",
            model="m",
            model_config={"temperature": 0.5},
            title="walnuts",
            origin={"platform": "telegram", "chat": 7},
            cwd="/tmp",
        )
        store.set_system_prompt(SESSION, "be brief")
        rows = store.append(SESSION, talk(4))
        clock.advance(3)
        pass_id, view = cover(store, rows[:2], child_session_id="child")
        parent, child = store.session(SESSION), store.session("child")
        assert (parent.ended_at, parent.end_reason, parent.title) == (
            clock.now(),
            "compression",
            None,
        )
        assert child == dataclasses.replace(
            parent,
            id="child",
            parent_session_id=SESSION,
            title="walnuts",
            started_at=clock.now(),
            ended_at=None,
            end_reason=None,
        )
        assert child.system_prompt == "be brief"
        assert store.pass_record(pass_id).child_session_id == "child"
        assert store.view("child") == store.view(SESSION) == view
        assert list(store.check().problems) == []

    def test_every_older_name_leads_to_the_newest_session(self, store: SessionStore) -> None:
        rows = begin(store, 4)
        store.set_title(SESSION, "walnuts")
        _pass, view = cover(store, rows[:2], child_session_id="s2")
        cover(store, view.messages[:2], child_session_id="s3")
        for name in (SESSION, "s2", "s3", "s", "walnuts"):
            assert store.find_session(name).id == "s3"
        assert store.session("s2").parent_session_id == SESSION
        assert store.session("s3").parent_session_id == "s2"
        assert [record.id for record in store.sessions()] == ["s3"]
        store.set_title(SESSION, "pears")
        assert store.session("s3").title == "pears"

    def test_late_appends_to_an_older_id_arrive(self, store: SessionStore) -> None:
        rows = begin(store, 2)
        cover(store, rows, child_session_id="child")
        [late] = store.append(SESSION, talk(1, first=3))
        assert store.view("child").messages[-1] == late
        store.index_pending()
        assert [hit.session_id for hit in store.search("message 1")] == ["child"]

    def test_a_pass_of_an_older_id_rotates_from_the_newest_session(
        self, store: SessionStore
    ) -> None:
        rows = begin(store, 4)
        _pass, view = cover(store, rows[:2], child_session_id="s2")
        run_pass(
            store,
            SESSION,
            cover=(view.messages[0]["_row_id"], rows[2]["_row_id"]),
            new_row=summary(),
            child_session_id="s3",
        )
        assert store.session("s3").parent_session_id == "s2"
        assert store.find_session(SESSION).id == "s3"
        assert list(store.check().problems) == []

    def test_a_rotation_is_undone_without_going_back_to_the_older_session(
        self, store: SessionStore
    ) -> None:
        rows = begin(store, 4)
        pass_id, _view = cover(store, rows[:2], child_session_id="child")
        [late] = store.append(SESSION, talk(1, first=5))
        assert store.undo_pass("child", pass_id).view.messages == [*rows, late]
        assert store.find_session(SESSION).id == "child"
        assert list(store.check().problems) == []

    def test_an_id_that_is_taken_leaves_no_trace(self, store: SessionStore) -> None:
        rows = begin(store, 2)
        begin(store, 1, "other")
        before = store.view(SESSION)
        with pytest.raises(UsageError, match="a session has the id 'other' already"):
            cover(store, rows, child_session_id="other")
        assert store.view(SESSION) == before
        assert store.session(SESSION).ended_at is None

    def test_deleting_by_an_older_id_deletes_the_conversation(self, store: SessionStore) -> None:
        rows = begin(store, 2)
        cover(store, rows, child_session_id="child")
        store.delete_session(SESSION)
        assert dataclasses.astuple(store.check()) == ([], 0, 0, 0)
        assert store.sessions() == []

    def test_the_lease_is_the_conversations(self, store: SessionStore) -> None:
        rows = begin(store, 2)
        cover(store, rows, child_session_id="child")
        take_lease(store, SESSION)
        assert store.acquire_lease("child") is None
