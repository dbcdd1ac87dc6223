"""One conversation goes on across wires, models and restarts, and no strict server refuses it."""

from __future__ import annotations

import itertools
from pathlib import Path

from agent.testing.builders import call
from agent.testing.stub_reply import RecordedRequest, Reply
from agent.testing.stub_server import StubModelServer
from agent.testing.summaries import GOOD_SUMMARY
from hermes_state import SessionDB
from run_agent import AIAgent
from tests.providers.wires import WIRES

WINDOW = 12_000
SECRET = "the harbour code is 7791-KESTREL"


def test_every_wire_carries_on_what_another_began(
    stub: StubModelServer, store: SessionDB, tmp_path: Path
) -> None:
    (tmp_path / "a.txt").write_text("a line of the file that is read\n" * 60)
    numbers = itertools.count()

    def work(request: RecordedRequest) -> Reply:
        if b"<material>" in request.raw:
            return Reply(text=GOOD_SUMMARY)
        number = next(numbers)
        calls = [call("read_file", {"path": "a.txt"}, call_id=f"c{number}")] if number % 3 else []
        return Reply(
            text=f"answer {number}" if number % 2 or not calls else None,
            reasoning=f"why {number}",
            reasoning_key="reasoning_details",
            tool_calls=calls,
        )

    stub.script(work, window_tokens=WINDOW)
    passes = 0
    for turn in range(14):
        case = list(WIRES.values())[turn % len(WIRES)]
        agent = AIAgent(
            base_url=stub.base_url,
            model=f"m{turn % 2}",
            api_mode=case.mode,
            context_length=WINDOW,
            session_db=store,
            session_id="s",
            cwd=tmp_path,
            skip_memory=True,
        )
        said = f"Remember: {SECRET}." if not turn else f"go on with step {turn}"
        result = agent.run_conversation(said)
        assert result.stop_reason == "stop"
        passes += len(result.passes)
        agent.close()
    assert [request.refusal for request in stub.requests if request.refusal] == []
    assert passes
    assert SECRET in stub.requests[-1].raw.decode()
    assert store.check().problems == []
