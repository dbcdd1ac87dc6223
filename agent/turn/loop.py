"""The turn loop: request, answer, tools, until the model has said its last word.

Every row is durable before the next step begins: the user's before the model is called, each
answer and each tool result as soon as it is complete. Read next: `preflight.py`, `recovery.py`.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

from agent.base.errors import (
    CallCancelled,
    ContentFiltered,
    ContextCannotFit,
    NetworkError,
    ProviderError,
)
from agent.base.events import Notice, ReasoningDelta, TextDelta, Usage
from agent.base.later import later
from agent.base.messages import Message, text_of
from agent.base.record import dataclass
from agent.compaction.verdict import judge_last_pass
from agent.providers.protocol import (
    CallWatch,
    Cleared,
    Delta,
    ModelReply,
    ModelRequest,
    TokenUsage,
)
from agent.turn.host import Turn, TurnHost
from agent.turn.preflight import keeps_history, native_is_on, prepare_request
from agent.turn.recovery import recover
from agent.turn.request import Shaped, replay_from

if TYPE_CHECKING:
    from agent.tools.runner import ToolOutcome, ToolRunner
    from agent.turn import editing, fallback, native
else:
    editing, fallback, native = later("agent.turn", "editing", "fallback", "native")


@dataclass(frozen=True)
class Ending:
    """How a turn ended: the last text and one of the stop reasons of `TurnResult`."""

    final_text: str
    stop_reason: str


def run_turn(host: TurnHost, turn: Turn) -> Ending:
    """Run one turn to its end and return its last word.

    Raises: `ProviderError` when the model fails, `ContextCannotFit` when nothing can be removed
    any more, `StoreError` when a row cannot be made durable. An interrupted turn returns.
    """
    fallback.choose_route(host, turn)
    trigger = "turn_start_threshold"
    for _ in range(host.settings.tools.max_iterations):
        if turn.cancel.cancelled:
            return Ending("", "interrupted")
        try:
            reply, stored = _answer(host, turn, trigger)
        except CallCancelled:
            return Ending(_partial_text(host), "interrupted")
        calls = stored.get("tool_calls") or []
        if not calls:
            return _last_word(host, turn, reply, stored)
        runner = host.tool_runner(turn)
        if runner is None:
            return Ending(text_of(stored.get("content")), "tool_calls")
        _run_tools(host, runner, calls)
        trigger = "post_tool"
    host.emit(
        Notice(
            level="warning",
            text=f"the turn stopped after {host.settings.tools.max_iterations} model calls "
            "(tools.max_iterations); send a message to go on",
        )
    )
    return Ending("", "iterations")


def _answer(host: TurnHost, turn: Turn, trigger: str) -> tuple[ModelReply, Message]:
    """Return the model's answer and its stored row.

    What a provider refuses is recovered within bounds; what a route cannot do the next one does.
    """
    failures = fallback.Failures()
    while True:
        try:
            shaped = prepare_request(host, turn, trigger=trigger)
            if turn.cancel.cancelled:
                raise CallCancelled("the turn was stopped")
            call = _Call(host, turn, shaped, failures)
            try:
                reply = call.send()
            except ProviderError as error:
                recover(host, turn, error, shaped)
                trigger = "overflow"
                continue
        except (ProviderError, ContextCannotFit) as fault:
            if not fallback.go_on_elsewhere(host, turn, fault, failures):
                raise
            continue
        return reply, call.accept(reply)


class _Call:
    """One model call: what was sent, what has arrived, and how it becomes a row."""

    def __init__(
        self, host: TurnHost, turn: Turn, shaped: Shaped, failures: fallback.Failures
    ) -> None:
        self.host = host
        self.turn = turn
        self.shaped = shaped
        self.head = host.live.head
        self.failures = failures
        self.text: list[str] = []

    def send(self) -> ModelReply:
        """Send the request; the text so far of an answer that was stopped, or broke off where no
        route is left, is kept as a row."""
        host = self.host
        system: Message = {"role": "system", "content": host.system_prompt}
        edits = host.settings.compression.anthropic_context_editing
        request = ModelRequest(
            messages=[system, *self.shaped.messages],
            tools=host.tool_schemas,
            max_tokens=_output_limit(host, self.turn),
            temperature=self.turn.temperature,
            replay_from=replay_from(host.live.messages, self.head.generation),
            compact_at=native.native_threshold(host) if native_is_on(host) else 0,
            clear_at=0 if edits == "off" else editing.clear_at(host),
            clear_thinking=edits == "all",
        )
        host.note_carried(self.head.watermark)
        self.failures.began_at = host.clock.now()
        watch = CallWatch(cancel=self.turn.cancel, on_delta=self._on_delta)
        if keeps_history(host):
            native.lend(host, self.turn, watch)
        try:
            with host.traced_call() as trace:
                reply = host.provider.complete(request, limits=host.limits, watch=watch)
                if trace is not None:
                    trace.reply = reply
        except CallCancelled:
            self._keep_partial("interrupted")
            raise
        except ProviderError:
            if not self._is_begun_anew():
                self._keep_partial("interrupted")
            raise
        if reply.finish_reason is None:
            if not self._is_begun_anew():
                self._keep_partial("incomplete")
            raise NetworkError(
                f"{host.provider.route}: the answer ended without a finish; what arrived is "
                "stored, send the message again",
                route=host.provider.route,
            )
        return reply

    def _is_begun_anew(self) -> bool:
        """Return whether another route will answer the request from the start."""
        asked = [*self.failures.routes, self.host.routes.current]
        return self.host.routes.next_after(asked, 0) is not None

    def _on_delta(self, delta: Delta) -> None:
        if delta.text:
            self.text.append(delta.text)
            self.host.emit(TextDelta(text=delta.text))
        if delta.reasoning:
            self.host.emit(ReasoningDelta(text=delta.reasoning))

    def _keep_partial(self, finish_reason: str) -> None:
        text = "".join(self.text)
        if text.strip():
            self._store({"role": "assistant", "content": text, "_finish_reason": finish_reason})

    def _store(self, message: Message) -> Message:
        message["_seen"] = self.head.watermark
        if "_reasoning" in message:
            message["_generation"] = self.head.generation
        message.setdefault("_model", self.host.provider.model)
        brought = None
        if native_is_on(self.host):
            brought = native.native_pass(self.host, message, self.shaped, self.head.generation)
        [stored] = self.host.store.append(self.host.session_id, [message], brought)
        pass_id = stored.pop("_brought", None)
        if pass_id is not None:
            native.tell_native(self.host, self.turn, pass_id)
        return stored

    def accept(self, reply: ModelReply) -> Message:
        """Store the answer and account for its usage; calls of a filtered one are not made."""
        self.host.routes.current.answered(self.failures.began_at)
        message = dict(reply.message)
        message["_finish_reason"] = reply.finish_reason
        if reply.finish_reason == "content_filter":
            message.pop("tool_calls", None)
        message["_model"] = reply.model or self.host.provider.model
        if reply.usage is not None:
            message["_usage"] = dataclasses.asdict(reply.usage)
        stored = self._store(message)
        if reply.usage is not None:
            self._account(reply.usage, reply.cleared)
        return stored

    def _account(self, usage: TokenUsage, cleared: Cleared) -> None:
        host = self.host
        budget = host.budget()
        estimated = self.shaped.tokens + budget.overhead_tokens
        whole = usage.held_tokens + cleared.tokens
        held = 0 if _leaves_cached_out(host, usage, whole, estimated) else usage.held_tokens
        if held > 0:
            judge_last_pass(host, held, host.trigger_tokens, usage)
            calibration = host.calibration.observe(estimated, whole)
            anchor: dict[str, Any] = {
                **calibration.to_dict(),
                "prompt": held,
                "estimated": estimated,
                "generation": self.head.generation,
                "cached": usage.cached,
                "cache_write": usage.cache_write,
                "at": host.clock.now(),
            }
            if cleared.tokens:
                noted = editing.note_cleared(host, self.turn, self.shaped, cleared)
                anchor |= {"cleared": cleared.tokens, "noted": noted}
            host.calibrate(calibration, anchor)
        cost = host.provider.price(usage)
        host.usage.add(usage, cost)
        self.turn.usage.add(usage, cost)
        self.turn.used_tokens = (held or host.counted(estimated)) + usage.completion
        host.emit(
            Usage(
                prompt=usage.prompt,
                completion=usage.completion,
                cached=usage.cached,
                cost=cost,
                cache_write=usage.cache_write,
                context_used=self.turn.used_tokens,
                context_limit=host.window_tokens,
            )
        )
        if host.routes.current.ask_price_list():
            host.use_route(host.routes.current)


def _leaves_cached_out(host: TurnHost, usage: TokenUsage, whole: int, estimated: int) -> bool:
    """Return whether a count that tells of no cache is none of what the window held.

    `whole` adds what the provider left out by itself. A route that was caught is believed from
    then on only where it counts more than we expect.
    """
    if usage.cached:
        return False
    route, anchor = host.routes.current, host.anchor
    if anchor is not None and anchor.contradicts(whole, estimated):
        route.leaves_cached_out = True
    return route.leaves_cached_out and whole < host.counted(estimated)


def _output_limit(host: TurnHost, turn: Turn) -> int:
    return min(turn.max_tokens or host.reserve_tokens, host.reserve_tokens)


def _last_word(host: TurnHost, turn: Turn, reply: ModelReply, stored: Message) -> Ending:
    text = text_of(stored.get("content"))
    if reply.finish_reason == "content_filter":
        raise ContentFiltered(
            f"{host.provider.route}: the provider's content rules ended the answer; rephrase and "
            "send it again",
            route=host.provider.route,
        )
    if reply.finish_reason == "length":
        host.emit(
            Notice(
                level="warning",
                text=f"the answer stopped at the output limit of {_output_limit(host, turn)} "
                "tokens (model.max_output_tokens); ask to go on",
            )
        )
        return Ending(text, "length")
    if not text.strip():
        host.emit(Notice(level="warning", text=f"{host.provider.route} gave an empty answer"))
    return Ending(text, "stop")


def _partial_text(host: TurnHost) -> str:
    """Return the text of an answer that was stopped and kept, if it is the newest row."""
    host.live.refresh()
    newest = host.live.messages[-1] if host.live.messages else {}
    if newest.get("_finish_reason") == "interrupted":
        return text_of(newest.get("content"))
    return ""


def _run_tools(host: TurnHost, runner: ToolRunner, calls: list[dict[str, Any]]) -> None:
    """Run the calls of one answer; each result becomes durable when it is complete."""

    def finished(outcome: ToolOutcome) -> None:
        result: Message = {
            "role": "tool",
            "tool_call_id": outcome.call_id,
            "name": outcome.name,
            "content": outcome.content,
        }
        host.store.append(host.session_id, [result])

    runner.run_calls(calls, finished)
