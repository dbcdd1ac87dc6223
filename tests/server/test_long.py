"""Conversations that outgrow the window go on over HTTP as everywhere."""

from __future__ import annotations

import pytest

from agent.base.settings import CompressionSettings
from agent.testing.builders import assistant, call, result, user
from agent.testing.stub_reply import RecordedRequest, Reply
from agent.testing.summaries import GOOD_SUMMARY
from tests.server.served import Json, Served

pytestmark = pytest.mark.timeout(90)  # seconds alone, more on a busy machine

LOOK = {"type": "function", "function": {"name": "look", "parameters": {"type": "object"}}}


def answer(request: RecordedRequest) -> Reply:
    """Summarise when asked to; call the tool for a question, then answer."""
    if "hand-over notes" in str(request.messages[0]["content"]):
        return Reply(text=GOOD_SUMMARY)
    if request.messages[-1]["role"] == "tool":
        return Reply(text="It says: " + "quite a lot " * 20)
    number = len(request.messages)
    return Reply(text=None, tool_calls=[call("look", {"page": number})])


def test_a_client_with_tools_of_its_own_never_meets_the_wall(hermes: Served) -> None:
    hermes.window_tokens = 8_192
    hermes.compression = CompressionSettings(background=True)
    served = hermes.start()
    try:
        served.stub.script(answer)
        session = ""
        for number in range(30):
            question = user(f"question {number}: " + "what does the page say " * 10)
            asked = served.chat(question, session=session, tools=[LOOK])
            session = asked.headers["x-hermes-session"]
            [made] = asked.json()["choices"][0]["message"]["tool_calls"]
            found = result(made["id"], f"page {number}: " + "lorem ipsum dolor " * 60)
            told = served.chat(found, session=session, tools=[LOOK])
            assert told.json()["choices"][0]["message"]["content"].startswith("It says")
        assert {request.refusal for request in served.stub.requests} == {""}
        passes = served.get(f"/api/sessions/{session}/compactions").json()["passes"]
        assert any(one["status"] == "committed" for one in passes)
        answered = [request for request in served.stub.requests if "tools" in request.body]
        assert all(request.body["tools"] == [LOOK] for request in answered)
        assert not any("recall" in str(request.messages) for request in answered)
        everything = served.get(f"/api/sessions/{session}/messages?view=all").json()["messages"]
        accepted = [row for row in everything if row["kind"] == "message"]
        assert len(accepted) == 120
    finally:
        served.stop()


def test_a_history_larger_than_the_window_is_taken_in_at_once(hermes: Served) -> None:
    hermes.window_tokens = 8_192
    served = hermes.start()
    try:
        served.stub.script(answer)
        history: list[Json] = []
        for number in range(60):
            history += [user(f"{number}: " + "why " * 90), assistant("because " * 60)]
        told = served.chat(*history, user("and now?"), tools=[])
        assert told.status_code == 200, told.text
        rows = served.get(f"/api/sessions/{told.headers['x-hermes-session']}").json()
        assert rows["message_count"] >= 122
        assert {request.refusal for request in served.stub.requests} == {""}
    finally:
        served.stop()
