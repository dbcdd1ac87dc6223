"""Stores whose act was stopped half way: what they show, and that it can be done to the end."""

from __future__ import annotations

import hashlib
import shutil
from dataclasses import dataclass
from pathlib import Path

import orjson

from agent.base.messages import wire_message
from agent.sessions.records import Guards, PassRecord, PassStatus
from agent.testing.stub_reply import Reply
from agent.testing.stub_server import StubModelServer
from hermes_state import SessionDB
from run_agent import AIAgent
from tests.field_reports.acts import ACTS, Act, open_agent
from tests.field_reports.harness import SUMMARISER

NOTHING = "nothing"
"""The digest of a session that is not there."""


def digest_of(store: SessionDB) -> str:
    """Return a hash of everything a person or a model can see of the session `s`."""
    if "s" not in [record.id for record in store.sessions()] and not _is_older_name(store):
        return NOTHING
    view = [(row["_seq"], row.get("_kind"), wire_message(row)) for row in store.view("s").messages]
    rows = [wire_message(row) for row in store.accepted_rows("s", 1, 1_000)]
    seen = [view, rows, store.head("s").generation, len(store.sessions())]
    return hashlib.sha256(orjson.dumps(seen)).hexdigest()


def _is_older_name(store: SessionDB) -> bool:
    """Return whether `s` was followed by another session of its conversation."""
    return any(record.parent_session_id == "s" for record in store.sessions())


def newest_status(store: SessionDB) -> str:
    """Return the status of the newest ledger row of `s`, or nothing."""
    if digest_of(store) == NOTHING:
        return ""
    ledger = store.passes("s")
    return str(ledger[-1].status) if ledger else ""


@dataclass(frozen=True)
class Prepared:
    """A closed store on which an act can be done, and what the act changes."""

    stub: StubModelServer
    act: Act
    path: Path
    before: str
    after: str
    summaries: int
    """Summary requests that the act makes when nothing disturbs it."""

    def bought(self) -> int:
        return len(self.stub.requests_for(SUMMARISER))

    def check_goes_on(self, agent: AIAgent) -> tuple[str, str]:
        """Check that the store of an agent is whole and, once the brake has ended, finish its act;
        return what it was at first and the status of its newest attempt then."""
        store = agent.store
        assert isinstance(store, SessionDB)
        found, status = digest_of(store), newest_status(store)
        assert found in (self.before, self.after)
        assert store.check().problems == []
        bought = self.bought()
        if found == self.before:
            if found != NOTHING:
                store.settle("s", Guards(clear_cooldown=True, health={}))
            self.act.run(agent)
            assert digest_of(store) == self.after
            assert self.bought() - bought == (self.summaries if status != "prepared" else 0)
        assert store.check().problems == []
        lease = store.acquire_lease("s")
        assert lease is not None
        store.release_lease(lease)
        assert agent.chat("go on") == "ok"
        refused = [request.refusal for request in self.stub.requests if request.refusal]
        assert refused == []
        return found, status

    def check_reopened(self, path: Path) -> tuple[str, str]:
        """Reopen a store and check as `check_goes_on` does."""
        store = SessionDB(db_path=path)
        agent = open_agent(self.act, self.stub.base_url, store)
        try:
            return self.check_goes_on(agent)
        finally:
            agent.close()
            store.close()


def prepare(stub: StubModelServer, name: str, folder: Path) -> Prepared:
    """Make the store that an act needs, and do the act on a copy to see what it changes."""
    act = ACTS[name]
    stub.script([], model=SUMMARISER, then=Reply(text=act.summary))
    path, copy = folder / "ready.db", folder / "undisturbed.db"
    store = SessionDB(db_path=path)
    agent = open_agent(act, stub.base_url, store)
    act.fill(agent)
    before = digest_of(store)
    agent.close()
    store.close()
    shutil.copy(path, copy)
    store = SessionDB(db_path=copy)
    agent = open_agent(act, stub.base_url, store)
    bought = len(stub.requests_for(SUMMARISER))
    act.run(agent)
    after = digest_of(store)
    summaries = len(stub.requests_for(SUMMARISER)) - bought
    agent.close()
    store.close()
    assert before != after
    return Prepared(stub, act, path, before, after, summaries)


def last_pass(path: Path) -> PassRecord:
    """Return the newest ledger row of `s` in a closed store."""
    store = SessionDB(db_path=path)
    record = [row for row in store.passes("s") if row.status is PassStatus.COMMITTED][-1]
    store.close()
    return record
