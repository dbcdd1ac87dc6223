"""Runs the tool calls of one assistant message: side by side, bounded, stoppable.

This is the one boundary at which a fault in a tool becomes a result that the model reads.
What may run unasked is `approval.py`, what may run side by side `order.py`.
"""

from __future__ import annotations

import logging
import math
import queue
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field, replace
from typing import Any

from agent.base.cancel import CancelToken
from agent.base.errors import ToolError
from agent.base.events import (
    ApprovalRequested,
    EventSink,
    ToolFinished,
    ToolStarted,
    ignore_event,
)
from agent.base.messages import clean_text
from agent.base.record import dataclass
from agent.base.redact import redacted_trace
from agent.tools.approval import Ask, decide, refusal
from agent.tools.order import Touch, must_wait
from agent.tools.paths import resolve_path
from agent.tools.protocol import Tool, ToolContext
from agent.tools.schema import read_arguments
from agent.tools.text import one_line

INTERRUPTED = "interrupted, outcome unknown"
"""Content of the one result that a stopped call gets; it is never run again by us."""

MOST_AT_ONCE = 8
_STOP_GRACE_S = 0.2
_LIMIT_MARGIN_S = 2.0

Confirm = Callable[[str, str], bool]
"""Asks a person: (call id, why) -> allowed."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class ToolOutcome:
    """The result of one call; `bytes` is the UTF-8 size of `content`."""

    call_id: str
    name: str
    content: str
    ok: bool
    duration_ms: int
    bytes: int


@dataclass(eq=False)
class _Call:
    """One call on its way. `touch` is None when it cannot be run: then `fault` says why."""

    call_id: str
    name: str
    arguments: dict[str, Any] = field(default_factory=dict)
    touch: Touch | None = None
    fault: str = ""
    why: str = ""
    cancel: CancelToken = field(default_factory=CancelToken)
    announced: bool = False
    running: bool = False
    ended: bool = False
    started_s: float = 0.0
    deadline_s: float = math.inf


@dataclass(frozen=True)
class _Done:
    """A tool returned or failed."""

    call: _Call
    content: str
    ok: bool


@dataclass(frozen=True)
class _Answer:
    """A person answered; `error` is what `confirm` raised."""

    call: _Call
    allowed: bool
    error: BaseException | None = None


class _Stop:
    """The turn was stopped."""


@dataclass(frozen=True)
class ToolRunner:
    """Runs calls with `tools` in `context`.

    `confirm` asks a person and is called one question at a time, in a thread of its own so that
    a stop need not wait for an answer; None means nobody can be asked. `on_event` gets
    `tool_started`, `approval_requested` and `tool_finished` in the thread of `run_calls`.
    """

    tools: Mapping[str, Tool]
    context: ToolContext
    confirm: Confirm | None = None
    on_event: EventSink = ignore_event

    def run_calls(
        self, calls: Sequence[Mapping[str, Any]], on_result: Callable[[ToolOutcome], None]
    ) -> None:
        """Run the `tool_calls` of one message; return when each has had its one outcome.

        `on_result` is called in this thread, in order of completion. A tool that fails, is
        refused, unknown, late or stopped gives an outcome that is not `ok`, never an exception.
        Units: a call is given up `tools.timeout_seconds` (0: never) and a moment after its start.
        Concurrency: cancelling `context.cancel` in any thread ends all within 250 ms.
        """
        _Round(self, [self._prepare(call) for call in calls], on_result).run()

    def _prepare(self, call: Mapping[str, Any]) -> _Call:
        """Return a call with its arguments checked and the decision about it taken."""
        function = call.get("function") or {}
        prepared = _Call(str(call.get("id", "")), str(function.get("name", "")))
        tool = self.tools.get(prepared.name)
        if tool is None:
            names = ", ".join(self.tools)
            prepared.fault = f"no tool {one_line(prepared.name, limit=80)!r}; there are: {names}"
            return prepared
        try:
            prepared.arguments = read_arguments(function.get("arguments"), tool.parameters)
            decision = decide(tool, prepared.arguments, self.context)
            paths = [resolve_path(path, self.context) for path in tool.paths(prepared.arguments)]
        except Exception as error:
            prepared.fault = _fault(tool.name, error)
            return prepared
        if isinstance(decision, Ask) and self.confirm is None:
            prepared.fault = refusal(decision.why, asked=False)
            return prepared
        prepared.touch = Touch(tool, paths)
        prepared.why = decision.why if isinstance(decision, Ask) else ""
        return prepared


class _Round:
    """The calls of one message while they run. Only the thread of `run` touches its state; the
    others put what they have to say into `_inbox`."""

    def __init__(
        self, runner: ToolRunner, calls: list[_Call], on_result: Callable[[ToolOutcome], None]
    ) -> None:
        self._runner = runner
        self._calls = calls
        self._on_result = on_result
        self._inbox: queue.SimpleQueue[_Done | _Answer | _Stop] = queue.SimpleQueue()
        self._asking: _Call | None = None

    def run(self) -> None:
        """Drive all calls to their outcome."""
        forget = self._runner.context.cancel.on_cancel(lambda: self._inbox.put(_Stop()))
        try:
            for call in self._open():
                if call.touch is None:
                    self._end(call, call.fault, ok=False)
            while self._open():
                if self._runner.context.cancel.cancelled:
                    self._stop()
                    return
                self._ask_next()
                self._start_ready()
                self._take_one()
                self._give_up_late()
        finally:
            forget()
            self._collect_stopped()

    def _open(self) -> list[_Call]:
        """Return the calls that have no outcome yet, in order."""
        return [call for call in self._calls if not call.ended]

    # -- steps ------------------------------------------------------------------------------
    def _ask_next(self) -> None:
        """Put the first open question to a person, unless one is being asked."""
        confirm = self._runner.confirm
        waiting = [call for call in self._open() if call.why]
        if self._asking or not waiting or confirm is None:
            return
        call = self._asking = waiting[0]
        self._announce(call)
        self._runner.on_event(ApprovalRequested(call_id=call.call_id, why=call.why))

        def ask() -> None:
            try:
                self._inbox.put(_Answer(call, bool(confirm(call.call_id, call.why))))
            except BaseException as error:  # raised again in the thread of `run`
                self._inbox.put(_Answer(call, allowed=False, error=error))

        threading.Thread(target=ask, name="tool-approval", daemon=True).start()

    def _start_ready(self) -> None:
        """Start calls that need no answer and no earlier call, as many as may run at once."""
        earlier: list[Touch] = []
        running = sum(call.running for call in self._calls)
        for call in self._open():
            free = not call.running and not call.why and running < MOST_AT_ONCE
            if call.touch is None:
                continue
            if free and not any(must_wait(call.touch, touch) for touch in earlier):
                self._start(call, call.touch.tool)
                running += 1
            earlier.append(call.touch)

    def _start(self, call: _Call, tool: Tool) -> None:
        """Run one call in a thread that a stuck tool may keep: it never holds up an exit."""
        self._announce(call)
        limit_s = self._runner.context.settings.timeout_seconds or math.inf
        call.running, call.started_s = True, time.monotonic()
        call.deadline_s = call.started_s + limit_s + _LIMIT_MARGIN_S
        context = replace(self._runner.context, cancel=call.cancel)

        def work() -> None:
            self._inbox.put(_run_tool(call, tool, context))

        threading.Thread(target=work, name=f"tool-{call.name}", daemon=True).start()

    def _take_one(self) -> None:
        """Wait for the next thing that happens, at most until the next call is late."""
        next_s = min((call.deadline_s for call in self._open() if call.running), default=math.inf)
        wait_s = None if next_s == math.inf else max(0.0, next_s - time.monotonic())
        try:
            said = self._inbox.get(timeout=wait_s)
        except queue.Empty:
            return
        if isinstance(said, _Done) and not said.call.ended:
            self._end(said.call, said.content, ok=said.ok)
        elif isinstance(said, _Answer):
            self._take_answer(said)

    def _take_answer(self, answer: _Answer) -> None:
        """Let the call run or refuse it. Raises: what `confirm` raised."""
        self._asking = None
        if answer.error is not None:
            raise answer.error
        if answer.allowed:
            answer.call.why = ""
        else:
            self._end(answer.call, refusal(answer.call.why, asked=True), ok=False)

    def _give_up_late(self) -> None:
        """Give up calls that neither ended nor heeded their limit."""
        for call in self._open():
            if call.running and time.monotonic() >= call.deadline_s:
                call.cancel.cancel()
                limit_s = self._runner.context.settings.timeout_seconds
                self._end(
                    call,
                    f"{call.name} did not end within {limit_s:g} s and was given up; "
                    "it may still be at work, so its outcome is unknown",
                    ok=False,
                )

    # -- ends -------------------------------------------------------------------------------
    def _stop(self) -> None:
        """Give each open call its outcome: its own if it still succeeds, else the synthetic one."""
        for done in self._collect_stopped():
            if done.ok:
                self._end(done.call, done.content, ok=True)
        for call in self._open():
            self._end(call, INTERRUPTED, ok=False)

    def _collect_stopped(self) -> list[_Done]:
        """Cancel what runs and return what ends within the grace, so that no child is left.

        What has ended by then counts, also when this thread is late to look.
        """
        running = [call for call in self._open() if call.running]
        for call in running:
            call.cancel.cancel()
        until_s = time.monotonic() + _STOP_GRACE_S
        done: list[_Done] = []
        while len(done) < len(running):
            try:
                said = self._inbox.get(timeout=max(0.0, until_s - time.monotonic()))
            except queue.Empty:
                break
            if isinstance(said, _Done) and said.call in running:
                done.append(said)
        return done

    def _announce(self, call: _Call) -> None:
        """Say once that a call is taken up."""
        if not call.announced:
            call.announced = True
            self._runner.on_event(
                ToolStarted(name=call.name, arguments=call.arguments, call_id=call.call_id)
            )

    def _end(self, call: _Call, content: str, *, ok: bool) -> None:
        """Hand over the one outcome of a call, then say that it is finished."""
        self._announce(call)
        call.ended, call.running = True, False
        started_s = call.started_s or time.monotonic()
        text = clean_text(content)
        size = len(text) if text.isascii() else len(text.encode("utf-8"))
        duration_ms = round((time.monotonic() - started_s) * 1000)
        self._on_result(ToolOutcome(call.call_id, call.name, text, ok, duration_ms, size))
        self._runner.on_event(
            ToolFinished(call_id=call.call_id, ok=ok, bytes=size, duration_ms=duration_ms)
        )


def _run_tool(call: _Call, tool: Tool, context: ToolContext) -> _Done:
    """Run one tool; whatever it raises becomes a result."""
    try:
        content = tool.run(call.arguments, context)
        if not isinstance(content, str):
            raise TypeError(f"returned {type(content).__name__}, not text")
    except BaseException as error:  # nobody above this thread's frame could act on it
        return _Done(call, _fault(call.name, error), ok=False)
    return _Done(call, content, ok=True)


def _fault(name: str, error: BaseException) -> str:
    """Return what the model reads about a failed call; a bug is logged with its place."""
    if isinstance(error, ToolError):
        return str(error)
    if _log.isEnabledFor(logging.DEBUG):
        _log.debug("tool %s failed: %s", name, redacted_trace(error))
    return f"{name} failed: {type(error).__name__}: {one_line(str(error))}"
