"""The real library: what arrives at its file exporter, and what a mark does to the next call."""

from __future__ import annotations

import asyncio
import contextvars
import json
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import nemo_relay
import pytest

from agent import relay_runtime
from agent.compaction_events import Payload, attempt_payload, event_name
from agent.relay_compaction import emit_compaction_mark
from agent.relay_runtime import (
    RUNTIME_INSTANCE_KEY,
    SCHEMA_KEY,
    SCHEMA_VERSION,
    ConversationLease,
    RelayHostRegistry,
    RelayRuntime,
    RelaySessionCoordinator,
    RelayTurnContext,
)

HISTORY: list[Any] = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": "One?"},
    {"role": "assistant", "content": "Two."},
    {"role": "user", "content": "Three?"},
]
PROJECTED = [HISTORY[0], HISTORY[3]]


class Trace:
    """The file that the library's exporter writes."""

    def __init__(self, folder: Path) -> None:
        config = nemo_relay.AtofExporterConfig()
        config.output_directory = str(folder)
        config.filename = "events.jsonl"
        self._path = folder / "events.jsonl"
        self._exporter = nemo_relay.AtofExporter(config)
        self._exporter.register("hermes-test")

    def events(self) -> list[dict[str, Any]]:
        """Return every event so far, oldest first."""
        self._exporter.force_flush()
        return [json.loads(line) for line in self._path.read_text("utf-8").splitlines()]

    def close(self) -> None:
        self._exporter.deregister("hermes-test")
        self._exporter.shutdown()


@pytest.fixture
def trace(tmp_path: Path) -> Iterator[Trace]:
    trace = Trace(tmp_path)
    yield trace
    trace.close()


@pytest.fixture
def host(registry: RelayHostRegistry) -> Iterator[RelayRuntime]:
    host = registry.for_profile()
    assert isinstance(host, RelayRuntime)
    yield host
    host.shutdown()


def acquire(coordinator: RelaySessionCoordinator, session_id: str) -> ConversationLease:
    return coordinator.acquire_conversation(
        profile_key=relay_runtime.current_profile_key(), session_id=session_id, platform="cli"
    )


def payload(session_id: str, status: str) -> Payload:
    return attempt_payload({"session_id": session_id, "commit_status": status})


def emit(data: Payload) -> None:
    assert emit_compaction_mark(data["session_id"], event_name(data), data) is True


def in_place(call: Callable[[], None]) -> None:
    """Call here."""
    call()


def in_a_worker(call: Callable[[], None]) -> None:
    """Call in a thread with a copy of this context, as an attempt does."""
    worker = threading.Thread(target=contextvars.copy_context().run, args=(call,))
    worker.start()
    worker.join()


def in_asyncio(call: Callable[[], None]) -> None:
    """Call from a task of a loop, and from a thread that the loop runs it in."""

    async def task() -> None:
        await asyncio.to_thread(call)

    async def main() -> None:
        await asyncio.create_task(task())

    asyncio.run(main())


def in_a_task(call: Callable[[], None]) -> None:
    """Call in a task of a loop itself."""

    async def task() -> None:
        call()

    async def main() -> None:
        await asyncio.create_task(task())

    asyncio.run(main())


PLACES = pytest.mark.parametrize("place", [in_place, in_a_worker, in_asyncio, in_a_task])


def start_model(lease: ConversationLease) -> None:
    """Make a managed model call on the lease's session, with the whole history."""
    host = lease.live_runtime()
    assert host is not None
    assert lease.session is not None
    request = nemo_relay.LLMRequest({}, {"messages": HISTORY, "model": "m"})

    async def answer(_request: Any) -> Any:
        return {"id": "r", "choices": []}

    async def call() -> None:
        codec = nemo_relay.codecs.OpenAIChatCodec()
        await nemo_relay.llm.execute("m", request, answer, codec=codec)

    host.run_in_session(lease.session, lambda: asyncio.run(call()), timeout=10.0)


def starts(trace: Trace) -> list[Any]:
    """Return what the model calls recorded as their history."""
    return [
        event["data"]["content"]["messages"]
        for event in trace.events()
        if event.get("category") == "llm" and event.get("scope_category") == "start"
    ]


def without_when(event: dict[str, Any]) -> dict[str, Any]:
    """Return an event without its own id and time, which nobody can foretell."""
    return {key: value for key, value in event.items() if key not in ("uuid", "timestamp")}


@dataclass
class Scopes:
    """The events that one session must leave, whole."""

    host: RelayRuntime
    session_id: str
    handle: Any

    def _event(self, name: str, parent: str | None, **facts: Any) -> dict[str, Any]:
        metadata = {SCHEMA_KEY: SCHEMA_VERSION, RUNTIME_INSTANCE_KEY: self.host.runtime_id}
        return {
            "atof_version": "0.1",
            "name": name,
            "parent_uuid": parent,
            "propagation_root_uuid": self.handle.uuid,
            "category_profile": None,
            "data_schema": None,
            **facts,
            "metadata": metadata | facts.get("metadata", {}),
        }

    def _scope(
        self, name: str, parent: str | None, edge: str, outcome: str, **facts: Any
    ) -> dict[str, Any]:
        data = {"outcome": outcome} if outcome else None
        fixed: dict[str, Any] = {
            "kind": "scope",
            "attributes": [],
            "scope_category": edge,
            "data": data,
        }
        return self._event(name, parent, **fixed, **facts)

    def session(self, edge: str, outcome: str = "") -> dict[str, Any]:
        metadata = {"hermes.session_id": self.session_id, "hermes.platform": "cli"}
        parent = self.handle.parent_uuid
        return self._scope(
            "hermes.session", parent, edge, outcome, category="agent", metadata=metadata
        )

    def turn(self, edge: str, turn: RelayTurnContext, outcome: str = "") -> dict[str, Any]:
        metadata = {"hermes.turn_id": turn.turn_id, "hermes.task_id": turn.task_id}
        parent = self.handle.uuid
        return self._scope(
            "hermes.turn", parent, edge, outcome, category="function", metadata=metadata
        )

    def mark(self, turn: RelayTurnContext, data: Payload) -> dict[str, Any]:
        parent = turn.handle.uuid
        schema = {"name": "hermes.compaction", "version": "1"}
        return self._event(
            event_name(data), parent, kind="mark", category=None, data=data, data_schema=schema
        )


def scopes_of(host: RelayRuntime, lease: ConversationLease) -> Scopes:
    assert lease.session is not None
    return Scopes(host, lease.session_id, lease.session.handle)


@PLACES
def test_marks_and_scopes_arrive_whole_and_below_the_right_parents(
    place: Callable[[Callable[[], None]], None],
    trace: Trace,
    host: RelayRuntime,
    coordinator: RelaySessionCoordinator,
) -> None:
    committed, blocked = payload("s2", "committed"), payload("s1", "blocked")
    first, second = acquire(coordinator, "s1"), acquire(coordinator, "s2")
    outer = coordinator.begin_turn(first, turn_id="t1", task_id="job")
    inner = coordinator.begin_turn(second, turn_id="t2", task_id="job")
    place(lambda: emit(committed))
    coordinator.end_turn(inner, outcome="stop")
    place(lambda: emit(blocked))
    coordinator.end_turn(outer, outcome="error")
    coordinator.release_conversation(first)
    coordinator.release_conversation(second)

    s1, s2 = scopes_of(host, first), scopes_of(host, second)
    assert [without_when(event) for event in trace.events()] == [
        s1.session("start"),
        s2.session("start"),
        s1.turn("start", outer),
        s2.turn("start", inner),
        s2.mark(inner, committed),
        s2.turn("end", inner, "stop"),
        s1.mark(outer, blocked),
        s1.turn("end", outer, "error"),
        s1.session("end", "closed"),
        s2.session("end", "closed"),
    ]


@PLACES
def test_a_committed_pass_makes_the_next_model_call_full_and_a_blocked_one_does_not(
    place: Callable[[Callable[[], None]], None],
    trace: Trace,
    host: RelayRuntime,
    coordinator: RelaySessionCoordinator,
) -> None:
    first, second = acquire(coordinator, "s1"), acquire(coordinator, "s2")
    turn = coordinator.begin_turn(first, turn_id="t1", task_id="job")
    for lease in (first, first, second):
        start_model(lease)
    place(lambda: emit(payload("s1", "blocked")))
    start_model(first)
    place(lambda: emit(payload("s1", "committed")))
    for lease in (first, first, second):
        start_model(lease)
    coordinator.end_turn(turn, outcome="stop")
    emit(payload("s2", "committed"))
    for lease in (first, second):
        start_model(lease)

    assert starts(trace) == [
        *(HISTORY, PROJECTED, HISTORY),
        PROJECTED,
        *(HISTORY, PROJECTED, PROJECTED),
        *(PROJECTED, HISTORY),
    ]


def test_a_mark_from_a_context_that_knows_no_turn_still_refreshes_its_session(
    trace: Trace, host: RelayRuntime, coordinator: RelaySessionCoordinator
) -> None:
    lease = acquire(coordinator, "s1")
    turn = coordinator.begin_turn(lease, turn_id="t1", task_id="job")
    start_model(lease)
    bare = threading.Thread(target=lambda: emit(payload("s1", "committed")))
    bare.start()
    bare.join()
    start_model(lease)
    coordinator.end_turn(turn, outcome="stop")

    [mark] = [event for event in trace.events() if event["kind"] == "mark"]
    assert lease.session is not None
    assert mark["parent_uuid"] == lease.session.handle.uuid
    assert starts(trace) == [HISTORY, HISTORY]


def test_scopes_that_were_left_open_are_closed_with_their_turn(
    trace: Trace, host: RelayRuntime, coordinator: RelaySessionCoordinator
) -> None:
    lease = acquire(coordinator, "s1")
    turn = coordinator.begin_turn(lease, turn_id="t1", task_id="job")
    for _ in range(3):
        coordinator.begin_call(turn, model="m")
    coordinator.end_turn(turn, outcome="stop")
    next_turn = coordinator.begin_turn(lease, turn_id="t2", task_id="job")
    coordinator.end_turn(next_turn, outcome="stop")

    assert lease.session is not None
    assert next_turn.handle.parent_uuid == lease.session.handle.uuid
    assert [event["name"] for event in trace.events() if event.get("scope_category") == "end"] == [
        *["hermes.logical_llm_call"] * 3,
        "hermes.turn",
        "hermes.turn",
    ]


def test_a_subscriber_that_blocks_for_ever_delays_no_pass(
    host: RelayRuntime, coordinator: RelaySessionCoordinator
) -> None:
    entered, free = threading.Event(), threading.Event()

    def block(_event: Any) -> None:
        entered.set()
        free.wait()

    nemo_relay.subscribers.register("hermes-blocked", block)
    try:
        lease = acquire(coordinator, "s1")
        for _ in range(10):
            emit(payload("s1", "committed"))
        coordinator.release_conversation(lease)
        assert entered.wait(10)
        assert host.stalled is False
    finally:
        free.set()
        nemo_relay.subscribers.deregister("hermes-blocked")
        nemo_relay.subscribers.flush()
