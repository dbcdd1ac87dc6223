"""Edits, rewinds, other keys, other prompts: each history has the conversation that is its own."""

from __future__ import annotations

import threading

import pytest

from agent.base.messages import Message
from agent.base.settings import CompressionSettings, ProxySettings, Settings
from agent.server.proxy_chain import Sent, read_request
from agent.server.proxy_conversations import Conversations
from agent.server.proxy_exchange import Exchange
from agent.server.proxy_host import Prepared
from agent.sessions.prefixes import Expected
from agent.testing.stub_reply import RecordedRequest, Reply
from agent.testing.stub_server import StubModelServer
from agent.testing.summaries import GOOD_SUMMARY
from hermes_state import SessionDB
from tests.proxy.conftest import MakeCaller
from tests.proxy.serving import MODEL, Caller, serving
from tests.proxy.talk import bodies_of_client, is_summary, text_in
from tests.proxy.test_pressure import LINE, full, history, refusals


def echo(request: RecordedRequest) -> Reply:
    """Answer with what was asked last, so that branches are told apart."""
    if is_summary(request):
        return Reply(text=GOOD_SUMMARY)
    return Reply(text=f"to {str(request.messages[-1]['content'])[-30:]}")


def conversations(store: SessionDB) -> set[tuple[str, ...]]:
    return {
        tuple(str(row["content"]) for row in store.view(session.id).messages)
        for session in store.sessions()
    }


def test_an_edited_message_begins_a_branch_and_both_go_on(
    caller: MakeCaller, stub: StubModelServer, store: SessionDB
) -> None:
    stub.script(echo)
    one, two = caller(), caller()
    one.say("a")
    one.say("b")
    two.messages = [*one.messages[:2]]
    two.say("B")
    one.say("c")
    two.say("C")
    begin = ("a", "to a")
    assert conversations(store) == {
        (*begin, "b", "to b", "c", "to c"),
        (*begin, "B", "to B", "C", "to C"),
    }
    assert stub.requests[-1].messages == two.messages[:-1]


def test_callers_with_equal_openings_and_other_keys_share_nothing(
    caller: MakeCaller, stub: StubModelServer, store: SessionDB
) -> None:
    stub.script(echo)
    one, two = caller(key="one"), caller(key="two")
    for each in (one, two):
        each.say("a")
    two.say("only mine")
    one.say("b")
    assert conversations(store) == {
        ("a", "to a", "b", "to b"),
        ("a", "to a", "only mine", "to only mine"),
    }
    assert [session.parent_session_id for session in store.sessions()] == [None, None]


@pytest.mark.parametrize("same", [True, False])
def test_a_version_of_the_model_goes_on_and_another_model_does_not(
    caller: MakeCaller, stub: StubModelServer, store: SessionDB, same: bool
) -> None:
    stub.script(echo)
    one = caller(model="maker/gpt-4o")
    one.say("a")
    one.say("b", model="gpt-4o-2024-08-06" if same else "gpt-4o-mini")
    assert len(store.sessions()) == (1 if same else 2)


def test_a_changed_system_prompt_goes_on(
    caller: MakeCaller, stub: StubModelServer, store: SessionDB
) -> None:
    stub.script(echo)
    one = caller()
    for prompt in ("at noon", "at one"):
        one.messages = [
            {"role": "system", "content": prompt},
            *(message for message in one.messages if message["role"] != "system"),
        ]
        one.say(prompt)
    [session] = store.sessions()
    assert (session.message_count, session.system_prompt) == (4, "at one")
    assert stub.requests[1].messages[0]["content"] == "at one"


def test_an_edit_before_a_pass_forwards_nothing_of_what_it_condensed(
    caller: MakeCaller, stub: StubModelServer, store: SessionDB
) -> None:
    stub.script(echo)
    one = caller()
    full(one)
    one.go_on()
    edited = history(3)
    edited[-2] = {"role": "user", "content": "another way"}
    one.messages = [*edited[:-1]]
    one.go_on()
    last = bodies_of_client(stub.requests)[-1]
    assert last["messages"] == one.messages[:-1]
    assert "Summary" not in text_in(last)
    assert len(store.sessions()) == 2


def test_a_rewind_behind_a_pass_keeps_what_it_condensed(
    caller: MakeCaller, stub: StubModelServer, store: SessionDB
) -> None:
    stub.script(echo)
    one = caller()
    full(one)
    one.go_on()
    one.messages[-2:] = [{"role": "user", "content": "asked otherwise"}]
    one.go_on()
    last = bodies_of_client(stub.requests)[-1]
    assert text_in(last).endswith("asked otherwise")
    assert "[Summary of the earlier conversation" in text_in(last)
    assert (len(store.sessions()), refusals(stub)) == (2, [])


def test_a_conversation_that_changes_its_session_at_a_pass_goes_on(
    store: SessionDB, stub: StubModelServer
) -> None:
    stub.script(echo)
    settings = Settings(
        proxy=ProxySettings(context_length=8_192),
        compression=CompressionSettings(in_place=False, background=False),
    )
    with serving(store, stub.base_url, settings) as url, Caller(url) as one:
        full(one)
        one.go_on()
        rest: list[Message] = history(20)
        for message in rest[::2]:
            one.say(str(message["content"]))
    [session] = store.sessions()
    assert (session.message_count, session.parent_session_id is not None) == (
        len(one.messages),
        True,
    )
    assert refusals(stub) == []


def test_a_refused_request_whose_conversation_another_took_on_is_compacted_in_its_own(
    stub: StubModelServer, store: SessionDB, monkeypatch: pytest.MonkeyPatch
) -> None:
    stub.script(lambda request: Reply(text=GOOD_SUMMARY if is_summary(request) else "noted"))
    wide = Settings(proxy=ProxySettings(context_length=16_000))
    expect = Conversations.expect
    others: list[Sent] = []

    def expect_late(self: Conversations, sent: Sent) -> Expected | None:
        expected = expect(self, sent)
        if others:
            self.accept(others.pop())
        return expected

    follow, followed = Exchange._follow, threading.Event()

    def follow_and_tell(self: Exchange, sent: Sent, prepared: Prepared) -> None:
        follow(self, sent, prepared)
        followed.set()

    monkeypatch.setattr(Conversations, "expect", expect_late)
    monkeypatch.setattr(Exchange, "_follow", follow_and_tell)
    with serving(store, stub.base_url, wide) as url, Caller(url) as one:
        one.messages = history(25)
        one.say("first")
        assert followed.wait(10.0)  # after the refusal it would find a smaller window
        other = [*one.messages, {"role": "user", "content": "question of another"}]
        others.append(read_request({"model": MODEL, "messages": other}, "key-of-one"))
        one.say("question of one " + LINE * 200)
    passes = {
        store.view(session.id).messages[-1]["content"]: len(store.passes(session.id))
        for session in store.sessions()
    }
    assert passes == {"noted": 1, "question of another": 0}
    said = "".join(text_in(body) for body in bodies_of_client(stub.requests))
    assert "question of another" not in said
