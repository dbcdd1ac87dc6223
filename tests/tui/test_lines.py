"""Where line mode writes what, event by event."""

from __future__ import annotations

import io
import signal
import threading
from functools import partial

import pytest

from agent.base.events import (
    CompactionProgress,
    CompactionStarted,
    Event,
    Notice,
    TextDelta,
    ToolFinished,
    ToolStarted,
    TurnFinished,
)
from agent.base.settings import Settings
from agent.testing.scripted import Scripted, ScriptedProvider
from agent.tui.chat import Chat, find_pass
from agent.tui.failures import Failure
from agent.tui.lines import JsonScreen, LineScreen, run_job
from agent.tui.render import Line
from hermes_state import SessionDB
from tests.tui.conftest import OpenScripted

STARTED = CompactionStarted(pass_id="p", trigger="overflow", strategy="builtin")


def progress(tokens_out: int) -> CompactionProgress:
    return CompactionProgress(pass_id="p", tokens_out=tokens_out, elapsed_s=1.0)


def shown(*events: Event, live: bool) -> tuple[str, str]:
    out, err = io.StringIO(), io.StringIO()
    screen = LineScreen(out, err, lambda _pass_id: None, live=live)
    for event in events:
        screen.event(event)
    screen.settled()
    screen.wait()
    return out.getvalue(), err.getvalue()


def test_the_final_text_alone_is_the_answer_when_nobody_reads_along() -> None:
    events = (
        TextDelta(text="let me look"),
        ToolStarted(name="shell", arguments={"command": "ls"}, call_id="c"),
        ToolFinished(call_id="c", ok=True, bytes=2, duration_ms=10),
        TextDelta(text="two\nfiles"),
        Notice(level="warning", text="mind the gap"),
        TurnFinished(final_text="two\nfiles", stop_reason="stop"),
    )
    assert shown(*events, live=False) == (
        "two\nfiles\n",
        "→ shell: ls\n← shell 2 B, 0.0 s\nmind the gap\n",
    )


def test_an_empty_answer_writes_no_line() -> None:
    finished = TurnFinished(final_text="", stop_reason="error")
    assert shown(finished, live=False) == shown(finished, live=True) == ("", "")


def test_the_text_is_streamed_for_a_person_and_lines_end_before_tools() -> None:
    events = (
        TextDelta(text="let me "),
        TextDelta(text="look\x1b[2J"),
        ToolStarted(name="shell", arguments={"command": "ls"}, call_id="c"),
        TextDelta(text="two"),
        TurnFinished(final_text="two", stop_reason="stop"),
    )
    assert shown(*events, live=True) == ("let me look\\x1b[2J\ntwo\n", "→ shell: ls\n")


def test_progress_stands_in_one_place_for_a_person() -> None:
    notice = Notice(level="info", text="done")
    assert shown(STARTED, progress(0), progress(8), notice, live=True)[1] == (
        "compacting the conversation (trigger: overflow)\n"
        "\r\x1b[K\rcompacting: 1.0 s, the model is reading\x1b[K"
        "\r\x1b[K\rcompacting: 1.0 s, 8 summary tokens\x1b[K"
        "\r\x1b[Kdone\n"
    ).replace("\n\r\x1b[K\r", "\n\r", 1)


def test_progress_is_told_now_and_then_otherwise() -> None:
    assert shown(STARTED, progress(0), progress(8), live=False)[1] == (
        "compacting the conversation (trigger: overflow)\ncompacting: 1.0 s, the model is reading\n"
    )


def test_a_failure_is_one_line_and_its_code_stays() -> None:
    out, err = io.StringIO(), io.StringIO()
    screen = LineScreen(out, err, lambda _pass_id: None)
    screen.failed(Failure("the key was refused", 3))
    screen.show([Line("and on")])
    screen.flush()
    assert (screen.exit_code, out.getvalue(), err.getvalue()) == (
        3,
        "and on\n",
        "hermes: the key was refused\n",
    )


def test_among_events_only_json_reaches_the_output() -> None:
    out, err = io.StringIO(), io.StringIO()
    screen = JsonScreen(out, err)
    screen.event(TextDelta(text="a\nb", session_id="s", turn_id="t", at=1.5))
    screen.show([Line("help")])
    screen.flush()
    assert out.getvalue() == (
        '{"type":"text_delta","session_id":"s","turn_id":"t","at":1.5,"text":"a\\nb"}\n'
    )
    assert err.getvalue() == "help\n"


def test_an_interrupt_before_a_job_is_waited_for_stops_it(store: SessionDB) -> None:
    out, err = io.StringIO(), io.StringIO()
    screen = LineScreen(out, err, partial(find_pass, store))
    held = Scripted("never", hold=threading.Event())
    provider = ScriptedProvider([held])
    chat = Chat(OpenScripted(provider, Settings(), store), screen, store)
    chat.switch(None)

    def interrupted_at_once() -> None:
        chat.say("one")
        provider.wait_for_requests(1)
        signal.raise_signal(signal.SIGINT)

    run_job(chat, screen, interrupted_at_once)
    run_job(chat, screen, partial(chat.say, "two"))
    with pytest.raises(KeyboardInterrupt):
        run_job(chat, screen, partial(signal.raise_signal, signal.SIGINT))
    chat.close()
    assert (out.getvalue(), err.getvalue()) == ("ok\n", "hermes: the turn was stopped\n")
