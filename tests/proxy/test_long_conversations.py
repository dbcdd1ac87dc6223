"""Conversations far longer than the window: no refusal, and nothing that was said is lost."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pytest

from agent.base.messages import Message
from agent.base.settings import CompressionSettings, ProxySettings, Settings
from agent.testing.stub_server import StubModelServer
from agent.tools.recall import recall_text
from agent.turn.reader import StoredRows
from hermes_state import SessionDB
from tests.proxy.serving import Caller, serving
from tests.proxy.talk import OtherSide, bodies_of_client, dense, text_in, told

pytestmark = pytest.mark.timeout(90)  # seconds alone, more on a busy machine

SYSTEM: Message = {"role": "system", "content": "You keep the seals."}


def play(caller: Caller, rows: list[Message]) -> None:
    """Let a client live through a transcript: its own messages are sent, the others come."""
    for row in rows:
        if row["role"] == "assistant":
            answer = caller.go_on()
            assert (answer.get("tool_calls") or []) == (row.get("tool_calls") or [])
        else:
            caller.messages.append(row)


def require_facts(store: SessionDB, session_id: str, body: dict, facts: list[str]) -> None:
    """Check that each fact is in a body or found by recall."""
    shown = text_in(body)
    for fact in facts:
        reader = StoredRows(store, session_id)
        assert fact in shown or fact in recall_text(reader, query=fact.split()[-1])


@pytest.mark.parametrize(
    ("background", "talk"),
    [(True, dense(25, calls=9)), (False, told(7, 100))],
    ids=["300 messages, prepared", "100 large ones, waited for"],
)
def test_messages_of_tools_pass_a_window_of_8k(
    store: SessionDB, stub: StubModelServer, background: bool, talk: tuple[list[Message], list[str]]
) -> None:
    rows, facts = talk
    other = OtherSide(rows)
    stub.script(other)
    settings = Settings(
        proxy=ProxySettings(context_length=8_192),
        compression=CompressionSettings(background=background),
    )
    with serving(store, stub.base_url, settings) as url, Caller(url) as caller:
        caller.messages = [SYSTEM]
        play(caller, rows)
    assert [request.refusal for request in stub.requests if request.refusal] == []
    [session] = store.sessions()
    assert session.message_count == len(rows)
    assert (session.source, session.origin["platform"]) == ("proxy", "proxy")
    assert session.pass_count > len(rows) // 60
    assert other.summaries > 0
    stored = store.accepted_rows(session.id, 1, len(rows))
    assert [row["content"] for row in stored if row["role"] != "assistant"] == [
        row["content"] for row in rows if row["role"] != "assistant"
    ]
    last = bodies_of_client(stub.requests)[-1]
    assert last["messages"][0] == SYSTEM
    require_facts(store, session.id, last, facts)


def test_a_restart_in_the_middle_changes_nothing(stub: StubModelServer, tmp_path: Path) -> None:
    rows, facts = told(11, 100)
    stub.script(OtherSide(rows))
    half = next(i for i in range(50, 100) if rows[i]["role"] == "user")
    messages: list[Message] = []
    for part in (rows[:half], rows[half:]):
        with (
            closing(SessionDB(tmp_path / "state.db")) as store,
            serving(store, stub.base_url) as url,
            Caller(url) as caller,
        ):
            caller.messages = messages
            play(caller, part)
            [session] = store.sessions()
            assert store.check().problems == []
            last = bodies_of_client(stub.requests)[-1]
            told_so_far = [fact for fact in facts if any(fact in str(m) for m in messages)]
            require_facts(store, session.id, last, told_so_far)
    assert (session.message_count, session.pass_count > 1) == (len(rows), True)
    assert [request.refusal for request in stub.requests if request.refusal] == []
