"""A store beside an oracle that moves no pointer, and the laws that hold for both after each step.

The steps are in `test_operations.py`, the oracle is in `replay.py`.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant

from agent.base.errors import UndoRefused
from agent.base.messages import Message
from agent.sessions.records import MaskedPlace, NewRow, PassKind, PassStatus, UndoResult, View
from hermes_state import SessionDB
from tests.sessions.replay import Accepted, Compacted, Story
from tests.sessions.steps import draft, open_pass, take_lease

texts = st.text(st.characters(exclude_characters="\x00", exclude_categories=["Cs"]), max_size=8)
batches = st.lists(
    st.fixed_dictionaries(
        {"role": st.sampled_from(["user", "assistant"]), "content": texts | st.none()}
    ),
    min_size=1,
    max_size=4,
)
MEMORY = "/dev/shm" if Path("/dev/shm").is_dir() else None
"""Where a store's many syncs take no time; nothing is killed here."""
_ENDED = (PassStatus.COMMITTED, PassStatus.UNDONE)


class ModelledStore(RuleBasedStateMachine):
    """`stories` maps each conversation's newest session to what happened to it."""

    @initialize(batch=batches, passes=st.lists(st.sampled_from(["cover", "mask"]), max_size=4))
    def open(self, batch: list[Message], passes: list[str]) -> None:
        """Begin with some rows and with passes over the oldest, each on the one before."""
        self.folder = Path(tempfile.mkdtemp(dir=MEMORY))
        self.store = SessionDB(self.folder / "state.db")
        self.store.create_session("s0", "cli", title="first")
        self.stories = {"s0": Story()}
        self.older_names: dict[str, str] = {}
        self.ledgers: dict[str, list[tuple[str, str | None]]] = {"s0": []}
        self.count = 0
        self.seen: dict[int, View] = {}
        self.known: dict[str, View] = {}
        self.store.append("s0", batch)
        self.stories["s0"].events.append(Accepted(tuple(self.store.view("s0").messages)))
        for what in passes:
            oldest = [row["_row_id"] for row in self.stories["s0"].view()[:2]]
            cover = oldest if what == "cover" else []
            self._compact("s0", PassKind.SUMMARY, cover, () if cover else oldest[:1])

    def teardown(self) -> None:
        self.store.close()
        shutil.rmtree(self.folder)

    def _next_id(self) -> str:
        self.count += 1
        return f"s{self.count}"

    def _pick(self, data: Any) -> str:
        session: str = data.draw(st.sampled_from([*self.stories]), "session")
        return session

    def _ids(self, session: str) -> tuple[list[int], list[str]]:
        rows = [place.message["_row_id"] for place in self.store.history(session)]
        return rows, [record.id for record in self.store.passes(session)]

    def _look(self, session: str) -> View:
        """Return the view as one reads it who looked before, whatever happened since."""
        view = self.store.view(session, self.known.get(session))
        assert view == self.store.view(session)
        self.known[session] = view
        return view

    # -- the model --------------------------------------------------------------------------

    def _compact(
        self,
        session: str,
        kind: PassKind,
        cover: Sequence[int],
        mask: Sequence[int],
        *,
        late: Sequence[Message] = (),
        rotates: bool = False,
        knows: bool = True,
    ) -> None:
        """Run a pass on store and story, over rows and those that are masked only if they are not
        yet; the `late` rows are accepted after it was planned, and one who `knows` the view it was
        planned on gets the new one without reading it."""
        story = self.stories[session]
        masked = {row["_row_id"]: row.get("_masked_by") for row in story.view()}
        masks = tuple(
            MaskedPlace(row_id, {"content": f"[{row_id}]"}, 1)
            for row_id in mask
            if masked[row_id] is None
        )
        if not cover and not masks:
            return
        child = self._next_id() if rotates else ""
        role = "assistant" if kind is PassKind.MICRO else "user"
        lease = take_lease(self.store, session)
        pass_id = open_pass(self.store, lease)
        commit = draft(
            self.store,
            lease,
            pass_id,
            kind=kind if cover else PassKind.MASK,
            cover=tuple(cover),
            mask=masks,
            seen_masks={row_id: by for row_id in cover if (by := masked[row_id])},
            new_row=NewRow({"role": role, "content": "made"}, kind) if cover else None,
            child_session_id=child,
            seen=self._look(session) if knows else None,
        )
        if late:
            story.events.append(Accepted(tuple(self.store.append(session, late))))
        published = self.store.commit_pass(commit, lambda: True)
        assert published == self.store.view(session)
        self.known[session] = published
        self.store.release_lease(lease)
        self._note_pass(session, pass_id, frozenset(cover), masks)
        if child:
            self._rename(session, child)

    def _undo_newest(self, session: str) -> None:
        newest = self.stories[session].newest()
        if newest is None:
            with pytest.raises(UndoRefused, match="no compaction in force"):
                self.store.undo_pass(session)
        else:
            self._undo(session, newest.pass_id, self.store.undo_pass(session))

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
    def each_change_but_an_append_is_another_generation(self) -> None:
        before, self.seen = self.seen, {}
        for session in self.stories:
            view = self.store.view(session)
            self.seen[view.conversation_id] = view
            old = before.get(view.conversation_id)
            if old is not None and view.messages[: len(old.messages)] != old.messages:
                assert view.generation > old.generation

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
