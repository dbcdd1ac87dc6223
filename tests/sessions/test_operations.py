"""Every operation that changes a view, in random order, against an oracle that moves no pointer."""

from __future__ import annotations

import io
import os
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import precondition, rule

from agent.base.errors import LeaseLost, UndoRefused, UnknownPass, UnknownSession, UsageError
from agent.base.messages import Message
from agent.sessions.records import PassClosing, PassKind, PassStatus
from hermes_state import SessionDB
from tests.sessions.files import exported
from tests.sessions.modelled import ModelledStore, batches
from tests.sessions.replay import Accepted, Rewound
from tests.sessions.steps import draft, open_pass, summary, take_lease

choices = st.lists(st.sampled_from(["keep", "cover", "mask"]), min_size=20, max_size=20)
kinds = st.sampled_from([PassKind.SUMMARY, PassKind.MECHANICAL, PassKind.MICRO])


class OperationsMachine(ModelledStore):
    """The steps; `modelled.py` has what they are compared with."""

    # -- steps ------------------------------------------------------------------------------

    @rule(data=st.data(), batch=batches)
    def append(self, data: Any, batch: list[Message]) -> None:
        session = self._pick(data)
        names = [session, *(old for old, tip in self.older_names.items() if tip == session)]
        stored = self.store.append(data.draw(st.sampled_from(names), "name"), batch)
        self.stories[session].events.append(Accepted(tuple(stored)))

    @rule(data=st.data())
    def look(self, data: Any) -> None:
        """A view that was known is read again; the next pass may know it too."""
        self._look(self._pick(data))

    @rule(data=st.data(), choices=choices, kind=kinds, late=st.just([]) | batches)
    def compact(self, data: Any, choices: list[str], kind: PassKind, late: list[Message]) -> None:
        """A pass, planned before the `late` rows are accepted, in place or rotating."""
        session = self._pick(data)
        rows = [row["_row_id"] for row in self.stories[session].view()]
        cover, mask = (
            [row_id for row_id, choice in zip(rows, choices, strict=False) if choice == wanted]
            for wanted in ("cover", "mask")
        )
        may_rotate = bool(cover) and kind is not PassKind.MICRO
        rotates = may_rotate and data.draw(st.booleans(), "rotates")
        knows = data.draw(st.booleans(), "knows")
        self._compact(session, kind, cover, mask, late=late, rotates=rotates, knows=knows)

    @rule(data=st.data())
    def undo_the_newest(self, data: Any) -> None:
        self._undo_newest(self._pick(data))

    @rule(data=st.data(), times=st.integers(1, 3))
    def undo_any(self, data: Any, times: int) -> None:
        session = self._pick(data)
        for _ in range(times):
            self._undo_one_of(session, data)

    def _undo_one_of(self, session: str, data: Any, newest: int = 0) -> None:
        """Undo any pass, or one of the `newest` ones."""
        story = self.stories[session]
        done = [event for event in story.events if not isinstance(event, Accepted)][-newest:]
        if not done:
            with pytest.raises(UnknownPass):
                self.store.undo_pass(session, "none")
            return
        event = data.draw(st.sampled_from(done), "pass")
        refused = event.pass_id in story.undone or (
            isinstance(event, Rewound) and event.watermark < story.watermark
        )
        if refused:
            with pytest.raises(UndoRefused, match="already|accepted since"):
                self.store.undo_pass(session, event.pass_id)
            return
        self._undo(session, event.pass_id, self.store.undo_pass(session, event.pass_id))

    @rule(data=st.data(), times=st.integers(1, 2))
    def rewind(self, data: Any, times: int) -> None:
        session = self._pick(data)
        for _ in range(times):
            self._rewind_to_one_of(session, data)
        if data.draw(st.booleans(), "undoes"):
            self._undo_one_of(session, data, newest=times)

    def _rewind_to_one_of(self, session: str, data: Any) -> None:
        story = self.stories[session]
        seq = data.draw(st.integers(1, story.watermark), "seq")
        undone = story.reaching_across(seq)
        if story.is_empty_from(seq):
            with pytest.raises(UsageError, match="nothing to take back"):
                self.store.rewind(session, seq)
            return
        result = self.store.rewind(session, seq)
        *undos, own = result.ledger
        assert [record.target_pass for record in undos] == undone
        assert own.kind is PassKind.REWIND
        story.undone.update(undone)
        story.events.append(Rewound(own.id, seq, story.watermark))
        self._check_change(session, result)

    @precondition(lambda self: len(self.stories) < 4)
    @rule(data=st.data())
    def fork(self, data: Any) -> None:
        session = self._pick(data)
        story = self.stories[session]
        seqs = range(1, story.watermark + 1)
        last = data.draw(st.sampled_from([*seqs, None]), "last")
        fork = story.fork(story.watermark if last is None else last)
        name = self._next_id()
        record = self.store.fork_session(session, name, up_to_seq=last)
        assert (record.id, record.parent_session_id) == (name, session)
        self.stories[name] = fork
        self.ledgers[name] = [
            (event.pass_id, None) for event in fork.told() if not isinstance(event, Accepted)
        ]
        self._undo_newest(data.draw(st.sampled_from([session, name]), "undo in"))

    @rule(data=st.data())
    def a_running_pass_loses_its_lease_to_an_undo(self, data: Any) -> None:
        session = self._pick(data)
        story = self.stories[session]
        newest, view = story.newest(), story.view()
        if newest is None or not view:
            return
        lease = take_lease(self.store, session)
        pass_id = open_pass(self.store, lease)
        covered = (view[0]["_row_id"],)
        commit = draft(self.store, lease, pass_id, cover=covered, new_row=summary())
        self._undo(session, newest.pass_id, self.store.undo_pass(session))
        with pytest.raises(LeaseLost):
            self.store.commit_pass(commit, lambda: True)
        assert self.store.pass_record(pass_id).status is PassStatus.SUPERSEDED

    @rule(data=st.data())
    def a_pass_whose_lease_lapsed_and_was_taken_commits_nothing(self, data: Any) -> None:
        session = self._pick(data)
        view = self.stories[session].view()
        if not view:
            return
        lapsed = take_lease(self.store, session, ttl_s=0)
        pass_id = open_pass(self.store, lapsed)
        self.store.prepare_pass(pass_id, {})
        covered = (view[0]["_row_id"],)
        commit = draft(self.store, lapsed, pass_id, cover=covered, new_row=summary())
        newer = take_lease(self.store, session)
        with pytest.raises(LeaseLost):
            self.store.commit_pass(commit, lambda: True)
        self.store.close_pass(PassClosing(pass_id, PassStatus.SUPERSEDED, "attempt_superseded"))
        self.store.release_lease(newer)

    @precondition(lambda self: len(self.stories) > 1)
    @rule(data=st.data())
    def delete(self, data: Any) -> None:
        session = self._pick(data)
        self.store.delete_session(session)
        del self.stories[session], self.ledgers[session]
        gone = [session, *(old for old, tip in self.older_names.items() if tip == session)]
        for name in gone:
            self.older_names.pop(name, None)
            with pytest.raises(UnknownSession):
                self.store.view(name)

    @rule(data=st.data())
    def leave_and_come_back(self, data: Any) -> None:
        """A conversation goes out through a file, is deleted, and is taken in again."""
        session = self._pick(data)
        file = exported(self.store, session)
        rows, passes = self._ids(session)
        self.store.delete_session(session)
        assert self.store.import_session(io.BytesIO(file)).session.id == session
        new_rows, (*new_passes, own) = self._ids(session)
        named = dict(zip(passes, new_passes, strict=True))
        self.stories[session] = self.stories[session].moved(
            dict(zip(rows, new_rows, strict=True)), named
        )
        ledger = [
            (named[pass_id], named[target] if target else None)
            for pass_id, target in self.ledgers[session]
        ]
        self.ledgers[session] = [*ledger, (own, None)]

    @rule()
    def reopen(self) -> None:
        self.store.close()
        self.store = SessionDB(self.folder / "state.db")

    @rule()
    def index(self) -> None:
        self.store.index_pending()


TestOperations = pytest.mark.timeout(120)(OperationsMachine.TestCase)  # six seconds alone
TestOperations.settings = settings(
    max_examples=500 if os.environ.get("HERMES_SOAK") == "1" else 50, stateful_step_count=14
)
