"""What the provider counted decides when a pass is due: cached tokens fill the window, once."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from agent.base.events import Event, Usage
from agent.base.settings import CompressionSettings, ModelSettings, Settings
from agent.base.tokens import Calibration, UsageAnchor, estimate_message
from agent.testing.builders import user
from agent.testing.stub_reply import RecordedRequest, Reply
from agent.testing.stub_server import DEFAULT_MODEL, StubModelServer
from agent.testing.stub_strict import count_tokens
from agent.testing.summaries import GOOD_SUMMARY
from hermes_state import SessionDB
from run_agent import AIAgent

WINDOW = 8_000
TALK = "the river carried a stone past an old mill while seven boats lay at a pier "

Count = Callable[[int], dict[str, Any] | None]


def inside(tokens: int) -> dict[str, Any]:
    """Count cached tokens inside of the prompt, as most do."""
    return {
        "prompt_tokens": tokens,
        "completion_tokens": 1,
        "total_tokens": tokens + 1,
        "prompt_tokens_details": {"cached_tokens": tokens - 10},
    }


def outside(tokens: int) -> dict[str, Any]:
    """Leave cached tokens out of the prompt, as some proxies do."""
    return inside(tokens) | {"prompt_tokens": 10}


def nothing(_tokens: int) -> None:
    """Count nothing."""


def absurd(tokens: int) -> dict[str, Any]:
    return {"prompt_tokens": -tokens, "completion_tokens": None}


@pytest.fixture
def stub() -> Iterator[StubModelServer]:
    with StubModelServer(window_tokens=WINDOW) as server:
        yield server


@pytest.fixture
def events() -> list[Event]:
    return []


@pytest.fixture
def open_agent(
    stub: StubModelServer, store: SessionDB, events: list[Event]
) -> Iterator[Callable[[], AIAgent]]:
    opened: list[AIAgent] = []

    def open_one() -> AIAgent:
        agent = AIAgent(
            settings=Settings(
                model=ModelSettings(
                    name=DEFAULT_MODEL, base_url=stub.base_url, context_length=WINDOW
                ),
                compression=CompressionSettings(background=False),
            ),
            session_db=store,
            session_id="s",
            builtin_tools=False,
            skip_context_files=True,
            skip_memory=True,
            on_event=events.append,
        )
        opened.append(agent)
        return agent

    yield open_one
    for agent in opened:
        agent.close()


def counting(stub: StubModelServer, count: Count) -> None:
    """Let the stub answer turns with the usage of a dialect, and write summaries."""

    def answer(request: RecordedRequest) -> Reply:
        if request.messages[0]["role"] != "system":
            return Reply(text=GOOD_SUMMARY)
        return Reply(text="Good.", usage=count(count_tokens(request.messages)))

    stub.script(answer)


def opened(open_agent: Callable[[], AIAgent]) -> AIAgent:
    """Return a new agent that has taken over what the store knows of the session."""
    agent = open_agent()
    agent.pending_messages()
    return agent


DIALECTS = (inside, outside, nothing, absurd)


@pytest.mark.parametrize("count", DIALECTS, ids=lambda count: count.__name__)
def test_no_dialect_of_usage_lets_a_request_grow_over_the_window(
    stub: StubModelServer, open_agent: Callable[[], AIAgent], store: SessionDB, count: Count
) -> None:
    counting(stub, count)
    agent = open_agent()
    for number in range(60):
        agent.chat(f"{number} {TALK * 20}")
    sizes = [count_tokens(request.messages) for request in stub.requests]
    assert max(sizes) <= WINDOW - agent.reserve_tokens
    assert [request.refusal for request in stub.requests] == [""] * len(stub.requests)
    assert store.passes("s")


def test_a_provider_that_counts_only_what_its_cache_lacks_is_not_believed(
    stub: StubModelServer, open_agent: Callable[[], AIAgent], store: SessionDB
) -> None:
    sent: list[list[dict[str, Any]]] = [[]]

    def answer(request: RecordedRequest) -> Reply:
        messages, before = request.messages, sent[-1]
        if messages[0]["role"] != "system":
            return Reply(text=GOOD_SUMMARY)
        sent.append(messages)
        pairs = enumerate(zip(messages, before, strict=False))
        same = next((place for place, (one, two) in pairs if one != two), len(before))
        usage = {"prompt_tokens": count_tokens(messages[same:]), "completion_tokens": 1}
        return Reply(text="Good.", usage=usage)

    stub.script(answer)
    agent = open_agent()
    for number in range(60):
        agent.chat(f"{number} {TALK * 20}")
    assert [request.refusal for request in stub.requests] == [""] * len(stub.requests)
    assert store.passes("s")


@pytest.mark.parametrize("count", [inside, outside], ids=lambda count: count.__name__)
def test_cached_tokens_are_counted_once_wherever_they_stand(
    stub: StubModelServer,
    open_agent: Callable[[], AIAgent],
    store: SessionDB,
    events: list[Event],
    count: Count,
) -> None:
    counting(stub, count)
    agent = open_agent()
    while not events or not isinstance(events[-1], Usage) or not store.passes("s"):
        agent.chat(TALK * 5)
        if store.passes("s"):
            break
    sizes = [count_tokens(r.messages) for r in stub.requests if r.messages[0]["role"] == "system"]
    used = [event for event in events if isinstance(event, Usage)]
    assert [event.prompt for event in used] == sizes
    assert [event.context_used for event in used] == [size + 1 for size in sizes]
    assert sizes[-2] >= 0.9 * agent.trigger_tokens - 150
    totals = agent.usage_totals()
    assert totals.prompt == sum(sizes)
    assert totals.cached == sum(size - 10 for size in sizes)


def test_the_next_request_is_the_last_count_and_what_was_appended_since(
    stub: StubModelServer, open_agent: Callable[[], AIAgent], store: SessionDB
) -> None:
    counting(stub, lambda tokens: inside(2 * tokens))
    agent = open_agent()
    for _ in range(3):
        agent.chat(TALK * 8)
    counted = 2 * count_tokens(stub.requests[-1].messages)
    appended = store.append("s", [user(TALK * 3)])
    answer = agent.live.messages[-1]
    since = agent.calibration.ratio * sum(map(estimate_message, [answer, *appended]))
    assert agent.context().total == pytest.approx(counted + since, abs=8)


def test_the_count_is_kept_across_a_restart_and_cleared_by_a_pass_and_a_switch(
    stub: StubModelServer, open_agent: Callable[[], AIAgent], store: SessionDB
) -> None:
    counting(stub, inside)
    agent = open_agent()
    for _ in range(12):
        agent.chat(TALK * 8)
    total = agent.context().total
    again = open_agent()
    assert again.context().total == total
    assert again.anchor == agent.anchor
    assert again.anchor is not None
    assert again.anchor.prompt == count_tokens(stub.requests[-1].messages)
    assert again.compress().status.value == "committed"
    assert again.context().total < total
    assert store.usage_anchor("s").keys() == {"ratio"}
    assert opened(open_agent).anchor is None
    again.chat("hello")
    assert again.anchor is not None
    again.switch_model("another")
    assert again.context().total > 0
    assert opened(open_agent).anchor is None


def test_a_store_of_an_earlier_version_has_no_anchor(
    open_agent: Callable[[], AIAgent], store: SessionDB
) -> None:
    store.create_session("s", "test")
    store.set_usage_anchor("s", {"ratio": 1.5, "prompt": 900, "estimated": 600, "watermark": 3})
    agent = opened(open_agent)
    assert (agent.anchor, agent.calibration) == (None, Calibration(1.5, 1))


@pytest.mark.parametrize(
    ("prompt", "believed"),
    [(10, 4_800), (5_000, 5_000), (10_000, 10_000), (100_000, 41_200)],
    ids=["too small", "half", "as estimated", "too large"],
)
def test_a_count_beyond_belief_is_taken_for_the_nearest_that_is_not(
    prompt: int, believed: int
) -> None:
    anchor = UsageAnchor(prompt, estimated=10_000, generation=1)
    assert anchor.count(10_000, Calibration()) == believed
    assert anchor.count(10_100, Calibration(2.0)) == believed + 200
    assert anchor.count(9_900, Calibration(2.0)) == believed - 200


@pytest.mark.parametrize(
    ("prompt", "estimated", "contradicts"),
    [(1_000, 1_000, False), (949, 1_000, True), (1_040, 1_200, True), (1_060, 1_200, False)],
)
def test_a_request_that_only_grew_has_not_shrunk(
    prompt: int, estimated: int, contradicts: bool
) -> None:
    anchor = UsageAnchor(1_000, estimated=1_000, generation=0)
    assert anchor.contradicts(prompt, estimated) is contradicts
    assert not anchor.contradicts(10, 999)


def test_an_anchor_is_read_back_as_it_was_stored(tmp_path: Path) -> None:
    stored = {"ratio": 1.5, "reports": 2, "prompt": 9, "estimated": 6, "generation": 0}
    assert UsageAnchor.from_dict(stored) == UsageAnchor(9, 6, 0)
    assert UsageAnchor.from_dict({"ratio": 1.5}) is None
    assert UsageAnchor.from_dict({}) is None


def test_what_the_provider_leaves_out_again_fills_no_window() -> None:
    anchor = UsageAnchor(400, estimated=1_000, generation=0, cleared=600)
    assert anchor.count(1_000, Calibration()) == 400
    assert anchor.count(1_100, Calibration(2.0)) == 600
    assert not anchor.contradicts(1_000, 1_000)
    assert anchor.contradicts(900, 1_000)
    stored = {"prompt": 400, "estimated": 1_000, "generation": 0, "cleared": 600, "noted": 600}
    assert UsageAnchor.from_dict(stored) == anchor
