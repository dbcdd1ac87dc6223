"""A route that fails rests, the next one answers, and people are told."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from agent.base.errors import AuthError, ContextCannotFit, RateError
from agent.base.events import Event, Notice, TextDelta
from agent.base.settings import CompressionSettings, ModelSettings, RouteSettings, Settings
from agent.testing.clock import FakeClock
from agent.testing.stub_reply import RecordedRequest, Reply
from agent.testing.stub_server import DEFAULT_MODEL, StubModelServer
from agent.testing.summaries import GOOD_SUMMARY
from hermes_state import SessionDB
from run_agent import AIAgent

FIRST, SECOND, THIRD = DEFAULT_MODEL, "second", "third"
BUSY = Reply(status=503, error="no capacity")


class Bench:
    """Agents on one store and one clock, and what they told."""

    def __init__(self, stub: StubModelServer, path: Path, clock: FakeClock) -> None:
        self.stub = stub
        self.clock = clock
        self.store = SessionDB(path, clock=clock)
        self.events: list[Event] = []
        self.agents: list[AIAgent] = []

    def open(self, *fallbacks: RouteSettings, **model: Any) -> AIAgent:
        settings = Settings(
            model=ModelSettings(
                **{
                    "name": FIRST,
                    "base_url": self.stub.base_url,
                    "api_key": "key-1",
                    "context_length": 16_000,
                    "fallbacks": fallbacks,
                    **model,
                }
            ),
            compression=CompressionSettings(background=False),
        )
        return self.open_with(settings)

    def open_with(self, settings: Settings) -> AIAgent:
        agent = AIAgent(
            settings=settings,
            session_db=self.store,
            session_id="s",
            clock=self.clock,
            builtin_tools=False,
            skip_context_files=True,
            skip_memory=True,
            on_event=self.events.append,
        )
        self.agents.append(agent)
        return agent

    def close(self) -> None:
        for agent in self.agents:
            agent.close()
        self.store.close()

    @property
    def notices(self) -> list[str]:
        return [event.text for event in self.events if isinstance(event, Notice)]

    @property
    def asked(self) -> list[str]:
        """The models that were asked, oldest first; a retry of the wire is not told apart."""
        names = [request.model for request in self.stub.requests]
        return [name for place, name in enumerate(names) if names[place - 1 : place] != [name]]


@pytest.fixture
def bench(stub: StubModelServer, tmp_path: Path) -> Iterator[Bench]:
    made = Bench(stub, tmp_path / "state.db", FakeClock())
    yield made
    made.close()


def route(name: str, **fields: Any) -> RouteSettings:
    return RouteSettings(**{"name": name, "context_length": 16_000, **fields})


def refusing(status: int, **headers: str) -> Reply:
    return Reply(status=status, error="not now", headers=headers)


@pytest.mark.parametrize("status", [400, 401, 402, 403, 404, 408, 429, 500, 503, 529])
def test_a_turn_never_fails_while_a_route_is_left(bench: Bench, status: int) -> None:
    bench.stub.script([], then=refusing(status, **{"Retry-After": "90"}))
    bench.stub.script([], model=SECOND, then=Reply(text="from the second"))
    agent = bench.open(route(SECOND))
    assert agent.chat("hello") == "from the second"
    assert bench.asked == [FIRST, SECOND]
    [told] = bench.notices
    assert f"{FIRST} at {bench.stub.base_url}" in told
    assert f"{SECOND} at {bench.stub.base_url} goes on instead" in told
    assert [row["_model"] for row in agent.live.messages if row["role"] == "assistant"] == [SECOND]


def test_a_connection_that_breaks_is_answered_from_the_start_elsewhere(bench: Bench) -> None:
    bench.stub.script([], then=Reply(text="half an answer", reset_after_chars=6))
    bench.stub.script([], model=SECOND, then=Reply(text="a whole answer"))
    agent = bench.open(route(SECOND))
    assert agent.chat("hello") == "a whole answer"
    rows = [(row["role"], row["content"]) for row in agent.live.messages]
    assert rows == [("user", "hello"), ("assistant", "a whole answer")]
    said = "".join(event.text for event in bench.events if isinstance(event, TextDelta))
    assert said.endswith("a whole answer")


def test_a_failed_route_rests_and_is_asked_again_when_its_rest_is_over(bench: Bench) -> None:
    bench.stub.script([refusing(429, **{"Retry-After": "90"})], then=Reply(text="back"))
    bench.stub.script([], model=SECOND, then=Reply(text="second"))
    agent = bench.open(route(SECOND))
    answers = [agent.chat("one"), agent.chat("two")]
    bench.clock.advance(89)
    answers.append(agent.chat("three"))
    bench.clock.advance(1)
    answers.append(agent.chat("four"))
    assert answers == ["second", "second", "second", "back"]
    assert bench.asked == [FIRST, SECOND, FIRST]
    first, last = bench.notices
    assert first.endswith("can be asked again, 90 s at the earliest")
    assert last == f"{FIRST} at {bench.stub.base_url} is asked again"


def test_a_rest_survives_a_restart_and_another_key_ends_it(bench: Bench) -> None:
    bench.stub.script([refusing(401)], then=Reply(text="first"))
    bench.stub.script([], model=SECOND, then=Reply(text="second"))
    assert bench.open(route(SECOND)).chat("one") == "second"
    assert bench.open(route(SECOND)).chat("two") == "second"
    assert bench.open(route(SECOND), api_key="key-2").chat("three") == "first"
    bench.clock.advance(1_800)
    assert bench.open(route(SECOND)).chat("four") == "first"
    assert bench.asked == [FIRST, SECOND, FIRST]


def test_rests_grow_while_nothing_answers(bench: Bench) -> None:
    bench.stub.script([], then=refusing(401))
    bench.stub.script([], model=SECOND, then=Reply(text="second"))
    agent = bench.open(route(SECOND))
    rests = []
    for rest_s in (1_800, 3_600, 7_200):
        agent.chat("again")
        rests.append(bench.notices[-1].rpartition("again, ")[2])
        bench.clock.advance(rest_s)
    assert rests == ["30 min at the earliest", "60 min at the earliest", "2 h at the earliest"]


def test_when_every_route_failed_the_error_names_each_and_its_class(bench: Bench) -> None:
    bench.stub.script([], then=refusing(401))
    bench.stub.script([], model=SECOND, then=refusing(429, **{"Retry-After": "600"}))
    bench.stub.script([], model=THIRD, then=refusing(402))
    agent = bench.open(route(SECOND), route(THIRD))
    with pytest.raises(RateError) as caught:
        agent.chat("hello")
    at = f"at {bench.stub.base_url}"
    assert str(caught.value).startswith(
        f"no route answered: {FIRST} {at} (auth); {SECOND} {at} (rate); {THIRD} {at} (quota); "
    )
    assert agent.pending_messages() == 0
    assert [row["content"] for row in agent.live.messages] == ["hello"]


def test_routes_that_all_rest_are_asked_all_the_same(bench: Bench) -> None:
    bench.stub.script([refusing(401)], then=Reply(text="first"))
    bench.stub.script([refusing(429, **{"Retry-After": "600"})], model=SECOND)
    agent = bench.open(route(SECOND))
    with pytest.raises(RateError):
        agent.chat("one")
    assert agent.chat("two") == "ok"
    assert bench.asked == [FIRST, SECOND]
    bench.stub.script([], model=SECOND, then=refusing(500))
    assert agent.chat("three") == "first"


def test_without_another_route_an_error_stays_as_it_is(bench: Bench) -> None:
    bench.stub.script([], then=refusing(401))
    agent = bench.open()
    with pytest.raises(AuthError, match=r"^stub-model at .* refused the key \(401\): not now"):
        agent.chat("hello")
    assert bench.notices == []
    bench.stub.script([])
    assert agent.chat("again") == "ok"


def test_the_next_route_gets_the_key_and_the_wire_of_its_own_endpoint(bench: Bench) -> None:
    bench.stub.script([], then=BUSY)
    with StubModelServer() as other:
        agent = bench.open(route("m", base_url=other.base_url))
        assert agent.chat("hello") == "ok"
        [request] = other.requests
        assert "authorization" not in request.headers
        assert agent.provider.route == f"m at {other.base_url}"
        agent.close()


def test_the_embedded_model_may_stand_in(bench: Bench) -> None:
    agent = bench.open(RouteSettings(api_mode="local"))
    chain = agent.routes
    agent.use_route(chain.next_after([chain.current], 0) or chain.current)
    assert (agent.provider.one_slot, agent.tools) == (True, {})


# -- windows --------------------------------------------------------------------------------------


def talk(agent: AIAgent, tokens: int) -> None:
    words = "the river carried a stone past an old mill "
    while agent.store.view("s").tokens < tokens:
        agent.store.append(
            "s", [{"role": "user", "content": words * 8}, {"role": "assistant", "content": words}]
        )


def test_a_route_that_holds_the_request_goes_before_one_that_needs_a_compaction(
    bench: Bench,
) -> None:
    bench.stub.script([], then=refusing(401))
    bench.stub.script([], model=SECOND, window_tokens=5_000)
    bench.stub.script([], model=THIRD, then=Reply(text="large enough"))
    agent = bench.open(route(SECOND, context_length=5_000), route(THIRD))
    agent.pending_messages()
    talk(agent, 6_000)
    assert agent.chat("hello") == "large enough"
    assert bench.asked == [FIRST, THIRD]


def test_a_smaller_window_is_compacted_for_before_its_first_request(bench: Bench) -> None:
    def answer(request: RecordedRequest) -> Reply:
        is_turn = request.messages[0]["role"] == "system"
        return Reply(text="small" if is_turn else GOOD_SUMMARY)

    bench.stub.script([], then=refusing(401))
    bench.stub.script(answer, model=SECOND, window_tokens=5_000)
    agent = bench.open(route(SECOND, context_length=5_000))
    agent.pending_messages()
    talk(agent, 6_000)
    assert agent.chat("hello") == "small"
    assert [request.refusal for request in bench.stub.requests] == [""] * len(bench.stub.requests)
    assert [row.status.value for row in bench.store.passes("s")] == ["committed"]


@pytest.mark.parametrize("window_tokens", [4_096, 64_000], ids=["smaller", "larger"])
def test_what_cannot_be_made_to_fit_goes_to_a_larger_window_only(
    bench: Bench, window_tokens: int
) -> None:
    bench.stub.script([], model=SECOND, then=Reply(text="large"))
    settings = bench.open(
        route(SECOND, context_length=window_tokens), context_length=6_000
    ).settings
    off = replace(settings, compression=CompressionSettings(enabled=False))
    agent = bench.open_with(off)
    agent.pending_messages()
    talk(agent, 8_000)
    if window_tokens == 64_000:
        assert agent.chat("hello") == "large"
        assert f"{SECOND} at {bench.stub.base_url} goes on instead" in bench.notices[0]
    else:
        with pytest.raises(ContextCannotFit, match="compaction is off"):
            agent.chat("hello")
        assert (bench.asked, bench.notices) == ([], [])


def test_an_error_names_a_route_whose_window_is_too_small_too(bench: Bench) -> None:
    bench.stub.script([], then=refusing(401))
    settings = bench.open(route(SECOND, context_length=4_096)).settings
    agent = bench.open_with(replace(settings, compression=CompressionSettings(enabled=False)))
    agent.pending_messages()
    talk(agent, 6_000)
    with pytest.raises(AuthError) as caught:
        agent.chat("hello")
    assert f"{FIRST} at {bench.stub.base_url} (auth); " in str(caught.value)
    assert f"{SECOND} at {bench.stub.base_url} (context_cannot_fit)" in str(caught.value)
    assert bench.asked == [FIRST]


# -- the summary model ----------------------------------------------------------------------------


def summary_settings(bench: Bench, **auxiliary: Any) -> Settings:
    settings = bench.open().settings
    compression = replace(
        settings.auxiliary.compression, model=SECOND, context_length=16_000, **auxiliary
    )
    return replace(settings, auxiliary=replace(settings.auxiliary, compression=compression))


@pytest.fixture
def summarised(bench: Bench) -> Callable[..., AIAgent]:
    def opened(**auxiliary: Any) -> AIAgent:
        agent = bench.open_with(summary_settings(bench, **auxiliary))
        agent.pending_messages()
        talk(agent, 6_000)
        return agent

    return opened


def test_a_summary_is_written_by_the_next_route_in_the_same_pass(
    bench: Bench, summarised: Callable[..., AIAgent]
) -> None:
    bench.stub.script([], model=SECOND, then=refusing(401))
    bench.stub.script([], model=THIRD, then=Reply(text=GOOD_SUMMARY))
    agent = summarised(fallback_chain=(route(THIRD),))
    record = agent.compress()
    at = f"at {bench.stub.base_url}"
    assert (record.status.value, record.model, record.route) == (
        "committed",
        THIRD,
        f"{THIRD} {at}",
    )
    assert bench.asked == [SECOND, THIRD]
    assert bench.store.get_compression_failure_cooldown("s") is None
    [told] = bench.notices
    assert told.startswith(f"{SECOND} {at} refused the key (401)")
    assert told.endswith(f"the summary is written by {THIRD} {at} instead")
    talk(agent, 6_000)
    agent.compress()
    assert bench.asked == [SECOND, THIRD]


def test_a_stand_in_with_a_smaller_window_gets_smaller_requests(
    bench: Bench, summarised: Callable[..., AIAgent]
) -> None:
    bench.stub.script([], model=SECOND, then=refusing(401))
    bench.stub.script([], model=THIRD, then=Reply(text=GOOD_SUMMARY), window_tokens=4_200)
    agent = summarised(fallback_chain=(route(THIRD, context_length=4_200),))
    assert agent.compress().status.value == "committed"
    assert [request.refusal for request in bench.stub.requests_for(THIRD)] == [""] * len(
        bench.stub.requests_for(THIRD)
    )


def test_when_no_summary_route_answers_each_is_named_and_nothing_changes(
    bench: Bench, summarised: Callable[..., AIAgent]
) -> None:
    bench.stub.script([], model=SECOND, then=refusing(401))
    bench.stub.script([], model=THIRD, then=refusing(503))
    agent = summarised(fallback_chain=(route(THIRD),))
    before = bench.store.view("s").messages
    record = agent.compress()
    assert record.status.value == "failed"
    assert f"{SECOND} at {bench.stub.base_url} (auth)" in record.detail
    assert f"{THIRD} at {bench.stub.base_url} (overload)" in record.detail
    assert bench.store.view("s").messages == before


def test_without_a_summary_model_the_main_chain_writes_summaries(bench: Bench) -> None:
    bench.stub.script([], then=refusing(401))
    bench.stub.script([], model=SECOND, then=Reply(text=GOOD_SUMMARY))
    agent = bench.open(route(SECOND))
    agent.pending_messages()
    talk(agent, 6_000)
    assert agent.compress().model == SECOND
    assert agent.chat("hello") == GOOD_SUMMARY
    assert bench.asked == [FIRST, SECOND]
