"""Undo, retry, branch and export inside a conversation, on the line screen."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest

from agent.base.settings import Settings
from agent.testing.builders import conversation
from agent.testing.scripted import ScriptedProvider
from agent.testing.summaries import GOOD_SUMMARY
from agent.tui.chat import Chat, find_pass
from agent.tui.lines import LineScreen, run_lines
from hermes_state import SessionDB
from tests.sessions.readings import read_all
from tests.sessions.steps import SESSION, contents
from tests.tui.conftest import OpenScripted

Say = Callable[..., list[str]]


@pytest.fixture
def say(store: SessionDB) -> Iterator[Say]:
    """Type lines into one conversation and return the lines that came of it, errors too."""
    store.create_session(SESSION, "cli", title="Garden plan")
    provider = ScriptedProvider(
        ["first answer", "second answer"], then=GOOD_SUMMARY, window_tokens=6000
    )
    paper = io.StringIO()
    screen = LineScreen(paper, paper, partial(find_pass, store))
    chat = Chat(OpenScripted(provider, Settings(), store), screen, store)
    chat.switch(SESSION)

    def type_in(*lines: str) -> list[str]:
        start = paper.tell()
        run_lines(chat, screen, io.StringIO("\n".join(lines) + "\n"))
        return paper.getvalue()[start:].splitlines()

    yield type_in
    chat.close()


def test_a_message_is_taken_back_with_its_answer(say: Say, store: SessionDB) -> None:
    assert say("one", "two", "/undo") == [
        "first answer",
        "second answer",
        "took back 'two' and what followed",
    ]
    assert contents(store.view(SESSION).messages) == ["one", "first answer"]


def test_a_message_is_sent_again(say: Say, store: SessionDB) -> None:
    assert say("one", "/retry") == ["first answer", "second answer"]
    assert contents(store.view(SESSION).messages) == ["one", "second answer"]


def test_without_a_message_there_is_nothing_to_take_back(say: Say) -> None:
    refused = f"hermes: session '{SESSION}' shows no message of the user to take back"
    assert say("/undo", "/retry") == [refused, refused]


def test_a_branch_goes_on_beside_the_conversation(say: Say, store: SessionDB) -> None:
    lines = say("one", "/branch Plan B", "two")
    branch = store.find_session("Plan B").id
    assert lines == [
        "first answer",
        f"now in {branch}, a fork; /resume {SESSION} goes back",
        "second answer",
    ]
    assert contents(store.view(SESSION).messages) == ["one", "first answer"]
    assert contents(store.view(branch).messages) == ["one", "first answer", "two", "second answer"]


def test_a_compaction_is_undone(say: Say, store: SessionDB) -> None:
    rows = conversation(30)
    for row in rows:
        row["content"] += ", which was said at some length and in some detail" * 4
    store.append(SESSION, rows)
    before = store.view(SESSION).messages
    lines = say("/compress", "/undo-compress")
    assert lines[-2].startswith("undid pass ")
    assert lines[-1].startswith("view: ")
    assert lines[-1].endswith("→ 60 messages")
    assert store.view(SESSION).messages == before
    assert say("/undo-compress") == [
        f"hermes: session '{SESSION}' has no compaction in force to undo"
    ]


def test_a_conversation_is_exported(
    say: Say, store: SessionDB, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    lines = say("one", "/export", "/export copy.jsonl", "/export copy.jsonl")
    assert lines[1].startswith(f"wrote {SESSION} to '{SESSION}.jsonl', ")
    assert lines[3] == "hermes: 'copy.jsonl' exists already; name another file"
    before = read_all(store, SESSION)
    with Path("copy.jsonl").open("rb") as file:
        copy = store.import_session(file).session
    assert read_all(store, copy.id) == before
