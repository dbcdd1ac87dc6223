"""D12 over HTTP: a client's running request is the one that is worked on after a pass."""

from __future__ import annotations

from pathlib import Path

import pytest

from agent.base.messages import text_of
from agent.testing.builders import call, result, turn, user
from agent.testing.stub_reply import RecordedRequest, Reply
from agent.testing.stub_server import DEFAULT_MODEL, StubModelServer
from tests.field_reports.harness import SUMMARISER, SUMMARY, words
from tests.field_reports.surfaces import SURFACES, talking
from tests.field_reports.test_d12_task import (
    EXPLAIN_C,
    MAKE_A,
    MAKE_B,
    ROUNDS,
    sections_of,
)

WINDOW = 12_000


@pytest.mark.parametrize("surface", SURFACES)
def test_d12_a_clients_own_tools_go_on_with_its_newest_request(
    stub: StubModelServer, tmp_path: Path, surface: str
) -> None:
    def answer(_request: RecordedRequest) -> Reply:
        number = len(stub.requests_for(DEFAULT_MODEL))
        if number > ROUNDS:
            return Reply(text="C explained")
        text = words(1_300, f"look {number}")
        return Reply(text=text, tool_calls=[call("view", call_id=f"c{number}")])

    stub.script(answer)
    stub.script([], model=SUMMARISER, then=Reply(text=SUMMARY))
    with talking(surface, tmp_path, stub, window_tokens=WINDOW) as talk:
        said = talk.send(*turn(MAKE_A, "A is made."), *turn(MAKE_B, "B is made."), user(EXPLAIN_C))
        while said.get("tool_calls"):
            said = talk.send(result(said["tool_calls"][0], "seen"))
    assert said["content"] == "C explained"
    assert stub.requests_for(SUMMARISER)
    request = stub.requests_for(DEFAULT_MODEL)[-1]
    summary, done, following = sections_of(request)
    assert SUMMARY in summary
    assert MAKE_A in done
    assert MAKE_B in done
    assert following.endswith(EXPLAIN_C)
    whole = "\n".join(text_of(message["content"]) for message in request.messages)
    assert [whole.count(text) for text in (MAKE_A, MAKE_B, EXPLAIN_C)] == [1, 1, 1]
    assert [request.refusal for request in stub.requests if request.refusal] == []
