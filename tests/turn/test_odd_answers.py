"""Whatever a wire answers in the middle of a tool round, the conversation goes on, on another wire
where that one fails."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from agent.base.errors import ContentFiltered
from agent.base.settings import CompressionSettings, ModelSettings, RouteSettings, Settings
from agent.testing.builders import call, image, user
from agent.testing.stub_reply import RecordedRequest, Reply
from agent.testing.stub_server import StubModelServer
from agent.testing.summaries import GOOD_SUMMARY
from hermes_state import SessionDB
from run_agent import AIAgent
from tests.providers.wires import WIRES

WINDOW = 20_000
READ = call("read_file", {"path": "a.txt"}, call_id="z")
EVENTS = {"content-type": "text/event-stream"}

ANSWERS = {
    "a wrong key": Reply(status=401, error="bad key"),
    "an overflow": Reply(status=400, error="prompt is too long: 210000 tokens > 9000 maximum"),
    "half an answer": Reply(text="half an answer", close_without_finish=True),
    "half a round": Reply(text=None, tool_calls=[READ], close_without_finish=True),
    "a connection that breaks": Reply(text="half an answer", reset_after_chars=5),
    "an error in a stream": Reply(raw_body=b'data: {"error":{"message":"no"}}\n\n', headers=EVENTS),
    "a page": Reply(raw_body=b"<html>", headers={"content-type": "text/html"}),
    "nothing": Reply(text=None),
    "calls at the output limit": Reply(text=None, tool_calls=[READ], finish="length"),
    "arguments cut off": Reply(text=None, tool_calls=[call("read_file", '{"path": ')]),
    "a call twice": Reply(text=None, tool_calls=[READ, READ]),
    "a call without a name": Reply(text="t", tool_calls=[call("", {}, call_id="z")]),
    "a call of no tool": Reply(text="t", tool_calls=[call("no such tool", {}, call_id="z")]),
}


def talk(
    stub: StubModelServer, store: SessionDB, folder: Path, modes: list[str], odd: Reply
) -> str:
    """Have three turns, in the first of which the first wire answers oddly after a tool round;
    return the last answer."""
    asked = 0

    def answer(request: RecordedRequest) -> Reply:
        nonlocal asked
        if b"<material>" in request.raw:
            return Reply(text=GOOD_SUMMARY)
        asked += 1
        look = Reply(
            text="look", reasoning="why", tool_calls=[call("read_file", {"path": "a.txt"})]
        )
        return {1: look, 2: odd}.get(asked, Reply(text="on"))

    stub.script(answer, window_tokens=WINDOW)
    stub.script([], model="second", window_tokens=WINDOW, then=Reply(text="on", reasoning="why"))
    fallback = RouteSettings("second", api_mode=modes[1], context_length=WINDOW)
    session_id = " to ".join(modes)
    agent = AIAgent(
        base_url=stub.base_url,
        model="first",
        api_mode=modes[0],
        context_length=WINDOW,
        session_db=store,
        session_id=session_id,
        settings=Settings(
            model=ModelSettings(fallbacks=(fallback,)),
            compression=CompressionSettings(background=False),
        ),
        cwd=folder,
        skip_memory=True,
    )
    agent.submit("see")
    store.append(session_id, [user([{"type": "text", "text": "this"}, image()])])
    said = [agent.chat(text) for text in ("read it", "and then?", "and then?")]
    agent.close()
    return said[-1]


@pytest.mark.parametrize("odd", ANSWERS.values(), ids=ANSWERS.keys())
def test_the_conversation_goes_on(
    stub: StubModelServer, store: SessionDB, tmp_path: Path, odd: Reply
) -> None:
    (tmp_path / "a.txt").write_text("a line\n" * 20)
    modes = [case.mode for case in WIRES.values()]
    for place, mode in enumerate(modes):
        assert (mode, talk(stub, store, tmp_path, [mode, modes[place - 1]], odd)) == (mode, "on")
    assert [request.refusal for request in stub.requests if request.refusal] == []
    assert store.check().problems == []


@pytest.mark.parametrize("calls", [[], [READ]], ids=["in words", "beside calls"])
def test_a_refusal_is_told_runs_nothing_and_does_not_end_the_conversation(
    stub: StubModelServer, store: SessionDB, tmp_path: Path, calls: list[dict[str, Any]]
) -> None:
    for case in WIRES.values():
        agent = AIAgent(
            base_url=stub.base_url,
            model="m",
            api_mode=case.mode,
            session_db=store,
            session_id=case.mode,
            cwd=tmp_path,
        )
        refusal = Reply(text="I will not", tool_calls=calls, finish="content_filter")
        stub.script([refusal], then=Reply(text="on"))
        with pytest.raises(ContentFiltered, match="content rules ended the answer"):
            agent.chat("do it")
        assert agent.chat("something else") == "on"
        assert [row["role"] for row in store.view(case.mode).messages] == ["user", "assistant"] * 2
        agent.close()
    assert [request.refusal for request in stub.requests if request.refusal] == []
