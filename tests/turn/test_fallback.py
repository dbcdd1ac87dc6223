"""A route that fails rests, the next one answers, and people are told."""

from __future__ import annotations

from dataclasses import replace

import pytest

from agent.base.errors import AuthError, ContextCannotFit, RateError, SettingsError
from agent.base.events import TextDelta
from agent.base.settings import CompressionSettings, RouteSettings
from agent.testing.stub_reply import RecordedRequest, Reply
from agent.testing.stub_server import StubModelServer
from agent.testing.summaries import GOOD_SUMMARY
from tests.turn.route_bench import FIRST, SECOND, THIRD, Bench, refusing, route, talk

BUSY = Reply(status=503, error="no capacity")


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


def test_a_fallback_that_cannot_be_opened_is_told_before_it_is_needed(bench: Bench) -> None:
    agent = bench.open(route(SECOND), route(THIRD, base_url="h/v1"))
    with pytest.raises(SettingsError) as caught:
        agent.chat("hello")
    assert str(caught.value) == (
        "model.fallbacks[1]: model.base_url 'h/v1' is no http or https address; set it to one "
        "such as 'https://host/v1'"
    )
    assert bench.asked == []


def test_the_embedded_model_may_stand_in(bench: Bench) -> None:
    agent = bench.open(RouteSettings(api_mode="local"))
    chain = agent.routes
    agent.use_route(chain.next_after([chain.current], 0) or chain.current)
    assert (agent.provider.one_slot, agent.tools) == (True, {})


# -- windows --------------------------------------------------------------------------------------


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


# -- the store is shared --------------------------------------------------------------------------


def test_a_call_that_began_before_a_failure_neither_ends_its_rest_nor_adds_to_it(
    bench: Bench,
) -> None:
    first, late = (bench.open(route(SECOND)).routes.current for _ in range(2))
    began = bench.clock.now()
    bench.clock.advance(5)
    until = first.failed(AuthError("no"), bench.clock.now())
    late.failed(AuthError("no"), began)
    late.answered(began)
    assert (first.rested_until(), late.rested_until()) == (until, until)
    bench.clock.advance(1)
    late.answered(bench.clock.now())
    assert first.rested_until() == 0
