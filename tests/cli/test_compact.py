"""Manual passes and the ledger on the command line."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from agent.base.paths import default_database
from agent.sessions.records import Guards, PassStatus
from agent.testing.builders import conversation
from agent.testing.stub_reply import Reply
from agent.testing.stub_server import StubModelServer
from agent.testing.summaries import GOOD_SUMMARY
from hermes_state import SessionDB
from tests.cli.conftest import Hermes


@pytest.fixture
def filled(endpoint: StubModelServer, monkeypatch: pytest.MonkeyPatch) -> Iterator[SessionDB]:
    """A store with one conversation that has something to compact."""
    monkeypatch.setenv("HERMES_MODEL__CONTEXT_LENGTH", "6000")
    endpoint.script([], then=Reply(text=GOOD_SUMMARY), window_tokens=6000)
    store = SessionDB(db_path=default_database())
    store.create_session("s-1", "cli", title="Numbers")
    rows = conversation(30)
    for row in rows:
        row["content"] += ", which was said at some length and in some detail" * 4
    store.append("s-1", rows)
    yield store
    store.close()


def test_a_pass_is_committed_and_its_receipt_is_one_line(hermes: Hermes, filled: SessionDB) -> None:
    ran = hermes("compact", "Numbers")
    [record] = filled.passes("s-1")
    assert (ran.code, record.status) == (0, PassStatus.COMMITTED)
    assert len(ran.out.splitlines()) == 1
    assert ran.out.startswith(
        f"compacted (summary), {record.tokens_before:,} → {record.tokens_after:,} tokens, "
        f"60 → {record.messages_after} messages, coverage "
    )
    assert ran.err == "compacting the conversation (trigger: manual)\n"


def test_a_preview_is_committed_later_without_a_second_summary(
    hermes: Hermes, filled: SessionDB, endpoint: StubModelServer
) -> None:
    before = filled.view("s-1").messages
    preview = hermes("compact", "Numbers", "--preview")
    assert (preview.code, filled.view("s-1").messages) == (0, before)
    lines = preview.out.splitlines()
    assert lines[0].startswith("compaction prepared, not committed, summary, ")
    assert "  ## Done" in lines
    assert lines[-1] == "commit it with: hermes compact s-1"
    asked = len(endpoint.requests)
    assert hermes("compact", "s-1").code == 0
    assert len(endpoint.requests) == asked
    [record] = filled.passes("s-1")
    assert record.status is PassStatus.COMMITTED
    assert filled.view("s-1").messages != before


def test_a_pass_is_told_as_json(hermes: Hermes, filled: SessionDB) -> None:
    preview = json.loads(hermes("compact", "s-1", "--preview", "--json").out)
    done = json.loads(hermes("compact", "s-1", "--json").out)
    assert (preview["status"], done["status"]) == ("prepared", "committed")
    assert preview["id"] == done["id"]
    assert preview["tokens_after"] == done["tokens_after"]


def test_a_focus_reaches_the_summariser(
    hermes: Hermes, filled: SessionDB, endpoint: StubModelServer
) -> None:
    hermes("compact", "s-1", "--focus", "request seven")
    assert "request seven" in str(endpoint.requests[-1].body["messages"])


def test_a_summariser_that_fails_changes_nothing_and_ends_with_3(
    hermes: Hermes, filled: SessionDB, endpoint: StubModelServer
) -> None:
    endpoint.script([], then=Reply(status=401, error="bad key"))
    before = filled.view("s-1").messages
    ran = hermes("compact", "s-1")
    assert (ran.code, ran.out) == (3, "")
    assert ran.err.splitlines()[-1].startswith(
        "hermes: compaction failed, nothing changed (summary_auth_failure), "
    )
    assert filled.view("s-1").messages == before


def test_compaction_that_is_switched_off_is_wrong_use(
    hermes: Hermes, filled: SessionDB, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HERMES_COMPRESSION__ENABLED", "false")
    ran = hermes("compact", "s-1")
    assert (ran.code, ran.out, ran.err) == (
        2,
        "",
        "hermes: compaction held back (blocked:disabled)\n",
    )


def test_the_ledger_is_listed_and_shown(hermes: Hermes, filled: SessionDB) -> None:
    hermes("compact", "s-1")
    [record] = filled.passes("s-1")
    head, row = hermes("compactions", "list", "Numbers").out.splitlines()
    assert head.split()[:3] == ["pass", "status", "kind"]
    assert row.split()[:3] == [record.id[:8], "committed", "summary"]
    shown = hermes("compactions", "show", record.id[:8]).out
    assert shown.startswith(f"pass            {record.id}\n")
    assert f"covered         {record.receipt['covered']}\n" in shown
    assert shown.endswith(f"stands in for what is covered\n{GOOD_SUMMARY}\n")
    as_json = json.loads(hermes("compactions", "show", record.id, "--json").out)
    assert (as_json["id"], as_json["made"]) == (record.id, [GOOD_SUMMARY])
    [listed] = json.loads(hermes("compactions", "list", "s-1", "--json").out)
    assert listed["id"] == record.id


def test_a_summary_that_failed_is_shown_with_what_is_not_asked_for_again(
    hermes: Hermes, filled: SessionDB, endpoint: StubModelServer
) -> None:
    endpoint.script([], then=Reply(status=401, error="no such key"), window_tokens=6000)
    assert hermes("compact", "s-1").code != 0
    [record] = filled.passes("s-1")
    shown = hermes("compactions", "show", record.id).out
    [line] = [line for line in shown.splitlines() if line.startswith("not again")]
    assert line.startswith("not again       a summary of rows 1-")
    assert line.endswith(" unless rows, model or route change")
    memory = json.loads(hermes("compactions", "show", record.id, "--json").out)["not_again"]
    assert (memory["first_seq"], memory["failure_class"]) == (1, "summary_auth_failure")
    filled.settle("s-1", Guards(health={}))
    assert "not again" not in hermes("compactions", "show", record.id).out
