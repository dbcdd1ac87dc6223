"""A conversation goes on after rows that no request can hold."""

from __future__ import annotations

import pytest

from agent.base.errors import UsageError
from agent.base.messages import Content, Message
from agent.testing.builders import assistant, call, image, result, user
from agent.testing.stub_server import StubModelServer
from hermes_state import SessionDB
from run_agent import AIAgent

WINDOW = 4_096
LONG = "word " * 8_000
READS = [call("read_file", {"path": f"file{n}"}, call_id=f"r{n}") for n in range(100)]
WRITE = call("write_file", {"path": "a", "content": LONG}, call_id="w")

TOO_LARGE: dict[str, list[Message]] = {
    "an answer": [assistant(LONG)],
    "arguments of a call": [assistant(None, WRITE), result(WRITE, "ok")],
    "many results": [assistant(None, *READS), *(result(one, "word " * 60) for one in READS)],
    "images of a message": [user([{"type": "text", "text": "see"}, *[image()] * 5])],
}


@pytest.mark.parametrize("rows", TOO_LARGE.values(), ids=TOO_LARGE.keys())
def test_the_next_message_is_answered(
    rows: list[Message], stub: StubModelServer, store: SessionDB
) -> None:
    """Such rows come from a model with a larger window, or a server without an output limit."""
    stub.script([], window_tokens=WINDOW)
    agent = AIAgent(
        base_url=stub.base_url, model="stub-model", context_length=WINDOW, session_db=store
    )
    agent.submit("begin")
    store.append(agent.session_id, rows)
    turn = agent.run_conversation("and then?")
    agent.close()
    assert (turn.stop_reason, turn.final_text, len(turn.passes)) == ("stop", "ok", 1)
    assert [request.refusal for request in stub.requests if request.refusal] == []
    assert "and then?" in str(stub.requests[-1].messages[-1]["content"])


@pytest.mark.parametrize("content", [LONG, [{"type": "text", "text": LONG}]])
def test_a_message_longer_than_the_window_is_answered_itself(
    content: Content, stub: StubModelServer, store: SessionDB
) -> None:
    stub.script([], window_tokens=WINDOW)
    agent = AIAgent(
        base_url=stub.base_url, model="stub-model", context_length=WINDOW, session_db=store
    )
    turn = agent.run_conversation(content)
    agent.close()
    assert (turn.stop_reason, turn.final_text, turn.passes) == ("stop", "ok", [])
    assert [request.refusal for request in stub.requests] == [""]
    assert store.view(agent.session_id).messages[0]["content"] == content


def test_an_embedder_sends_images_and_they_reach_the_model(
    stub: StubModelServer, store: SessionDB
) -> None:
    parts = [{"type": "text", "text": "what is this?"}, image()]
    agent = AIAgent(base_url=stub.base_url, model="stub-model", session_db=store)
    assert agent.chat(parts) == "ok"
    agent.close()
    assert stub.requests[-1].messages[-1] == {"role": "user", "content": parts}
    with pytest.raises(UsageError, match="the message is empty"):
        agent.submit([])
