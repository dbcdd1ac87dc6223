"""The interactive session, driven by keys, read from what is drawn."""

from __future__ import annotations

import re
import threading

import pytest
from prompt_toolkit.application import Application

from agent.base.errors import AuthError
from agent.base.settings import Settings, ToolSettings
from agent.sessions.records import PassStatus
from agent.testing.builders import call, conversation
from agent.testing.scripted import Scripted, ScriptedProvider
from agent.testing.summaries import GOOD_SUMMARY
from agent.tui.chat import Chat
from agent.tui.interactive import Terminal
from tests.tui.conftest import Desk, Paper, Seat

COLOUR = re.compile(r"\x1b\[(?:\d+;)*(?:3[0-7]|9[0-7]|38|48)(?:;\d+)*m")


def fill(desk: Desk) -> None:
    """Give the open session something to compact."""
    desk.store.create_session(desk.chat.agent.session_id, "test")
    rows = conversation(30)
    for row in rows:
        row["content"] += ", which was said at some length and in some detail" * 4
    desk.store.append(desk.chat.agent.session_id, rows)


def test_an_answer_is_rendered_and_the_meter_shows_what_it_filled(sit: Seat) -> None:
    desk = sit(ScriptedProvider(["# Title\n\nSome **bold** text.\n\n- one\n- two\n"]))
    desk.see("scripted |")
    desk.send("hello there")
    desk.see("› hello there", "Title", "Some bold text.", "• one", "• two")
    desk.see("/ 123,904 tokens, 1 %")
    session_id = desk.chat.agent.session_id
    assert desk.leave() == 0
    desk.see(f"go on with: hermes chat --session {session_id}")


def test_a_message_typed_during_a_turn_is_stored_at_once_and_sent_next(sit: Seat) -> None:
    held = threading.Event()
    provider = ScriptedProvider([Scripted("first answer", hold=held)], then="next answer")
    desk = sit(provider)
    desk.send("first question")
    provider.wait_for_requests(1)
    desk.send("second question")
    desk.see("queued: second question", "1 queued")
    desk.send("third question")
    desk.see("queued: third question")
    assert desk.users() == ["first question", "second question", "third question"]
    held.set()
    desk.see("first answer", "› second question", "› third question", "next answer")
    sent = [message["content"] for message in provider.requests[-1].messages]
    assert [text for text in sent if text and "question" in text][-1].endswith("third question")
    assert desk.leave() == 0


def test_a_first_interrupt_stops_the_turn_and_a_second_one_leaves(sit: Seat) -> None:
    provider = ScriptedProvider([Scripted("never", hold=threading.Event())])
    desk = sit(provider)
    desk.send("question")
    provider.wait_for_requests(1)
    desk.type("\x03")
    desk.see("the turn was stopped")
    assert desk.users() == ["question"]
    assert desk.leave("\x03") == 130


def test_an_interrupt_that_comes_as_a_turn_ends_is_none_for_the_next_one(
    sit: Seat, monkeypatch: pytest.MonkeyPatch
) -> None:
    held = [threading.Event(), threading.Event()]
    provider = ScriptedProvider([Scripted("one", hold=held[0]), Scripted("two", hold=held[1])])
    settled = threading.Semaphore(0)
    settle, is_busy = Terminal.settled, vars(Chat)["busy"].fget

    def busy_until_it_has_settled(chat: Chat) -> bool:
        busy = bool(is_busy(chat))
        if busy and not held[0].is_set():
            held[0].set()
            assert settled.acquire(timeout=10)
        return busy

    def settled_and_told(terminal: Terminal) -> None:
        settle(terminal)
        settled.release()

    monkeypatch.setattr(Terminal, "settled", settled_and_told)
    desk = sit(provider)
    desk.send("first")
    provider.wait_for_requests(1)
    monkeypatch.setattr(Chat, "busy", property(busy_until_it_has_settled))
    desk.type("\x03")
    desk.see("one", "tokens, 1 %")
    desk.send("second")
    provider.wait_for_requests(2)
    desk.type("\x03")
    desk.see("the turn was stopped")
    assert desk.codes == []


def test_stop_ends_a_turn_and_the_session_goes_on(sit: Seat) -> None:
    provider = ScriptedProvider([Scripted("never", hold=threading.Event()), "fine"])
    desk = sit(provider)
    desk.send("question")
    provider.wait_for_requests(1)
    desk.send("/stop")
    desk.see("the turn was stopped")
    desk.send("again")
    desk.see("› again", "fine")


def test_an_interrupt_clears_what_is_typed_before_it_leaves(sit: Seat) -> None:
    desk = sit(ScriptedProvider())
    desk.type("half a mess")
    desk.see("half a mess")
    desk.type("\x03")
    desk.send("whole")
    desk.see("› whole", "ok", "tokens, 1 %")
    assert desk.users() == ["whole"]
    assert desk.leave("\x03") == 130


def test_a_screen_that_closes_as_the_worker_draws_does_not_end_the_worker(
    sit: Seat, monkeypatch: pytest.MonkeyPatch
) -> None:
    draw = Application.invalidate

    def closed_for_the_worker(app: Application[int]) -> None:
        if threading.current_thread().name == "hermes-turns":
            raise RuntimeError("Event loop is closed")
        draw(app)

    monkeypatch.setattr(Application, "invalidate", closed_for_the_worker)
    desk = sit(ScriptedProvider(["one", "two"]))
    desk.send("first")
    desk.see("one")
    desk.send("second")
    desk.see("two")
    assert desk.leave() == 0


def test_a_pasted_text_of_several_lines_is_one_message(sit: Seat) -> None:
    desk = sit(ScriptedProvider())
    desk.type("\x1b[200~line one\nline two\x1b[201~")
    desk.type("\x1b\rline three\r")
    desk.see("ok")
    assert desk.users() == ["line one\nline two\nline three"]


def test_a_command_is_completed_by_tab(sit: Seat) -> None:
    desk = sit(ScriptedProvider())
    desk.type("/us")
    desk.see("age")
    desk.type("\t\r")
    desk.see("› /usage", "model calls 0")


def test_an_unknown_command_names_the_nearest(sit: Seat) -> None:
    desk = sit(ScriptedProvider())
    desk.send("/compacton")
    desk.see("unknown command '/compacton'; did you mean /compactions?")
    desk.send("/etc/hosts is what?")
    desk.see("ok")
    assert desk.users() == ["/etc/hosts is what?"]


def test_a_failed_turn_is_one_line_and_the_session_goes_on(sit: Seat) -> None:
    desk = sit(ScriptedProvider([AuthError("the key was refused; set another"), "fine"]))
    desk.send("one")
    desk.see("the key was refused; set another")
    desk.send("two")
    desk.see("fine")


def test_text_that_would_drive_the_terminal_is_made_visible(sit: Seat) -> None:
    desk = sit(ScriptedProvider(["before \x1b]0;title\x07 after"]))
    desk.send("go")
    desk.see("before \\x1b]0;title\\x07 after")


@pytest.mark.parametrize(
    ("answer", "done"), [("y", True), ("YES", True), ("n", False), ("always", True)]
)
def test_a_tool_call_is_asked_for(answer: str, done: bool, sit: Seat, tmp_path: object) -> None:
    target = f"{tmp_path}/note.txt"
    write = call("write_file", {"path": target, "content": "x"})
    settings = Settings(tools=ToolSettings(allowed_paths=(str(tmp_path),)))
    desk = sit(
        ScriptedProvider([Scripted(None, tool_calls=[write])], then="bye"), settings=settings
    )
    desk.send("write it")
    desk.see("[a]lways allow write_file in this chat")
    desk.send(answer)
    desk.see("bye")
    result = next(
        row.message["content"]
        for row in desk.store.history(desk.chat.agent.session_id)
        if row.message["role"] == "tool"
    )
    assert ("refused by the user" not in result) is done


def test_a_tool_allowed_for_good_is_not_asked_for_again(sit: Seat) -> None:
    calls = [Scripted(None, tool_calls=[call("shell", {"command": f"echo {n}"})]) for n in (1, 2)]
    desk = sit(ScriptedProvider(calls, then="bye"))
    desk.send("run both")
    desk.see("allow run")
    desk.send("always")
    desk.see("← shell", "← shell", "bye")
    assert desk.paper.getvalue().count("in this chat") <= 3


def test_an_open_question_ends_with_the_turn_and_other_text_waits(sit: Seat) -> None:
    shell = Scripted(None, tool_calls=[call("shell", {"command": "echo 1"})])
    desk = sit(ScriptedProvider([shell], then="fine"))
    desk.send("run it")
    desk.see("in this chat")
    desk.send("something else")
    desk.see("queued: something else")
    desk.type("\x03")
    desk.see("the turn was stopped", "› something else", "fine")


def test_a_pass_shows_its_receipt_and_messages_typed_meanwhile_are_kept(sit: Seat) -> None:
    held = threading.Event()
    provider = ScriptedProvider(
        [Scripted(GOOD_SUMMARY, hold=held)], then="fine", window_tokens=6_000
    )
    desk = sit(provider)
    fill(desk)
    desk.send("/compress")
    provider.wait_for_requests(1)
    desk.send("typed meanwhile")
    desk.see("queued: typed meanwhile")
    assert desk.users()[-1] == "typed meanwhile"
    held.set()
    desk.see("compacted (summary)", "messages, coverage", "› typed meanwhile", "fine")
    history = desk.store.history(desk.chat.agent.session_id)
    assert [row.state.value for row in history if row.message["content"] == "typed meanwhile"] == [
        "live"
    ]


def test_a_pass_is_stopped_and_changes_nothing(sit: Seat) -> None:
    provider = ScriptedProvider(
        [Scripted(GOOD_SUMMARY, hold=threading.Event())], window_tokens=6_000
    )
    desk = sit(provider)
    fill(desk)
    before = desk.store.view(desk.chat.agent.session_id)
    desk.send("/compress")
    provider.wait_for_requests(1)
    desk.type("\x03")
    desk.see("compaction ended, nothing changed (explicit_interrupt)")
    assert desk.store.view(desk.chat.agent.session_id) == before


@pytest.mark.parametrize(
    ("answer", "shown", "status"),
    [
        ("y", "compacted (summary)", PassStatus.COMMITTED),
        ("n", "the preview was dropped, nothing changed", PassStatus.ABORTED),
    ],
)
def test_a_preview_is_asked_for(answer: str, shown: str, status: PassStatus, sit: Seat) -> None:
    provider = ScriptedProvider([GOOD_SUMMARY], window_tokens=6_000)
    desk = sit(provider)
    fill(desk)
    desk.send("/compress --preview")
    desk.see("compaction prepared, not committed", "commit this compaction?")
    desk.send(answer)
    desk.see(shown)
    [record] = desk.store.passes(desk.chat.agent.session_id)
    assert (record.status, len(provider.requests)) == (status, 1)


def test_another_session_is_opened_only_when_nothing_runs(sit: Seat) -> None:
    held = threading.Event()
    provider = ScriptedProvider([Scripted("done", hold=held)])
    desk = sit(provider)
    first = desk.chat.agent.session_id
    desk.send("question")
    provider.wait_for_requests(1)
    desk.send("/new")
    desk.see("'/new' has to wait: a turn or a pass is running; /stop ends it")
    held.set()
    desk.see("done", "tokens, 1 %")
    desk.send("/title First talk")
    desk.see("title set: First talk")
    desk.send("/new")
    desk.see("new session ")
    assert desk.chat.agent.session_id != first
    desk.send("/resume First talk")
    desk.see(f"session {first} 'First talk': 2 messages")
    assert desk.chat.agent.session_id == first
    desk.send("/quit")
    assert desk.leave("") == 0


def test_no_colour_is_sent_when_none_is_wanted(sit: Seat, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    desk = sit(ScriptedProvider(["# Title\n\n```py\nx = 1\n```\n"]))
    desk.send("hello")
    desk.see("x = 1")
    desk.send("/nonsense")
    desk.see("unknown command")
    desk.leave()
    assert COLOUR.findall(desk.paper.getvalue()) == []


def test_colour_is_sent_otherwise(sit: Seat, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    desk = sit(ScriptedProvider())
    desk.send("/nonsense")
    desk.see("unknown command")
    desk.leave()
    assert COLOUR.findall(desk.paper.getvalue()) != []


def test_a_narrow_terminal_keeps_the_prompt_and_the_share(sit: Seat) -> None:
    desk = sit(
        ScriptedProvider(["a long answer that has to be broken into several lines"]), columns=20
    )
    desk.send("hello")
    desk.see("› hello", "a long answer that", "has to be broken", "1 %")
    assert desk.leave() == 0


def test_the_paper_reads_a_row_whole_of_which_only_a_part_was_drawn_again() -> None:
    paper = Paper()
    paper.write(" ab 17 cd\r\n>")
    paper.wait_for("17 cd")
    paper.write("\x1b[A\r xy\x1b[2C%\r\n")
    paper.wait_for("xy 1% cd")
    paper.write("\x1b[A\r\x1b[4C\x1b[Jno\x1b[2D\x1b[2C more")
    paper.wait_for("xy no more")
