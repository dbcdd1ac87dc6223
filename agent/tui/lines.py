"""Conversation without a terminal: one message a line on standard input, one answer each on
standard output; notices, progress and errors on standard error.

Everything is printed by the main thread, so a slow or closed reader never stands in a turn.
"""

from __future__ import annotations

import queue
import time
from collections.abc import Callable, Iterable, Sequence
from typing import TextIO

import orjson

from agent.base.errors import HermesError
from agent.base.events import (
    CompactionFinished,
    CompactionProgress,
    ErrorRaised,
    Event,
    TextDelta,
    ToolStarted,
    TurnFinished,
)
from agent.sessions.records import PassRecord
from agent.tui import slash
from agent.tui.chat import Chat
from agent.tui.failures import INTERRUPTED, Failure, describe
from agent.tui.figures import printable
from agent.tui.render import EventLines, Line, progress_text
from run_agent import TurnResult

_PROGRESS_EVERY_S = 5.0
_TOLD = ("error", "interrupted")


class LineScreen:
    """Prints answers and command output to `out`, everything else to `err`.

    `live` streams the text as it comes, for a person who reads along; without it the final text
    is written once. `exit_code` is that of the last failure.
    Concurrency: the worker calls the methods of `Screen`; the main thread calls `wait` and
    `flush`, which do the printing.
    """

    width = 0
    confirm = None

    def __init__(
        self,
        out: TextIO,
        err: TextIO,
        find_pass: Callable[[str], PassRecord | None],
        *,
        live: bool = False,
    ) -> None:
        self.exit_code = 0
        self._out = out
        self._err = err
        self._live = live
        self._lines = EventLines(find_pass)
        self._queue: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self._settled = 0
        self._waited_for = 0
        self._text_open = False
        self._progress_due_s = 0.0
        self._progress_open = False

    # -- Screen -----------------------------------------------------------------------------
    def show(self, lines: Sequence[Line]) -> None:
        self._queue.put(lambda: self.print_lines(lines))

    def event(self, event: Event) -> None:
        self._queue.put(lambda: self.print_event(event))

    def ended(self, result: TurnResult) -> None:
        if result.stop_reason == "interrupted":
            self.failed(Failure("the turn was stopped", INTERRUPTED, "cancelled"))

    def failed(self, failure: Failure) -> None:
        self._queue.put(lambda: self.print_failure(failure))

    def settled(self) -> None:
        self._settled += 1
        self._queue.put(lambda: None)  # wakes the main thread

    def ask(self, question: str) -> str | None:
        return None

    # -- main thread ------------------------------------------------------------------------
    def wait(self) -> None:
        """Print until the running job has settled; called again after a Ctrl-C, go on with that."""
        while self._settled <= self._waited_for or not self._queue.empty():
            self._queue.get()()
        self._waited_for += 1

    def flush(self) -> None:
        """Print what is there."""
        while not self._queue.empty():
            self._queue.get()()

    def print_lines(self, lines: Sequence[Line]) -> None:
        """Write the output of a command."""
        self._close_text()
        text = "".join(f"{line.text}\n" for line in lines)
        self._write(self._out, printable(text) if self._live else text)

    def print_event(self, event: Event) -> None:
        """Write what one event says, and where."""
        match event:
            case TextDelta() if self._live:
                self._write(self._out, printable(event.text))
                self._text_open = True
            case TurnFinished():
                self._finish(event)
            case CompactionProgress():
                self._progress(event)
            case _:
                if isinstance(event, ToolStarted | CompactionFinished):
                    self._close_text()
                for line in self._lines.of(event):
                    self._write(self._err, f"{line.text}\n")

    def print_failure(self, failure: Failure) -> None:
        """Write why something failed and keep its exit code."""
        self._close_text()
        self._write(self._err, f"hermes: {failure.text}\n")
        self.exit_code = failure.exit_code

    def _finish(self, event: TurnFinished) -> None:
        if self._live:
            self._close_text()
        elif event.final_text:
            self._write(self._out, f"{event.final_text}\n")

    def _close_text(self) -> None:
        if self._text_open:
            self._write(self._out, "\n")
            self._text_open = False

    def _progress(self, event: CompactionProgress) -> None:
        """Show how far a pass is: in place for a person who reads along, else now and then."""
        now_s = time.monotonic()
        if self._live:
            self._write(self._err, f"\r{progress_text(event)}\x1b[K")
            self._progress_open = True
        elif now_s >= self._progress_due_s:
            self._progress_due_s = now_s + _PROGRESS_EVERY_S
            self._write(self._err, f"{progress_text(event)}\n")

    def _write(self, stream: TextIO, text: str) -> None:
        if self._progress_open:
            self._progress_open = False
            self._err.write("\r\x1b[K")
            self._err.flush()
        stream.write(text)
        stream.flush()


class JsonScreen(LineScreen):
    """Prints events as JSON, one a line, the last of a turn of type `turn_finished`, also after an
    error that no turn told; the output of commands goes to `err`."""

    def __init__(self, out: TextIO, err: TextIO) -> None:
        super().__init__(out, err, lambda _pass_id: None)
        self._turn_told = False

    def print_lines(self, lines: Sequence[Line]) -> None:
        """Write the output of a command."""
        self._write(self._err, "".join(f"{line.text}\n" for line in lines))

    def print_event(self, event: Event) -> None:
        """Write one event."""
        self._turn_told = isinstance(event, TurnFinished) and event.stop_reason in _TOLD
        self._write(self._out, event_json(event))

    def print_failure(self, failure: Failure) -> None:
        """Write why something failed, as events too unless the turn did that."""
        if not self._turn_told:
            for event in failure_events(failure):
                self.print_event(event)
        self._turn_told = False
        super().print_failure(failure)


def event_json(event: Event) -> str:
    """Return an event as one line of JSON with its line feed."""
    return orjson.dumps(event.as_dict(), option=orjson.OPT_APPEND_NEWLINE).decode()


def failure_events(failure: Failure) -> tuple[Event, Event]:
    """Return what a failure outside a turn is told with: the error, then the end of the turn."""
    now = time.time()
    return (
        ErrorRaised(failure_class=failure.failure_class, text=failure.text, at=now),
        TurnFinished(final_text="", stop_reason="error", at=now),
    )


def run_lines(chat: Chat, screen: LineScreen, source: Iterable[str]) -> int:
    """Answer each line of `source`, in order, and return the exit code of the last failure."""
    for text in source:
        if text.strip():
            answer_line(chat, screen, text.strip("\r\n"))
        if chat.leaving:
            break
    return screen.exit_code


def answer_line(chat: Chat, screen: LineScreen, text: str) -> None:
    """Run one message or command and print until it is done."""

    def hand_over() -> None:
        try:
            if not slash.run(chat, text):
                chat.say(text)
        except HermesError as error:
            screen.failed(describe(error))

    run_job(chat, screen, hand_over)
    screen.flush()


def run_job(chat: Chat, screen: LineScreen, hand_over: Callable[[], object]) -> None:
    """Hand a job over, if `hand_over` finds one, and print until it has settled.

    A first Ctrl-C stops it, a second one leaves, as one does before there is a job.
    """
    started_before = chat.jobs_started
    try:
        hand_over()
        if chat.jobs_started > started_before:
            screen.wait()
    except KeyboardInterrupt:
        if chat.jobs_started == started_before:
            raise
        chat.interrupt()
        screen.wait()
