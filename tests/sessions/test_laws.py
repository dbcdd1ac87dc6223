"""Random appends, passes, stops and reopenings against a model that knows nothing of the store."""

from __future__ import annotations

import shutil
import tempfile
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from agent.base.errors import PassRefused, PassSuperseded
from agent.base.messages import Message
from agent.sessions.live import LiveView
from agent.sessions.records import (
    Lease,
    MaskedPlace,
    NewRow,
    PassClosing,
    PassCommit,
    PassKind,
    PassStatus,
    RowState,
)
from hermes_state import SessionDB
from tests.sessions.modelled import MEMORY
from tests.sessions.steps import SESSION, open_pass, take_lease

texts = st.text(st.characters(exclude_characters="\x00", exclude_categories=["Cs"]), max_size=12)
batches = st.lists(
    st.fixed_dictionaries(
        {"role": st.sampled_from(["user", "assistant"]), "content": texts | st.none()}
    ),
    min_size=1,
    max_size=4,
)
choices = st.lists(st.sampled_from(["keep", "keep", "cover", "mask"]), min_size=24, max_size=24)


class ConversationMachine(RuleBasedStateMachine):
    """`shown` is the view as it must be, `accepted` every row with its identity."""

    @initialize()
    def open(self) -> None:
        self.folder = Path(tempfile.mkdtemp(dir=MEMORY))
        self.store = SessionDB(self.folder / "state.db")
        self.store.create_session(SESSION, "cli")
        self.live = LiveView(self.store, SESSION)
        self.accepted: list[Message] = []
        self.shown: list[Message] = []
        self.covered_by: dict[int, str] = {}
        self.stale: tuple[PassCommit, Lease] | None = None

    def teardown(self) -> None:
        self.store.close()
        shutil.rmtree(self.folder)

    # -- steps ------------------------------------------------------------------------------

    @rule(batch=batches)
    def append(self, batch: list[Message]) -> None:
        stored = self.store.append(SESSION, batch)
        self._accept(stored)

    @rule(
        choices=choices,
        pending=st.just([]) | batches,
        made=texts,
        is_stopped=st.booleans(),
        knows=st.booleans(),
    )
    def run_pass(
        self, choices: list[str], pending: list[Message], made: str, is_stopped: bool, knows: bool
    ) -> None:
        """A pass of one who `knows` the view gets the new one without reading it."""
        lease = take_lease(self.store)
        pass_id = open_pass(self.store, lease)
        commit = self._commit(lease, pass_id, choices, pending, made)
        if knows:
            commit = replace(commit, seen=self.live.view())
        if is_stopped:
            with pytest.raises(PassRefused):
                self.store.commit_pass(commit, lambda: False)
            self.store.close_pass(PassClosing(pass_id, PassStatus.ABORTED, "explicit_interrupt"))
        else:
            self.live.adopt(self.store.commit_pass(commit, lambda: True))
            self._apply(commit)
        self.store.release_lease(lease)

    @precondition(lambda self: any(row.get("_kind") for row in self.shown))
    @rule(data=st.data())
    def a_pass_planned_on_an_older_view_leaves_no_trace(self, data: Any) -> None:
        gone = data.draw(st.sampled_from([*self.covered_by]))
        here = data.draw(st.sampled_from([row["_row_id"] for row in self.shown]))
        lease = take_lease(self.store)
        pass_id = open_pass(self.store, lease)
        commit = self._commit(lease, pass_id, [], [], "late")
        with pytest.raises(PassSuperseded):
            self.store.commit_pass(
                PassCommit(
                    pass_id,
                    lease,
                    PassKind.SUMMARY,
                    "summary",
                    commit.watermark,
                    cover=(gone, here),
                    new_row=NewRow({"role": "user", "content": "late"}, PassKind.SUMMARY),
                ),
                lambda: True,
            )
        self.store.close_pass(PassClosing(pass_id, PassStatus.SUPERSEDED, "attempt_superseded"))
        self.store.release_lease(lease)

    @rule()
    def reopen(self) -> None:
        self.store.close()
        self.store = SessionDB(self.folder / "state.db")
        self.live = LiveView(self.store, SESSION)

    @rule()
    def index(self) -> None:
        self.store.index_pending()

    # -- the model --------------------------------------------------------------------------

    def _accept(self, stored: list[Message]) -> None:
        self.accepted += stored
        self.shown += stored

    def _commit(
        self, lease: Lease, pass_id: str, choices: list[str], pending: list[Message], made: str
    ) -> PassCommit:
        live = dict(zip([row["_row_id"] for row in self.shown], choices, strict=False))
        masked = {row["_row_id"]: row.get("_masked_by") for row in self.shown}
        cover = tuple(row_id for row_id, choice in live.items() if choice == "cover")
        cover_pending = tuple(range(0, len(pending), 2))
        covers = bool(cover or cover_pending)
        return PassCommit(
            pass_id,
            lease,
            PassKind.SUMMARY if covers else PassKind.MASK,
            "any",
            watermark=self.store.head(SESSION).watermark,
            cover=cover,
            mask=tuple(
                MaskedPlace(row_id, {"content": f"[{row_id}]"}, 1)
                for row_id, choice in live.items()
                if choice == "mask" and masked[row_id] is None
            ),
            pending=tuple(pending),
            cover_pending=cover_pending,
            seen_masks={row_id: mask for row_id in cover if (mask := masked[row_id])},
            new_row=NewRow({"role": "user", "content": made}, PassKind.SUMMARY) if covers else None,
        )

    def _apply(self, commit: PassCommit) -> None:
        """Change the model as the commit must have changed the store."""
        known = len(self.accepted)
        stored = self.store.accepted_rows(SESSION, 1, 10_000)[known:]
        assert [_plain(row) for row in stored] == list(commit.pending)
        self._accept(stored)
        covered = {*commit.cover, *(stored[index]["_row_id"] for index in commit.cover_pending)}
        self.covered_by.update(dict.fromkeys(covered, commit.pass_id))
        stubs = {place.row_id: place for place in commit.mask}
        view: list[Message] = []
        for row in self.shown:
            place = stubs.get(row["_row_id"])
            if place is not None:
                row = {
                    **row,
                    **place.stub,
                    "_stub": place.stub,
                    "_tokens": place.tokens,
                    "_masked_by": commit.pass_id,
                }
            view.append(row)
        if covered:
            last = max(index for index, row in enumerate(view) if row["_row_id"] in covered)
            (made,) = self.store.pass_rows(commit.pass_id)[1]
            assert commit.new_row is not None
            assert _plain(made) == commit.new_row.message
            assert made["_seq"] == view[last]["_seq"]
            view.insert(last + 1, made)
        self.shown = [row for row in view if row["_row_id"] not in covered]

    # -- the laws ---------------------------------------------------------------------------

    @invariant()
    def the_view_is_the_one_that_was_published(self) -> None:
        view = self.store.view(SESSION)
        assert view.messages == self.shown
        assert view.tokens == sum(row["_tokens"] for row in self.shown)
        self.live.refresh()
        assert (self.live.messages, self.live.tokens, self.live.head) == (
            view.messages,
            view.tokens,
            view.head,
        )

    @invariant()
    def every_accepted_row_is_there_byte_exact(self) -> None:
        assert self.store.accepted_rows(SESSION, 1, 10_000) == self.accepted

    @invariant()
    def every_row_is_live_or_covered_by_exactly_one_pass_in_force(self) -> None:
        history = self.store.history(SESSION)
        seen = Counter(place.message["_row_id"] for place in history)
        assert set(seen.values()) <= {1}
        assert seen.keys() >= {row["_row_id"] for row in self.accepted}
        committed = {
            record.id
            for record in self.store.passes(SESSION)
            if record.status is PassStatus.COMMITTED
        }
        covered = {
            place.message["_row_id"]: place.compacted_by
            for place in history
            if place.state is RowState.COMPACTED
        }
        assert covered == self.covered_by
        assert set(covered.values()) <= committed

    @invariant()
    def the_store_finds_itself_sound(self) -> None:
        assert list(self.store.check().problems) == []


def _plain(row: Message) -> Message:
    return {key: value for key, value in row.items() if not key.startswith("_")}


TestConversations = ConversationMachine.TestCase
TestConversations.settings = settings(stateful_step_count=12)
