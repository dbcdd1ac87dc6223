"""Conversation at a terminal: the prompt stays open while turns and passes run.

Finished text scrolls away above the prompt; what still grows, what is queued and what is asked
stand between. Read next: `layout.py` (widgets and keys), `live.py` (texts of the footer).
"""

from __future__ import annotations

import contextlib
import dataclasses
import queue
import threading
from collections.abc import Callable, Sequence
from functools import partial

from prompt_toolkit.formatted_text import ANSI, StyleAndTextTuples, to_formatted_text
from prompt_toolkit.input import Input, create_input
from prompt_toolkit.output import ColorDepth, Output, create_output

from agent.base.clock import SYSTEM_CLOCK, Clock
from agent.base.errors import HermesError
from agent.base.events import (
    CompactionFinished,
    CompactionProgress,
    CompactionStarted,
    Event,
    ReasoningDelta,
    TextDelta,
    ToolStarted,
    TurnFinished,
    Usage,
)
from agent.sessions.protocol import SessionStore
from agent.sessions.records import PassRecord
from agent.tui import figures, slash
from agent.tui.chat import Chat, OpenAgent, find_pass
from agent.tui.failures import INTERRUPTED, Failure, describe
from agent.tui.layout import INPUT_LINES, PROMPT, Callbacks, build_application
from agent.tui.live import Footer, status_text, tail, toolbar_text, wrap
from agent.tui.markdown import BlockSplitter, render_block
from agent.tui.render import EventLines, Line, progress_text
from agent.tui.scrollback import Scrollback
from run_agent import TurnResult

ANSWERS = frozenset({"y", "yes", "n", "no", "a", "always"})


class Terminal:
    """The interactive screen.

    Concurrency: the worker calls the methods of `Screen`; prompt_toolkit's thread runs the rest.
    What both touch is under one lock, which is never held while anything is printed or waited for.
    """

    def __init__(
        self,
        find_pass: Callable[[str], PassRecord | None],
        terminal: Input,
        output: Output,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self._input = terminal
        self._output = output
        self._clock = clock
        self._scrollback = Scrollback(output)
        self._color = (ColorDepth.from_env() or output.get_default_color_depth()) != (
            ColorDepth.DEPTH_1_BIT
        )
        self._lock = threading.Lock()
        self._event_lines = EventLines(find_pass)
        self._growing = BlockSplitter()
        self._blocks_shown = 0
        self._activity = ""
        self._since_s = 0.0
        self._queued: list[str] = []
        self._question = ""
        self._answers: queue.SimpleQueue[str] = queue.SimpleQueue()
        self._call_names: dict[str, str] = {}
        self._allowed: set[str] = set()
        self._stopping = False
        self._footer = Footer("", "")
        self._chat: Chat | None = None
        self._leave: Callable[[int], None] = lambda _code: None
        self._invalidate: Callable[[], None] = lambda: None

    # -- Screen, called by the worker -------------------------------------------------------
    @property
    def width(self) -> int:
        return self._output.get_size().columns

    def show(self, lines: Sequence[Line]) -> None:
        for line in lines:
            text = figures.printable(line.text)
            if line.tone != "plain":
                text = "\n".join(wrap(text, self.width))
            self._scrollback.put([(f"class:{line.tone}", text)])

    def event(self, event: Event) -> None:
        self._move_queued()
        match event:
            case TextDelta():
                with self._lock:
                    blocks = self._growing.feed(figures.printable(event.text))
                self._set_activity("answering")
                self._show_blocks(blocks)
            case ReasoningDelta():
                self._set_activity("thinking")
            case CompactionProgress():
                self._set_activity(progress_text(event), running_s=event.elapsed_s)
            case Usage():
                self._set_used(event.prompt + event.completion)
            case _:
                self._end_text()
                if isinstance(event, CompactionStarted):
                    self._set_activity("compacting")
                elif isinstance(event, ToolStarted):
                    self._call_names[event.call_id] = event.name
                    self._set_activity(f"running {event.name}")
                elif isinstance(event, CompactionFinished | TurnFinished):
                    self._set_activity("working")
                self.show(self._event_lines.of(event))
        self._invalidate()

    def ended(self, result: TurnResult) -> None:
        self._end_text()
        if result.stop_reason == "interrupted":
            self.show([Line("the turn was stopped", "warn")])

    def failed(self, failure: Failure) -> None:
        self._end_text()
        self.show([Line(failure.text, "bad")])

    def settled(self) -> None:
        self._end_text()
        self._move_queued()
        with self._lock:
            self._activity = ""
            self._stopping = False
        self._drop_question()
        self.refresh_footer()
        self._invalidate()

    def ask(self, question: str) -> str | None:
        with self._lock:
            self._question = question
        self._set_activity("waiting for an answer")
        self._invalidate()
        return self._answers.get()

    def confirm(self, call_id: str, why: str) -> bool:
        """Return whether a person allows a tool call; a tool allowed for good is not asked for."""
        name = self._call_names.get(call_id, "")
        if name in self._allowed:
            return True
        answer = self.ask(
            f"allow {figures.one_line(why)}? [y]es, [n]o, [a]lways allow {name} in this chat"
        )
        if answer in ("a", "always"):
            self._allowed.add(name)
        return answer in ("y", "yes", "a", "always")

    # -- the screen's own thread ------------------------------------------------------------
    def run(self, chat: Chat) -> int:
        """Show the screen until the person leaves; return the exit code."""
        self._chat = chat
        callbacks = Callbacks(
            accept=self._accept,
            interrupt=self._interrupt,
            leave=lambda: self._leave(0),
            busy=lambda: chat.busy,
            above=self._above,
            toolbar=self._toolbar,
        )
        app = build_application(callbacks, list(slash.COMMANDS), self._input, self._output)

        def leave(code: int) -> None:
            if app.future is not None and not app.future.done():
                app.exit(result=code)

        def invalidate() -> None:
            with contextlib.suppress(RuntimeError):  # the loop may close as the worker asks
                app.invalidate()

        self._leave = leave
        self._invalidate = invalidate
        self.refresh_footer()
        try:
            return app.run(pre_run=lambda: self._scrollback.started(app))
        finally:
            self._drop_question()
            self._say_goodbye(chat)
            chat.close()
            self._scrollback.flush()

    def refresh_footer(self) -> None:
        """Read session, model and context anew for the toolbar."""
        chat = self._chat
        if chat is None:
            return
        agent = chat.agent
        used, usable, session = None, 0, agent.session_id
        with contextlib.suppress(HermesError):
            session = chat.store.session(agent.session_id).title or agent.session_id
            meter = agent.context()
            used, usable = meter.total, meter.usable
        footer = Footer(agent.provider.model, figures.one_line(session), used, usable)
        with self._lock:
            self._footer = footer

    def _accept(self, text: str) -> None:
        chat = self._chat
        if chat is None or not text.strip():
            return
        if self._answer_question(text.strip().lower()):
            return
        try:
            self._take(chat, text)
        except Exception as error:
            self.failed(describe(error))
        if chat.leaving:
            self._leave(0)

    def _say_goodbye(self, chat: Chat) -> None:
        """Say how to go on with the session, if anything was said in it."""
        with contextlib.suppress(HermesError):
            record = chat.store.session(chat.agent.session_id)
            if record.message_count:
                self.show([Line(f"go on with: hermes chat --session {record.id}", "dim")])

    def _answer_question(self, answer: str) -> bool:
        """Take an answer to the open question; return whether it was one."""
        with self._lock:
            question = self._question
            if not question or answer not in ANSWERS:
                return False
            self._question = ""
        self.show([Line(f"{question} {answer}", "dim")])
        self._answers.put(answer)
        return True

    def _take(self, chat: Chat, text: str) -> None:
        if slash.parse(text):
            self._echo(text)
            slash.run(chat, text)
            self.refresh_footer()
            return
        chat.say(text, partial(self._show_said, text, waits=chat.busy))

    def _show_said(self, text: str, *, waits: bool) -> None:
        """Show a message that is stored and not yet answered."""
        if waits:
            with self._lock:
                self._queued.append(text)
        else:
            self._echo(text)
            self._set_activity("working", running_s=0.0)

    def _interrupt(self) -> None:
        chat = self._chat
        if chat is None or not chat.busy or self._stopping:
            self._leave(INTERRUPTED)
            return
        self._stopping = True
        chat.interrupt()
        self._drop_question()
        self._forget_late_stop(chat)

    def _forget_late_stop(self, chat: Chat) -> None:
        """Take back a stop of what had ended by then, and may have settled before the stop."""
        if not chat.busy:
            self._stopping = False

    def _above(self) -> StyleAndTextTuples:
        size = self._output.get_size()
        with self._lock:
            growing, queued = self._growing.pending, list(self._queued)
            question, activity, since_s = self._question, self._activity, self._since_s
        parts: list[tuple[str, str]] = []
        if growing.strip():
            parts.append(("", tail(growing, size.columns, size.rows // 2)))
        parts += [
            ("class:dim", self._fit(f"queued: {figures.one_line(text)}"))
            for text in queued[-INPUT_LINES:]
        ]
        if question:
            parts.append(("class:question", "\n".join(wrap(question, size.columns))))
        if activity:
            status = status_text(
                activity, self._clock.monotonic() - since_s, stopping=self._stopping
            )
            parts.append(("class:dim", self._fit(status)))
        separated: StyleAndTextTuples = []
        for part in parts:
            separated += [("", "\n"), part] if separated else [part]
        return separated

    def _toolbar(self) -> str:
        with self._lock:
            footer = dataclasses.replace(self._footer, queued=len(self._queued))
        return toolbar_text(footer, self.width)

    # -- both ---------------------------------------------------------------------------------
    def _fit(self, text: str) -> str:
        return figures.clip(text, self.width)

    def _drop_question(self) -> None:
        """Answer an open question with no: what it was asked for has ended."""
        with self._lock:
            asked, self._question = bool(self._question), ""
        if asked:
            self._answers.put("no")

    def _echo(self, text: str) -> None:
        self._scrollback.put([("class:prompt", PROMPT), ("", figures.printable(text))])

    def _show_blocks(self, blocks: Sequence[str]) -> None:
        for block in blocks:
            text = render_block(block, self.width, color=self._color)
            gap = "\n" if self._blocks_shown else ""
            self._blocks_shown += 1
            self._scrollback.put(to_formatted_text(ANSI(gap + text)))

    def _end_text(self) -> None:
        with self._lock:
            block = self._growing.finish()
        if block:
            self._show_blocks([block])
        self._blocks_shown = 0

    def _move_queued(self) -> None:
        """Show messages as sent once a request has carried them."""
        if not self._queued or self._chat is None:
            return
        waiting = self._chat.agent.pending_messages()
        with self._lock:
            sent = self._queued[: max(0, len(self._queued) - waiting)]
            self._queued = self._queued[len(sent) :]
        if sent:
            self._end_text()
        for text in sent:
            self._echo(text)

    def _set_activity(self, activity: str, *, running_s: float | None = None) -> None:
        """Name what runs; its time goes on when the name stays the same."""
        with self._lock:
            if running_s is not None or activity != self._activity:
                self._since_s = self._clock.monotonic() - (running_s or 0.0)
            self._activity = activity

    def _set_used(self, used_tokens: int) -> None:
        with self._lock:
            self._footer = dataclasses.replace(self._footer, used_tokens=used_tokens)


def run_terminal(
    open_agent: OpenAgent, store: SessionStore, session_id: str | None, greeting: Sequence[Line]
) -> int:
    """Talk at this process's terminal on a stored session, or on a new one for None."""
    screen = Terminal(partial(find_pass, store), create_input(), create_output())
    chat = Chat(open_agent, screen, store)
    try:
        chat.switch(session_id)
        route = chat.agent.provider.route
        screen.show([*greeting, Line(f"{route}; /help lists commands, Ctrl-D leaves", "dim")])
        return screen.run(chat)
    finally:
        chat.close()
