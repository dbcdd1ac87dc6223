"""Every operation that changes a view, in random order, against an oracle that moves no pointer."""

from __future__ import annotations

import io
import os
import shutil
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from agent.base.errors import LeaseLost, UndoRefused, UnknownPass, UnknownSession, UsageError
from agent.base.messages import Message
from agent.sessions.records import (
    MaskedPlace,
    NewRow,
    PassCommit,
    PassKind,
    PassStatus,
    UndoResult,
    View,
)
from hermes_state import SessionDB
from tests.sessions.files import exported
from tests.sessions.replay import Accepted, Compacted, Rewound, Story
from tests.sessions.steps import open_pass, run_pass, take_lease

texts = st.text(st.characters(exclude_characters="\x00", exclude_categories=["Cs"]), max_size=8)
batches = st.lists(
    st.fixed_dictionaries(
        {"role": st.sampled_from(["user", "assistant"]), "content": texts | st.none()}
    ),
    min_size=1,
    max_size=4,
)
choices = st.lists(st.sampled_from(["keep", "cover", "mask"]), min_size=20, max_size=20)
kinds = st.sampled_from([PassKind.SUMMARY, PassKind.MECHANICAL, PassKind.MICRO])
MEMORY = "/dev/shm" if Path("/dev/shm").is_dir() else None
"""Where a store's many syncs take no time; nothing is killed here."""
_ENDED = (PassStatus.COMMITTED, PassStatus.UNDONE)


class OperationsMachine(RuleBasedStateMachine):
    """`stories` maps each conversation's newest session to what happened to it."""

    @initialize(batch=batches)
    def open(self, batch: list[Message]) -> None:
        self.folder = Path(tempfile.mkdtemp(dir=MEMORY))
        self.store = SessionDB(self.folder / "state.db")
        self.store.create_session("s0", "cli", title="first")
        self.stories = {"s0": Story()}
        self.older_names: dict[str, str] = {}
        self.ledgers: dict[str, list[tuple[str, str | None]]] = {"s0": []}
        self.count = 0
        self.store.append("s0", batch)
        self.stories["s0"].events.append(Accepted(tuple(self.store.view("s0").messages)))

    def teardown(self) -> None:
        self.store.close()
        shutil.rmtree(self.folder)

    def _next_id(self) -> str:
        self.count += 1
        return f"s{self.count}"

    def _pick(self, data: Any) -> str:
        session: str = data.draw(st.sampled_from([*self.stories]), "session")
        return session

    # -- steps ------------------------------------------------------------------------------

    @rule(data=st.data(), batch=batches)
    def append(self, data: Any, batch: list[Message]) -> None:
        session = self._pick(data)
        names = [session, *(old for old, tip in self.older_names.items() if tip == session)]
        stored = self.store.append(data.draw(st.sampled_from(names), "name"), batch)
        self.stories[session].events.append(Accepted(tuple(stored)))

    @rule(data=st.data(), choices=choices, kind=kinds, rotates=st.booleans())
    def compact(self, data: Any, choices: list[str], kind: PassKind, rotates: bool) -> None:
        session = self._pick(data)
        story = self.stories[session]
        shown = dict(zip((row["_row_id"] for row in story.view()), choices, strict=False))
        masked = {row["_row_id"]: row.get("_masked_by") for row in story.view()}
        cover = tuple(row_id for row_id, choice in shown.items() if choice == "cover")
        masks = tuple(
            MaskedPlace(row_id, {"content": f"[{row_id}]"}, 1)
            for row_id, choice in shown.items()
            if choice == "mask" and masked[row_id] is None
        )
        if not cover and not masks:
            return
        child = self._next_id() if rotates and cover and kind is not PassKind.MICRO else ""
        role = "assistant" if kind is PassKind.MICRO else "user"
        pass_id, _view = run_pass(
            self.store,
            session,
            kind=kind if cover else PassKind.MASK,
            cover=cover,
            mask=masks,
            seen_masks={row_id: mask for row_id in cover if (mask := masked[row_id])},
            new_row=NewRow({"role": role, "content": "made"}, kind) if cover else None,
            child_session_id=child,
        )
        self._note_pass(session, pass_id, frozenset(cover), masks)
        if child:
            self._rename(session, child)

    @rule(data=st.data())
    def undo_the_newest(self, data: Any) -> None:
        session = self._pick(data)
        newest = self.stories[session].newest()
        if newest is None:
            with pytest.raises(UndoRefused, match="no compaction in force"):
                self.store.undo_pass(session)
            return
        self._undo(session, newest.pass_id, self.store.undo_pass(session))

    @rule(data=st.data())
    def undo_any(self, data: Any) -> None:
        session = self._pick(data)
        story = self.stories[session]
        done = [event for event in story.events if not isinstance(event, Accepted)]
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

    @rule(data=st.data())
    def rewind(self, data: Any) -> None:
        session = self._pick(data)
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
        whole = data.draw(st.booleans(), "whole")
        last = None if whole else data.draw(st.integers(1, story.watermark), "last")
        fork = story.fork(story.watermark if last is None else last)
        name = self._next_id()
        record = self.store.fork_session(session, name, up_to_seq=last)
        assert (record.id, record.parent_session_id) == (name, session)
        self.stories[name] = fork
        self.ledgers[name] = [
            (event.pass_id, None) for event in fork.told() if not isinstance(event, Accepted)
        ]

    @rule(data=st.data())
    def a_running_pass_loses_its_lease_to_an_undo(self, data: Any) -> None:
        session = self._pick(data)
        story = self.stories[session]
        newest, view = story.newest(), story.view()
        if newest is None or not view:
            return
        lease = take_lease(self.store, session)
        pass_id = open_pass(self.store, lease)
        commit = PassCommit(
            pass_id,
            lease,
            PassKind.SUMMARY,
            "summary",
            story.watermark,
            cover=(view[0]["_row_id"],),
            new_row=NewRow({"role": "user", "content": "late"}, PassKind.SUMMARY),
        )
        self._undo(session, newest.pass_id, self.store.undo_pass(session))
        with pytest.raises(LeaseLost):
            self.store.commit_pass(commit, lambda: True)
        assert self.store.pass_record(pass_id).status is PassStatus.SUPERSEDED

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

    def _ids(self, session: str) -> tuple[list[int], list[str]]:
        rows = [place.message["_row_id"] for place in self.store.history(session)]
        return rows, [record.id for record in self.store.passes(session)]

    @rule()
    def reopen(self) -> None:
        self.store.close()
        self.store = SessionDB(self.folder / "state.db")

    @rule()
    def index(self) -> None:
        self.store.index_pending()

    # -- the model --------------------------------------------------------------------------

    def _note_pass(
        self,
        session: str,
        pass_id: str,
        cover: frozenset[int],
        masks: tuple[MaskedPlace, ...],
    ) -> None:
        rows = {row["_row_id"]: row for row in self.stories[session].view()}
        masked = {
            place.row_id: {
                **rows[place.row_id],
                **place.stub,
                "_stub": place.stub,
                "_tokens": place.tokens,
                "_masked_by": pass_id,
            }
            for place in masks
        }
        _covered, made = self.store.pass_rows(pass_id, session_id=session)
        self.stories[session].events.append(
            Compacted(pass_id, cover, masked, made[0] if made else None)
        )
        self.ledgers[session].append((pass_id, None))

    def _rename(self, session: str, child: str) -> None:
        self.stories[child] = self.stories.pop(session)
        self.ledgers[child] = self.ledgers.pop(session)
        renamed = {old: child for old, tip in self.older_names.items() if tip == session}
        self.older_names.update(renamed, **{session: child})
        parent = self.store.session(session)
        assert (parent.end_reason, parent.title) == ("compression", None)
        assert self.store.session(child).parent_session_id == session

    def _undo(self, session: str, pass_id: str, result: UndoResult) -> None:
        story = self.stories[session]
        undone = story.with_followers([pass_id]) or [pass_id]
        assert [record.target_pass for record in result.ledger] == undone
        assert {record.kind for record in result.ledger} == {PassKind.UNDO}
        story.undone.update(undone)
        self._check_change(session, result)

    def _check_change(self, session: str, result: UndoResult) -> None:
        self.ledgers[session] += [(record.id, record.target_pass) for record in result.ledger]
        _check_view(result.view, self.stories[session])
        for record, following in zip(result.ledger, result.ledger[1:], strict=False):
            assert record.tokens_after == following.tokens_before
            assert record.messages_after == following.messages_before
        newest = result.ledger[-1]
        assert newest.generation == result.view.generation
        assert newest.tokens_after == result.view.tokens
        assert newest.messages_after == len(result.view.messages)

    # -- the laws ---------------------------------------------------------------------------

    @invariant()
    def every_view_is_what_the_story_says(self) -> None:
        for session, story in self.stories.items():
            _check_view(self.store.view(session), story)

    @invariant()
    def every_accepted_row_is_byte_exact_and_where_it_should_be(self) -> None:
        for session, story in self.stories.items():
            assert self.store.accepted_rows(session, 1, 10_000) == story.readable()
            states = {
                place.message["_row_id"]: place.state
                for place in self.store.history(session)
                if place.made_by is None
            }
            assert states == story.states()

    @invariant()
    def every_pass_is_on_the_ledger_with_its_status(self) -> None:
        for session, story in self.stories.items():
            ledger = [p for p in self.store.passes(session) if p.status in _ENDED]
            assert [(p.id, p.target_pass) for p in ledger] == self.ledgers[session]
            assert {p.id for p in ledger if p.status is PassStatus.UNDONE} == story.undone
            in_force = self.store.session(session).pass_count
            assert in_force == len(story.compactions())
            for event in story.compactions():
                covered, made = self.store.pass_rows(event.pass_id, session_id=session)
                assert {row["_row_id"] for row in covered} == event.covered
                assert made == ([event.made] if event.made else [])

    @invariant()
    def every_name_of_a_conversation_leads_to_it(self) -> None:
        for old, tip in self.older_names.items():
            assert self.store.find_session(old).id == tip
            assert self.store.view(old) == self.store.view(tip)
        assert {record.id for record in self.store.sessions()} == {*self.stories}

    @invariant()
    def search_finds_each_readable_row_once_in_its_conversation(self) -> None:
        words = {"made", "s"}
        for session, story in self.stories.items():
            for row in story.readable()[-1:]:
                text = row.get("content") or ""
                if len(text.split()) == 1 and len(text) > 2 and text not in words:
                    hits = self.store.search(f'"{text.strip()}"', session_id=session)
                    assert [h.message["_row_id"] for h in hits].count(row["_row_id"]) == 1

    @invariant()
    def the_store_finds_itself_sound(self) -> None:
        assert list(self.store.check().problems) == []


def _check_view(view: View, story: Story) -> None:
    expected = story.view()
    assert view.messages == expected
    assert view.tokens == sum(row["_tokens"] for row in expected)


TestOperations = OperationsMachine.TestCase
TestOperations.settings = settings(
    max_examples=500 if os.environ.get("HERMES_SOAK") == "1" else 50, stateful_step_count=14
)
