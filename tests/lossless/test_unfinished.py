"""Calls that failed or that nobody answered stay in view after passes until they are made good."""

from __future__ import annotations

from pathlib import Path

from agent.base.messages import Message, text_of
from agent.compaction.anchors import HEADING
from agent.sessions.records import PassStatus
from agent.testing.builders import assistant, call, result, user
from run_agent import AIAgent
from tests.lossless.harness import open_agent

TALK = "The importer reads a line, and then it waits for the next one in the same loop. "


def called(command: str, content: str | None) -> list[Message]:
    made = call("shell", {"command": command})
    return [assistant(None, made), *([result(made, content)] if content is not None else [])]


def unfinished(agent: AIAgent, *rows: Message) -> list[str]:
    """Let rows be accepted, talk until they are covered, and return what the pass tells of."""
    talk = [row for _ in range(8) for row in (user("Go on."), assistant(TALK * 25))]
    agent.store.append("s", [*rows, *talk])
    record = agent.compress()
    assert record.status is PassStatus.COMMITTED, record
    rows_now = agent.store.view("s").messages
    [summary] = [row for row in rows_now if row.get("_kind") == "summary"]
    said = text_of(summary["content"]).partition(HEADING)[2]
    parts = [part for line in said.splitlines() for part in line.partition("] ")[2].split("; ")]
    return [part for part in parts if part.startswith("unfinished: ")]


def test_a_failed_call_is_told_of_until_the_same_call_succeeds(tmp_path: Path) -> None:
    agent = open_agent(tmp_path / "state.db")
    asked = user("Run the tests and the linter.")
    failed = called("make test", "3 failed\n[exit code 2]")
    told = "unfinished: shell make test ([exit code 2])"
    lost = "unfinished: shell make lint (no result)"
    stopped = "unfinished: shell make docs (interrupted, outcome unknown)"
    assert unfinished(
        agent,
        asked,
        *failed,
        *called("make lint", None),
        user("Go on."),
        *called("make docs", "interrupted, outcome unknown"),
        *called("make all", "fine\n[exit code 0]"),
    ) == [told, lost, stopped]
    assert unfinished(agent, *called("make lint", "clean\n[exit code 0]")) == [told, stopped]
    again = called("make docs", "no rule\n[exit code 1]")
    assert unfinished(agent, *again) == [told, "unfinished: shell make docs ([exit code 1])"]
    fixed = [*called("make test", "ok\n[exit code 0]"), *called("make docs", "[exit code 0]")]
    assert unfinished(agent, *fixed) == []
    agent.store.close()
