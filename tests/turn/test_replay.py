"""Reasoning that is bound to what stood before it goes back while that stands, on every wire."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from agent.base.messages import Message
from agent.testing.builders import call
from agent.testing.stub_reply import RecordedRequest, Reply
from agent.testing.stub_server import StubModelServer
from agent.testing.summaries import GOOD_SUMMARY
from agent.turn.request import replay_from
from hermes_state import SessionDB
from run_agent import AIAgent
from tests.providers.wires import WIRES, WireCase

Open = Callable[..., AIAgent]


@pytest.fixture(params=list(WIRES.values()), ids=list(WIRES))
def case(request: pytest.FixtureRequest) -> WireCase:
    """The wire under test."""
    found: WireCase = request.param
    return found


@pytest.fixture
def open_agent(case: WireCase, stub: StubModelServer, store: SessionDB) -> Iterator[Open]:
    """A function that opens an agent on session `s`; all are closed after the test."""
    stub.script(reasons)
    opened: list[AIAgent] = []

    def start(**given: object) -> AIAgent:
        keywords = {"context_length": 16_384, "session_db": store, "session_id": "s", **given}
        opened.append(
            AIAgent(base_url=stub.base_url, model="m", api_mode=case.mode, **keywords)  # type: ignore[arg-type]
        )
        return opened[-1]

    yield start
    for agent in opened:
        agent.close()


def reasons(request: RecordedRequest) -> Reply:
    """Answer with a reason; a summary when one is asked for."""
    if b"<material>" in request.raw:
        return Reply(text=GOOD_SUMMARY)
    return Reply(text="so", reasoning="why", reasoning_key="reasoning_details")


def opaque(stub: StubModelServer, case: WireCase) -> list[int]:
    """Return how many sealed pieces each request of a turn carried; none may be refused."""
    assert [request.refusal for request in stub.requests if request.refusal] == []
    turns = [request for request in stub.requests if b"<material>" not in request.raw]
    return [len(case.opaque(request.body)) for request in turns]


def test_a_pass_an_undo_and_a_rewind_end_it_and_a_restart_does_not(
    open_agent: Open, stub: StubModelServer, case: WireCase
) -> None:
    agent = open_agent()
    for number in range(3):
        agent.chat(f"request {number}: " + "words to be summarised " * 250)
    assert opaque(stub, case) == [0, 1, 2]
    assert agent.compress().status == "committed"
    agent.chat("after the pass")
    agent.chat("and again")
    assert opaque(stub, case)[3:] == [0, 1]
    agent.undo_compaction()
    agent.chat("after the undo")
    agent.chat("and again")
    assert opaque(stub, case)[5:] == [0, 1]
    before = case.opaque(stub.requests[-1].body)
    agent.close()
    agent = open_agent()
    agent.chat("after a restart")
    assert case.opaque(stub.requests[-1].body)[:1] == before
    agent.branch()
    agent.chat("in a fork of the whole")
    assert opaque(stub, case)[7:] == [2, 3]
    agent.undo_turn()
    agent.chat("after a rewind")
    assert opaque(stub, case)[9:] == [0]


def test_a_switch_of_model_keeps_it_for_the_way_back(
    open_agent: Open, stub: StubModelServer, case: WireCase
) -> None:
    agent = open_agent()
    agent.chat("one")
    agent.switch_model("another")
    agent.chat("two")
    agent.chat("three")
    agent.switch_model("m")
    agent.chat("four")
    assert opaque(stub, case) == [0, 0, 1, 1]


def test_a_pass_in_mid_round_is_never_refused(
    open_agent: Open, stub: StubModelServer, case: WireCase, tmp_path: Path
) -> None:
    (tmp_path / "a.txt").write_text("a line of the file that is read\n" * 120)
    rounds = iter(range(14))

    def work(request: RecordedRequest) -> Reply:
        if b"<material>" in request.raw or next(rounds, None) is None:
            return reasons(request)
        read = call("read_file", {"path": "a.txt"})
        return Reply(
            text=None, tool_calls=[read], reasoning="why", reasoning_key="reasoning_details"
        )

    stub.script(work, window_tokens=10_000)
    agent = open_agent(context_length=10_000, cwd=tmp_path)
    turn = agent.run_conversation("read it often")
    assert (turn.stop_reason, turn.final_text) == ("stop", "so")
    assert turn.passes
    counts = opaque(stub, case)
    steps = [later - before for before, later in zip(counts, counts[1:], strict=False)]
    assert set(steps) - {1} != set()
    assert all(step == 1 or later == 0 for step, later in zip(steps, counts[1:], strict=True))


def test_an_answer_that_was_under_way_when_the_view_changed_does_not_bring_it_back(
    open_agent: Open, stub: StubModelServer, case: WireCase
) -> None:
    agent = open_agent()
    for number in range(3):
        agent.chat(f"request {number}: " + "words to be summarised " * 250)
    assert agent.compress().status == "committed"
    release = threading.Event()
    late = Reply(text="late", reasoning="why", reasoning_key="reasoning_details")
    stub.script([replace(late, before_first_byte_s=30, release=release)], then=late)
    asked = len(stub.requests)
    running = threading.Thread(target=agent.chat, args=("take your time",))
    running.start()
    stub.wait_for_requests(asked + 1)
    agent.undo_compaction()
    release.set()
    running.join(10)
    agent.chat("after")
    agent.chat("and again")
    assert opaque(stub, case)[-3:] == [0, 0, 1]


def reasoned(seq: int, generation: int | None) -> Message:
    row: Message = {"role": "assistant", "content": "a", "_seq": seq, "_reasoning": "{}"}
    return row if generation is None else row | {"_generation": generation}


@pytest.mark.parametrize(
    ("rows", "generation", "first"),
    [
        ([], 0, 0),
        ([], 3, 0),
        ([reasoned(1, None)], 0, 0),
        ([reasoned(1, None)], 1, 2),
        ([reasoned(1, 1), reasoned(4, 2), reasoned(6, 3)], 3, 5),
        ([reasoned(1, 3), reasoned(4, 3)], 3, 0),
        ([reasoned(1, 3), {"role": "assistant", "content": "a", "_seq": 4}], 3, 0),
    ],
)
def test_the_first_row_is_the_one_after_the_last_that_is_stale(
    rows: list[Message], generation: int, first: int
) -> None:
    assert replay_from(rows, generation) == first
