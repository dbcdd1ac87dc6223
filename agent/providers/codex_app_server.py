"""The Codex app-server as a provider: it keeps the conversation in a thread of its own, runs its
own tools and compacts by itself; our transcript is only ever appended to.

The thread's id stands in each answer's `_reasoning`. The newest one whose view still stands names
the thread to go on in; without one, or when the thread is lost, the conversation is handed over
once, as context of the first turn. Read next: `codex_turn.py`, `codex_rpc.py`, `handover.py`.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from agent.base.errors import CallCancelled, NetworkError, ProviderError, RequestRefused
from agent.base.messages import Message, text_of
from agent.providers.codex_rpc import Connection, Exchange, Refused
from agent.providers.codex_turn import CodexTurn
from agent.providers.handover import MEANWHILE, hand_over
from agent.providers.protocol import CallWatch, Limits, ModelReply, ModelRequest, TokenUsage
from agent.providers.reasoning import keep_fields, kept_fields
from agent.providers.usage import read_turn_usage, read_usage

_THREAD, _COMPACTED = "thread", "compacted"
_NEVER_TOKENS = 2**53 - 1
_HAND_OVER_SHARE = 0.5
_FINISHES = {"completed": "stop"}


class CodexAppServer:
    """One app-server process, started at the first request. Takes no tools of ours.

    `model` may be empty: then the app-server chooses.
    """

    def __init__(self, *, command: str, model: str, window_tokens: int) -> None:
        self._command = command
        self._model = model
        self._window_tokens = window_tokens
        self.route = f"{model or 'its own model'} at the codex app-server"
        self._lock = threading.Lock()
        self._connection: Connection | None = None
        self._totals: dict[str, TokenUsage] = {}

    @property
    def model(self) -> str:
        """The model id that is asked for."""
        return self._model or "codex"

    @property
    def window_tokens(self) -> int:
        """The model's window, by which a hand-over is measured."""
        return self._window_tokens

    @property
    def supports_tools(self) -> bool:
        """Never: the app-server has its own."""
        return False

    @property
    def one_slot(self) -> bool:
        """Always: one turn at a time."""
        return True

    def complete(self, request: ModelRequest, *, limits: Limits, watch: CallWatch) -> ModelReply:
        """Run one turn and return its answer; see `Provider.complete`. Nothing is sent again."""
        with self._lock, self._exchange(limits, watch) as exchange:
            thread_id, tail = self._find_thread(request.messages, request.replay_from)
            most_tokens = int(self._window_tokens * _HAND_OVER_SHARE)
            if thread_id and self._resume(exchange, thread_id):
                inputs = hand_over(self._not_heard(tail), most_tokens, MEANWHILE)
            else:
                thread_id = self._start(exchange, request)
                spoken = [m for m in request.messages if m.get("role") != "system"]
                inputs = hand_over(spoken, most_tokens)
            return self._run(exchange, thread_id, inputs)

    def compact(self, messages: Sequence[Message], *, limits: Limits, watch: CallWatch) -> str:
        """Let the app-server compact the thread that the messages name; see `KeepsHistory`."""
        with self._lock, self._exchange(limits, watch) as exchange:
            thread_id, _tail = self._find_thread(messages, 0)
            if not thread_id or not self._resume(exchange, thread_id):
                return "codex_no_thread"
            try:
                exchange.request("thread/compact/start", {"threadId": thread_id})
                turn_id = _started_turn(exchange, thread_id)
                CodexTurn(exchange, thread_id, turn_id, self.route).follow()
            except (Refused, ProviderError):
                return "codex_compaction_failed"
            return ""

    def price(self, usage: TokenUsage) -> float | None:
        """Return None: what a turn costs is the account's business."""
        return None

    def close(self) -> None:
        """End the process; the next request starts another. Idempotent."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def brought_compaction(self, message: Message) -> bool:
        """Return whether the app-server compacted its thread while it made this answer."""
        return bool(kept_fields(message.get("_reasoning"), self.route).get(_COMPACTED))

    # -- threads ----------------------------------------------------------------------------------
    def _exchange(self, limits: Limits, watch: CallWatch) -> Exchange:
        """Return the use of a running app-server; one that has ended is started again."""
        if watch.cancel.cancelled:
            raise CallCancelled(f"the call to {self.route} was stopped")
        if self._connection is not None and not self._connection.is_alive:
            self.close()
        if self._connection is not None:
            return Exchange(self._connection, limits, watch, self.route)
        connection = self._connection = Connection(self._command, self.route)
        exchange = Exchange(connection, limits, watch, self.route)
        try:
            connection.greet(exchange)
        except (Refused, CallCancelled, ProviderError) as error:
            exchange.__exit__()
            self.close()
            if isinstance(error, Refused):
                raise self._no_answer(error) from error
            raise
        return exchange

    def _find_thread(
        self, messages: Sequence[Message], replay_from: int
    ) -> tuple[str, Sequence[Message]]:
        """Return the thread that the newest answer of this route names, and what came after it."""
        for index in range(len(messages) - 1, -1, -1):
            message = messages[index]
            kept = kept_fields(message.get("_reasoning"), self.route)
            if _THREAD in kept and message.get("_seq", replay_from) >= replay_from:
                return str(kept[_THREAD]), messages[index + 1 :]
        return "", messages

    def _not_heard(self, tail: Sequence[Message]) -> Sequence[Message]:
        """Return the messages that the thread does not know: it heard a turn that was stopped."""
        for index in range(len(tail) - 1, -1, -1):
            message = tail[index]
            if message.get("_finish_reason") == "interrupted" and message["_model"] == self.model:
                return tail[index + 1 :]
        return tail

    def _resume(self, exchange: Exchange, thread_id: str) -> bool:
        """Return whether the thread is there to go on in."""
        if thread_id in exchange.connection.threads:
            return True
        try:
            exchange.request("thread/resume", {"threadId": thread_id, "excludeTurns": True})
        except Refused:
            return False
        exchange.connection.threads.add(thread_id)
        return True

    def _start(self, exchange: Exchange, request: ModelRequest) -> str:
        first = request.messages[0] if request.messages else {}
        params: dict[str, Any] = {
            "cwd": exchange.watch.cwd or str(Path.cwd()),
            "approvalPolicy": "on-request",
            "sandbox": "workspace-write",
        }
        if self._model:
            params["model"] = self._model
        if first.get("role") == "system":
            params["developerInstructions"] = text_of(first.get("content"))
        if not request.compact_at:
            params["config"] = {"model_auto_compact_token_limit": _NEVER_TOKENS}
        try:
            thread_id = str(exchange.request("thread/start", params)["thread"]["id"])
        except (Refused, KeyError, TypeError) as error:
            raise self._no_answer(error) from error
        exchange.connection.threads.add(thread_id)
        return thread_id

    # -- turns ------------------------------------------------------------------------------------
    def _run(self, exchange: Exchange, thread_id: str, inputs: list[dict[str, Any]]) -> ModelReply:
        try:
            begun = exchange.request("turn/start", {"threadId": thread_id, "input": inputs})
            turn_id = str(begun["turn"]["id"])
        except (Refused, KeyError, TypeError) as error:
            raise self._no_answer(error) from error
        turn = CodexTurn(exchange, thread_id, turn_id, self.route)
        try:
            status = turn.follow()
        except NetworkError:  # there is nobody left to tell
            raise
        except BaseException:
            self._interrupt(exchange.connection, thread_id, turn_id)
            raise
        fields: dict[str, Any] = {_THREAD: thread_id}
        if turn.compacted:
            fields[_COMPACTED] = True
        message: Message = {"role": "assistant", "content": turn.text}
        message["_reasoning"] = keep_fields(fields, self.route)
        usage = self._count(thread_id, turn)
        return ModelReply(message, _FINISHES.get(status), usage, self.model, turn_id)

    def _interrupt(self, connection: Connection, thread_id: str, turn_id: str) -> None:
        """Tell the app-server to stop; its answer is not waited for."""
        params = {"threadId": thread_id, "turnId": turn_id}
        line = {"id": connection.next_number(), "method": "turn/interrupt", "params": params}
        with suppress(NetworkError):
            connection.send(line)

    def _count(self, thread_id: str, turn: CodexTurn) -> TokenUsage | None:
        usage = read_turn_usage(turn.usage, self._totals.get(thread_id))
        total = read_usage((turn.usage or {}).get("total"))
        if total is not None:
            self._totals[thread_id] = total
        return usage

    def _no_answer(self, error: Exception) -> RequestRefused:
        said = " ".join(str(error).split())
        return RequestRefused(
            f"{self.route} refused: {said}; check model.name and model.command", route=self.route
        )


def _started_turn(exchange: Exchange, thread_id: str) -> str:
    """Return the id of the turn that a compaction runs as."""
    while True:
        line = exchange.next_line()
        params = line.get("params") or {}
        if line.get("method") == "turn/started" and params.get("threadId") == thread_id:
            return str(params["turn"]["id"])
