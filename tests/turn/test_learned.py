"""What a provider says of its model is learned, used at once, and kept for later processes."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from agent.base.errors import NetworkError
from agent.base.events import Event, Notice
from agent.base.images import IMAGE_WORD
from agent.base.settings import CompressionSettings, ModelSettings, Settings
from agent.sessions.routes import RouteKey
from agent.testing.clock import FakeClock
from agent.testing.stub_reply import RecordedRequest, Reply
from agent.testing.stub_server import StubModelServer
from agent.testing.stub_strict import count_tokens
from agent.testing.summaries import GOOD_SUMMARY
from agent.turn.routes import switched
from hermes_state import SessionDB
from run_agent import AIAgent, TurnResult

UNKNOWN = "nobody-knows"
PICTURE = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}
TALK = "the river carried a stone past an old mill while seven boats lay at a pier "

OpenAgent = Callable[..., AIAgent]


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def store(tmp_path: Path, clock: FakeClock) -> Iterator[SessionDB]:
    database = SessionDB(tmp_path / "state.db", clock=clock)
    yield database
    database.close()


@pytest.fixture
def events() -> list[Event]:
    return []


@pytest.fixture
def open_agent(
    stub: StubModelServer, store: SessionDB, clock: FakeClock, events: list[Event]
) -> Iterator[OpenAgent]:
    opened: list[AIAgent] = []

    def open_one(name: str = UNKNOWN, **model: Any) -> AIAgent:
        agent = AIAgent(
            settings=Settings(
                model=ModelSettings(**{"name": name, "base_url": stub.base_url, **model}),
                compression=CompressionSettings(background=False),
            ),
            session_db=store,
            session_id="s",
            clock=clock,
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


def paths(stub: StubModelServer) -> list[str]:
    return [request.path.removeprefix("/v1") for request in stub.requests]


def summarising(stub: StubModelServer, model: str, window_tokens: int) -> None:
    def answer(request: RecordedRequest) -> Reply:
        is_turn = request.messages[0]["role"] == "system"
        return Reply(text="ok" if is_turn else GOOD_SUMMARY)

    stub.script(answer, model=model, window_tokens=window_tokens)


# -- windows --------------------------------------------------------------------------------------


def test_a_window_that_nobody_knows_is_read_off_the_list_of_models_once(
    stub: StubModelServer, open_agent: OpenAgent
) -> None:
    stub.script([], model=UNKNOWN, window_tokens=9_000)
    agent = open_agent()
    for _ in range(2):
        agent.chat("hello")
    assert agent.window_tokens == 9_000
    assert paths(stub) == ["/models", "/chat/completions", "/chat/completions"]
    later = open_agent()
    later.chat("hello")
    assert later.window_tokens == 9_000
    assert paths(stub).count("/models") == 1


def test_a_stop_while_the_list_of_models_is_asked_for_stops_the_turn(
    open_agent: OpenAgent, events: list[Event]
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        agent = open_agent(base_url=f"http://127.0.0.1:{silent.getsockname()[1]}/v1")
        results: list[TurnResult] = []
        thread = threading.Thread(target=lambda: results.append(agent.run_conversation("hello")))
        thread.start()
        connection, _address = silent.accept()
        agent.interrupt()
        thread.join(10)
        connection.close()
    assert [result.stop_reason for result in results] == ["interrupted"]
    assert agent.window_tokens == 128_000


@pytest.mark.parametrize(
    ("name", "context_length", "window_tokens"),
    [("gpt-4o", 0, 128_000), (UNKNOWN, 20_000, 20_000)],
    ids=["a known family", "a window that was set"],
)
def test_a_window_that_is_known_is_not_asked_for(
    stub: StubModelServer,
    open_agent: OpenAgent,
    name: str,
    context_length: int,
    window_tokens: int,
) -> None:
    agent = open_agent(name, context_length=context_length)
    agent.chat("hello")
    assert agent.window_tokens == window_tokens
    assert paths(stub) == ["/chat/completions"]


def test_an_endpoint_that_cannot_be_asked_leaves_the_safe_window(
    open_agent: OpenAgent,
) -> None:
    with socket.socket() as deaf:
        deaf.bind(("127.0.0.1", 0))
        agent = open_agent(base_url=f"http://127.0.0.1:{deaf.getsockname()[1]}/v1")
        with pytest.raises(NetworkError):
            agent.chat("hello")
    assert agent.window_tokens == 128_000


def test_a_window_that_an_overflow_names_is_kept_for_later_processes(
    stub: StubModelServer, open_agent: OpenAgent, store: SessionDB, clock: FakeClock
) -> None:
    summarising(stub, "gpt-4o", 6_000)
    agent = open_agent("gpt-4o")
    agent.pending_messages()
    while store.view("s").tokens < 7_000:
        store.append(
            "s", [{"role": "user", "content": TALK * 4}, {"role": "assistant", "content": TALK}]
        )
    assert agent.chat("hello") == "ok"
    assert agent.window_tokens == 6_000
    refused = [request.refusal for request in stub.requests if request.refusal]
    assert len(refused) <= 2
    later = open_agent("gpt-4o")
    assert later.window_tokens == 6_000
    known = store.routes.read(RouteKey("chat_completions", stub.base_url, "gpt-4o"))
    assert (known.window_tokens, known.learned_from) == (6_000, "overflow")
    assert open_agent("gpt-4o", context_length=5_000).window_tokens == 5_000
    assert open_agent("gpt-4o", context_length=50_000).window_tokens == 6_000
    clock.advance(86_401)
    assert open_agent("gpt-4o").window_tokens == 128_000


@pytest.mark.parametrize("name", ["gpt-3.5-turbo", UNKNOWN], ids=["by name", "by listing"])
def test_a_switch_to_a_smaller_window_compacts_before_the_first_request(
    stub: StubModelServer, open_agent: OpenAgent, store: SessionDB, name: str
) -> None:
    summarising(stub, name, 16_385)
    agent = open_agent("gpt-4o")
    agent.pending_messages()
    while store.view("s").tokens < 30_000:
        store.append(
            "s", [{"role": "user", "content": TALK * 9}, {"role": "assistant", "content": TALK}]
        )
    assert agent.chat("hello") == "ok"
    agent.switch_model(name)
    assert agent.chat("hello again") == "ok"
    assert agent.window_tokens == 16_385
    sizes = [count_tokens(request.messages) for request in stub.requests_for(name)]
    assert max(sizes) <= 16_385
    assert [request.refusal for request in stub.requests] == [""] * len(stub.requests)
    assert {row.status.value for row in store.passes("s")} == {"committed"}


@pytest.mark.parametrize(
    ("base_url", "name", "context_length"),
    [
        ("https://h.example/v1", "gpt-4", 0),
        ("https://h.example/v1", "gpt-4o", 20_000),
        ("http://127.0.0.1:8000/v1", "gpt-4", 8_192),
        ("http://127.0.0.1:8000/v1", "gpt-4.1", 20_000),
        ("http://127.0.0.1:8000/v1", UNKNOWN, 20_000),
    ],
    ids=["another", "the same", "a smaller one here", "a larger one here", "unknown"],
)
def test_a_window_that_was_set_belongs_to_its_model(
    base_url: str, name: str, context_length: int
) -> None:
    settings = Settings(
        model=ModelSettings(name="gpt-4o", base_url=base_url, context_length=20_000)
    )
    model = replace(settings.model, name=name, context_length=context_length)
    assert switched(settings, name) == replace(settings, model=model)


# -- images and answers ---------------------------------------------------------------------------


def show(store: SessionDB) -> None:
    look = [{"type": "text", "text": "what is this?"}, PICTURE]
    store.append("s", [{"role": "user", "content": look}, {"role": "assistant", "content": "hm"}])


def shown_to(request: RecordedRequest) -> Any:
    return request.messages[1]["content"]


LABELLED = [{"type": "text", "text": "what is this?"}, {"type": "text", "text": IMAGE_WORD}]
SEEN = [{"type": "text", "text": "what is this?"}, PICTURE]


@pytest.mark.parametrize(
    ("name", "support", "shown"),
    [
        ("gpt-4o", "auto", SEEN),
        (UNKNOWN, "auto", SEEN),
        ("deepseek-chat", "auto", LABELLED),
        ("deepseek-chat", "on", SEEN),
        ("gpt-4o", "off", LABELLED),
    ],
)
def test_images_go_only_to_a_model_that_may_take_them(
    stub: StubModelServer,
    open_agent: OpenAgent,
    store: SessionDB,
    name: str,
    support: str,
    shown: Any,
) -> None:
    agent = open_agent(name, image_support=support, context_length=32_000)
    agent.pending_messages()
    show(store)
    agent.chat("well?")
    assert shown_to(stub.requests[-1]) == shown
    assert store.view("s").messages[0]["content"] == SEEN


def test_a_refusal_of_images_is_learned_and_the_turn_goes_on(
    stub: StubModelServer, open_agent: OpenAgent, store: SessionDB, events: list[Event]
) -> None:
    def answer(request: RecordedRequest) -> Reply:
        if "image_url" in str(request.messages):
            return Reply(status=400, error="m is not a multimodal model")
        return Reply(text="a label")

    stub.script(answer)
    agent = open_agent(context_length=32_000)
    agent.pending_messages()
    show(store)
    assert agent.chat("well?") == "a label"
    assert shown_to(stub.requests[-1]) == LABELLED
    [told] = [event.text for event in events if isinstance(event, Notice)]
    assert told.startswith(f"{UNKNOWN} at {stub.base_url} takes no images")
    later = open_agent(context_length=32_000)
    assert later.chat("and now?") == "a label"
    assert (later.takes_images, len(stub.requests)) == (False, 3)


@pytest.mark.parametrize(
    "said",
    [
        "max_tokens is too large: 9000. This model supports at most 2048 completion tokens",
        "max_tokens: 9000 > 2048, which is the maximum allowed number of output tokens",
        "`max_tokens` must be less than or equal to `2048`, the maximum value",
        "Invalid max_tokens value, the valid range of max_tokens is [1, 2048]",
    ],
    ids=["openai", "anthropic", "groq", "deepseek"],
)
def test_the_largest_answer_that_a_refusal_names_is_learned(
    stub: StubModelServer, open_agent: OpenAgent, said: str
) -> None:
    def answer(request: RecordedRequest) -> Reply:
        return Reply() if request.body["max_tokens"] <= 2_048 else Reply(status=400, error=said)

    stub.script(answer)
    agent = open_agent(context_length=64_000, max_output_tokens=9_000)
    assert agent.chat("hello") == "ok"
    assert [request.body["max_tokens"] for request in stub.requests] == [9_000, 2_048]
    later = open_agent(context_length=64_000, max_output_tokens=9_000)
    assert (agent.reserve_tokens, later.reserve_tokens) == (2_048, 2_048)
