"""The Codex app-server as a provider, against the stand-in process."""

from __future__ import annotations

import json
import shlex
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from agent.base.cancel import CancelToken
from agent.base.errors import (
    CallCancelled,
    CallStalled,
    CallTimeout,
    ContextOverflow,
    ModelUnavailable,
    NetworkError,
    OverloadError,
    ProviderError,
    RateError,
)
from agent.base.events import ApprovalRequested, Event, ToolFinished, ToolStarted
from agent.base.messages import Message
from agent.providers.codex_app_server import CodexAppServer
from agent.providers.codex_rpc import Connection
from agent.providers.handover import CLOSING, OPENING, hand_over
from agent.providers.protocol import (
    CallWatch,
    Delta,
    KeepsHistory,
    Limits,
    ModelReply,
    ModelRequest,
    TokenUsage,
)
from agent.testing.builders import assistant, call, image, result, system, user
from tests.best_of import best_of
from tests.running import Running

LIMITS = Limits(first_byte_s=10, idle_s=10, total_s=20)
Open = Callable[[], CodexAppServer]


class Folder:
    """What the stand-in keeps: its script and what it received."""

    def __init__(self, path: Path) -> None:
        self.path = path
        module = ["-m", "agent.testing.codex_app_server", str(path)]
        self.command = shlex.join([sys.executable, *module])

    def script(self, *steps: dict[str, Any]) -> None:
        (self.path / "script.json").write_text(json.dumps(steps))

    def received(self, method: str) -> list[dict[str, Any]]:
        """Return the parameters of every request of a method, oldest first."""
        lines = (self.path / "received.jsonl").read_text().splitlines()
        found = [json.loads(line) for line in lines]
        return [line.get("params", {}) for line in found if line.get("method") == method]

    def inputs(self) -> list[str]:
        """Return what each turn was given, as one text."""
        turns = self.received("turn/start")
        return ["\n".join(each.get("text", "") for each in turn["input"]) for turn in turns]


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    """The stand-in's folder."""
    path = tmp_path / "codex"
    path.mkdir()
    return Folder(path)


@pytest.fixture
def start(folder: Folder) -> Iterator[Open]:
    """A function that opens a provider on the stand-in; all are closed after the test."""
    opened: list[CodexAppServer] = []

    def open_one() -> CodexAppServer:
        opened.append(CodexAppServer(command=folder.command, model="m", window_tokens=16_000))
        return opened[-1]

    yield open_one
    for provider in opened:
        provider.close()


def ask(
    provider: CodexAppServer,
    *messages: Message,
    limits: Limits = LIMITS,
    watch: CallWatch | None = None,
    **fields: Any,
) -> ModelReply:
    request = ModelRequest(messages=messages or [user("hello")], **fields)
    return provider.complete(request, limits=limits, watch=watch or CallWatch())


def test_a_turn_is_heard_counted_and_kept(start: Open, folder: Folder) -> None:
    folder.script({"text": "good morning", "reasoning": "hm"})
    deltas: list[Delta] = []
    watch = CallWatch(on_delta=deltas.append, cwd="/somewhere")
    reply = ask(start(), system("Be brief."), user("hello"), watch=watch, compact_at=1)
    assert "".join(delta.text for delta in deltas) == "good morning"
    assert "".join(delta.reasoning for delta in deltas) == "hm"
    assert reply.message["content"] == "good morning"
    assert reply.finish_reason == "stop"
    assert reply.usage == TokenUsage(100, 10, cached=40, reasoning=4, in_window=100)
    assert folder.received("thread/start") == [
        {
            "cwd": "/somewhere",
            "approvalPolicy": "on-request",
            "sandbox": "workspace-write",
            "model": "m",
            "developerInstructions": "Be brief.",
        }
    ]
    assert folder.inputs() == ["hello"]


def test_a_thread_goes_on_with_what_is_new_also_after_a_restart(
    start: Open, folder: Folder
) -> None:
    provider = start()
    first = ask(provider, user("one")).message
    second = ask(provider, user("one"), first, user("two")).message
    provider.close()
    ask(start(), user("one"), first, user("two"), second, user("three"))
    assert folder.inputs() == ["one", "two", "three"]
    assert len(folder.received("thread/start")) == 1
    assert [each["threadId"] for each in folder.received("thread/resume")] == ["thread-0"]


def test_a_conversation_from_elsewhere_is_handed_over_once(start: Open, folder: Folder) -> None:
    made = call("read_file", {"path": "a"}, call_id="c1")
    history = [user("begin"), assistant("look", made), result(made, "found it"), user("and now?")]
    provider = start()
    reply = ask(provider, *history)
    ask(provider, *history, reply.message, user("next"))
    first, second = folder.inputs()
    assert first.startswith(OPENING)
    for said in ("user: begin", "read_file", "tool: found it"):
        assert said in first
    assert first.endswith(f"{CLOSING}\nand now?")
    assert second == "next"


def test_a_lost_thread_is_handed_over_again_once(start: Open, folder: Folder) -> None:
    reply = ask(start(), user("one")).message
    (folder.path / "thread-0").unlink()
    history = [user("one"), reply, user("two")]
    provider = start()
    again = ask(provider, *history).message
    ask(provider, *history, again, user("three"))
    assert folder.inputs()[1].startswith(OPENING)
    assert folder.inputs()[2] == "three"


def test_a_thread_whose_view_has_changed_is_left(start: Open, folder: Folder) -> None:
    provider = start()
    reply = ask(provider, user("one")).message | {"_seq": 2}
    ask(provider, user("one"), reply, user("two"), replay_from=3)
    assert folder.inputs()[1].startswith(OPENING)
    assert len(folder.received("thread/start")) == 2


def test_a_hand_over_is_bounded_and_says_what_is_missing() -> None:
    history = [user(f"{number} " + "word " * 200) for number in range(40)]
    told = [row for each in history for row in (each, assistant("noted"))]
    context, request = hand_over([*told, user([{"type": "text", "text": "now"}, image()])], 2_000)[
        :2
    ]
    assert "older messages are left out" in context["text"]
    assert "39 word" in context["text"]
    assert "20 word" not in context["text"]
    assert request["text"] == "now"


@pytest.mark.parametrize(("allowed", "decision"), [(True, "accept"), (False, "decline")])
def test_a_command_is_asked_about(
    start: Open, folder: Folder, allowed: bool, decision: str
) -> None:
    folder.script({"text": "it was", "approve": "rm -r build"})
    events: list[Event] = []
    asked: list[tuple[str, str]] = []

    def confirm(call_id: str, why: str) -> bool:
        asked.append((call_id, why))
        return allowed

    reply = ask(start(), watch=CallWatch(on_event=events.append, confirm=confirm))
    assert reply.message["content"] == f"it was ({decision})"
    assert asked == [("cmd", "codex wants to run 'rm -r build' (risky)")]
    assert [type(event) for event in events] == [ToolStarted, ApprovalRequested, ToolFinished]
    assert isinstance(events[2], ToolFinished)
    assert events[2].ok is allowed


def test_nobody_to_ask_means_no(start: Open, folder: Folder) -> None:
    folder.script({"text": "it was", "approve": "rm -r build"})
    assert ask(start()).message["content"] == "it was (decline)"


def test_several_messages_stand_apart(start: Open, folder: Folder) -> None:
    folder.script({"messages": ["looking", "found"]})
    deltas: list[Delta] = []
    reply = ask(start(), watch=CallWatch(on_delta=deltas.append))
    assert reply.message["content"] == "looking\n\nfound"
    assert "".join(delta.text for delta in deltas) == "looking\n\nfound"


FAULTS: dict[str, type[ProviderError]] = {
    "contextWindowExceeded": ContextOverflow,
    "rateLimitExceeded": RateError,
    "serverOverloaded": OverloadError,
}


@pytest.mark.parametrize(("name", "kind"), FAULTS.items())
def test_a_failed_turn_has_its_error(
    start: Open, folder: Folder, name: str, kind: type[ProviderError]
) -> None:
    folder.script({"text": "half", "fail": name})
    provider = start()
    with pytest.raises(ProviderError, match="it failed") as caught:
        ask(provider)
    assert type(caught.value) is kind
    assert ask(provider).message["content"] == "ok"


def test_a_process_that_ends_is_an_error_and_the_next_call_starts_another(
    start: Open, folder: Folder
) -> None:
    folder.script({"exit": True})
    provider = start()
    with pytest.raises(NetworkError, match=r"ended \(exit code 3\): the stand-in was told to exit"):
        ask(provider)
    assert ask(provider).message["content"] == "ok"


def test_what_a_process_said_as_it_ended_is_told_however_late_it_is_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ended, read = threading.Event(), Connection._read_errors

    def read_late(connection: Connection) -> None:
        ended.wait(10)
        threading.Event().wait(0.1)
        read(connection)

    monkeypatch.setattr(Connection, "_read_errors", read_late)
    connection = Connection("sh -c 'echo why >&2; exit 3'", "m")
    connection._process.wait(10)
    ended.set()
    with pytest.raises(NetworkError, match=r"ended \(exit code 3\): why"):
        connection.receive(10)
    connection.close()


def test_a_command_that_is_not_there_says_what_to_set() -> None:
    provider = CodexAppServer(command="no-such-codex app-server", model="", window_tokens=16_000)
    with pytest.raises(ModelUnavailable, match=r"set model\.command"):
        ask(provider)


@pytest.mark.parametrize(
    ("step", "limits", "kind"),
    [
        ({"hang": True}, Limits(first_byte_s=0.3, idle_s=10), CallTimeout),
        ({"text": "a", "hang": True}, Limits(first_byte_s=10, idle_s=0.3), CallStalled),
    ],
)
def test_silence_has_its_limits(
    start: Open, folder: Folder, step: dict[str, Any], limits: Limits, kind: type[ProviderError]
) -> None:
    folder.script({}, step)
    provider = start()
    ask(provider)
    with pytest.raises(ProviderError) as caught:
        ask(provider, limits=limits)
    assert type(caught.value) is kind


def test_a_cancel_interrupts_the_turn_and_the_thread_goes_on(start: Open, folder: Folder) -> None:
    steps: list[dict[str, Any]] = [{"text": "so far", "hang": True}, {"text": "ok"}]
    folder.script(*steps * 5)
    provider, interrupted = start(), list[str]()

    def cancel_one() -> float:
        call = Running(lambda watch: ask(provider, watch=watch))
        assert call.deltas.acquire(timeout=10)
        ended_after_s = call.cancel()
        assert ask(provider).message["content"] == "ok"
        interrupted.append(f"turn-{2 * len(interrupted)}")
        return ended_after_s

    assert best_of(cancel_one, 0.5) < 0.5
    assert [each["turnId"] for each in folder.received("turn/interrupt")] == interrupted


def test_a_stop_does_not_wait_for_a_person(start: Open, folder: Folder) -> None:
    folder.script({"text": "x", "approve": "rm"})
    token, released = CancelToken(), threading.Event()

    def confirm(_call_id: str, _why: str) -> bool:
        token.cancel()
        return released.wait(10)

    with pytest.raises(CallCancelled):
        ask(start(), watch=CallWatch(cancel=token, confirm=confirm))
    released.set()


def test_a_compaction_is_asked_for_and_one_of_its_own_is_noticed(
    start: Open, folder: Folder
) -> None:
    provider = start()
    assert isinstance(provider, KeepsHistory)
    assert provider.compact([], limits=LIMITS, watch=CallWatch()) == "codex_no_thread"
    folder.script({}, {}, {"text": "compacted", "compact": True})
    reply = ask(provider, user("one"))
    assert provider.compact([reply.message], limits=LIMITS, watch=CallWatch()) == ""
    assert folder.received("thread/compact/start") == [{"threadId": "thread-0"}]
    assert not provider.brought_compaction(reply.message)
    later = ask(provider, user("one"), reply.message, user("two"))
    assert provider.brought_compaction(later.message)
