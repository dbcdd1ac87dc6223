"""`AIAgent`: an agent whose conversations never have to end, for programs and for every surface.

Construction touches no network and no file but the given store. Read next: `agent/turn/loop.py`
(a turn), `agent/conversation_compression.py` (a pass), `agent/sessions/protocol.py` (the store).
"""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from agent.agent_runtime_helpers import note_turn_persisted, note_turn_start
from agent.base.cancel import CancelToken
from agent.base.errors import HermesError, UndoRefused, UsageError
from agent.base.events import ErrorRaised, TurnFinished, TurnStarted
from agent.base.ids import new_session_id, new_turn_id
from agent.base.later import later
from agent.base.messages import Content, Message, is_user_text, text_of, wire_message
from agent.base.settings import Settings
from agent.base.tokens import Calibration
from agent.compaction.host import AttemptRequest
from agent.compaction.pins import refuse_over_budget
from agent.compaction.verdict import discard_prepared, guards_of_undo, model_switched
from agent.sessions.records import Guards, PassChanges, PassRecord, Pin, UndoResult
from agent.turn.host import Turn, TurnResult, UsageTotals
from agent.turn.loop import Ending, run_turn
from agent.turn.meter import ContextMeter, measure
from agent.turn.options import AgentOptions, with_model
from agent.turn.reader import StoredRows
from agent.turn.runtime import AgentRuntime
from agent.turn_finalizer import _micro_compact_after_turn

if TYPE_CHECKING:
    from agent import conversation_compression
    from agent.tools import recall
else:
    [conversation_compression] = later("agent", "conversation_compression")
    [recall] = later("agent.tools", "recall")

_log = logging.getLogger(__name__)

EXTRACT_SHARE = 0.25
"""Part of the trigger from which on rows are extracted after each turn; later whoever asks does."""

__all__ = ["AIAgent", "ContextMeter", "TurnResult", "UsageTotals"]


class AIAgent(AgentRuntime):
    """One agent on one session.

    Keywords beside the model's (`api_key`, `base_url`, `model`, `api_mode`, `context_length`) and
    `settings` are the fields of `AgentOptions`: `session_db` (without it the default store is
    opened at the first turn), `session_id`, `tools` (offered beside the built-in ones) and
    `builtin_tools`, `on_event` (receives every event in order, in the thread that runs the turn),
    `confirm(call_id, why)` (asked before a tool writes or executes, see `tools.approval`; without
    it such calls are refused with a reason that the model reads), `platform`, `quiet_mode` (no
    notices of level info), `skip_context_files`, `skip_memory`, `cwd`, `provider` and `clock`.
    Concurrency: one turn or pass at a time, later ones wait; `submit` and `interrupt` may be called
    from any thread at any time.
    """

    def __init__(
        self,
        *,
        api_key: str = "",
        base_url: str = "",
        model: str = "",
        api_mode: str = "",
        context_length: int = 0,
        settings: Settings | None = None,
        **options: Any,
    ) -> None:
        given = {
            "api_key": api_key,
            "base_url": base_url,
            "name": model,
            "api_mode": api_mode,
            "context_length": context_length,
        }
        super().__init__(with_model(settings or Settings(), given), AgentOptions(**options))

    def chat(self, content: Content) -> str:
        """Send one message and return the answer's text. Raises as `run_conversation`."""
        return self.run_conversation(content).final_text

    def run_conversation(self, content: Content) -> TurnResult:
        """Accept one user message, run the turn it starts, and return what came of it.

        The message is a text, or parts in the chat-completions shape, images among them; it is
        durable before the model is called. An interrupted turn has `stop_reason` interrupted.
        Raises: UsageError for a blank message; ProviderError, ContextCannotFit or StoreError when
        the turn fails, after an `error` and a `turn_finished` event.
        """
        with self._turn_lock:
            return self._run(self.submit(content))

    def submit(self, content: Content) -> int:
        """Accept one user message durably and return its seq; a later request carries it.

        Concurrency: any thread, also during a turn or a pass, which it neither waits for nor
        disturbs.
        Raises: UsageError for a blank message; StoreError when it cannot be stored.
        """
        if not is_user_text(message := {"role": "user", "content": content}):
            raise UsageError("the message is empty: type some text")
        self._open_session()
        [stored] = self.store.append(self.session_id, [message])
        return int(stored["_seq"])

    def pending_messages(self) -> int:
        """Return how many accepted user messages no request has carried yet."""
        self._open_session()
        return len(self._pending_rows())

    def run_pending(self) -> TurnResult | None:
        """Run a turn for messages accepted by `submit`, or return None when there are none."""
        with self._turn_lock:
            self._open_session()
            rows = self._pending_rows()
            return self._run(rows[0]["_seq"]) if rows else None

    def interrupt(self) -> None:
        """Stop the running turn, its tools and its pass, and a pass that is being prepared.

        Returns at once. Any thread.
        """
        turn = self._turn
        if turn is not None:
            turn.cancel.cancel()
        self._manual_stop.cancel()
        for fence in list(self.fences):
            fence.stop()
        self.background.cancel()

    @property
    def busy(self) -> str:
        """What is running now: `pass`, `turn`, or an empty string."""
        if self.fences:
            return "pass"
        return "turn" if self._turn is not None else ""

    def compress(self, focus: str | None = None, *, preview: bool = False) -> PassRecord:
        """Run one manual pass and return its ledger row.

        With `preview` the pass is prepared and left so; `commit_prepared` commits it without a
        second summary. The row's status and failure class say how it ended.
        """
        with self._turn_lock:
            self._open_session()
            self.background.stop()
            self.background.deliver()
            self._manual_stop = CancelToken()
            request = AttemptRequest(
                trigger="manual",
                force=True,
                focus=focus,
                preview=preview,
                cancel=self._manual_stop,
            )
            return conversation_compression.run_attempt(self, [], request).ledger

    def commit_prepared(self) -> PassRecord:
        """Commit the prepared pass. Raises: UsageError when there is none."""
        with self._turn_lock:
            self._open_session()
            return conversation_compression.commit_prepared(self).ledger

    def discard_prepared(self) -> PassRecord | None:
        """Close the prepared pass, if there is one, and return its ledger row."""
        with self._turn_lock:
            self._open_session()
            record = discard_prepared(self)
            if record is not None:
                self.publish_pass(record)
            return record

    def undo_compaction(self, pass_id: str | None = None) -> UndoResult:
        """Undo a pass by id or unique prefix, and first those that stand on it; None takes the
        newest compaction in the view. A pass that is running is stopped, a prepared one closed.

        What the pass covered is shown again beside everything accepted since. A rewind can be
        undone by its id while nothing was accepted after it.
        Raises: UnknownPass; UndoRefused, with the reason.
        Concurrency: any thread, also during a turn, whose next request carries the changed view.
        """
        return self._change_view(
            lambda guards: self.store.undo_pass(self.session_id, pass_id, guards=guards)
        )

    def diff(self, pass_id: str) -> PassChanges:
        """Return what a pass of this conversation, by id or unique prefix, took out of the view,
        what it put there, and its receipt. Raises: UnknownPass."""
        self._open_session()
        return self.store.pass_changes(pass_id, session_id=self.session_id)

    def undo_turn(self) -> str:
        """Take the last message of the user back, with all that follows it, and return its text.

        Messages that were accepted one after the other without an answer are taken back together.
        A running turn is waited for. Raises: UndoRefused when there is no message.
        """
        with self._turn_lock:
            rows = self._last_user_turn()
            self._rewind(rows[0]["_seq"])
            return "\n\n".join(text_of(row.get("content")) for row in rows)

    def retry(self) -> TurnResult:
        """Take the last message of the user back and send it again, as it was.

        Raises: as `undo_turn` and `run_conversation`.
        """
        with self._turn_lock:
            rows = self._last_user_turn()
            self._rewind(rows[0]["_seq"])
            stored = self.store.append(self.session_id, [wire_message(row) for row in rows])
            return self._run(stored[0]["_seq"])

    def branch(self, title: str | None = None) -> str:
        """Go on in a fork of the whole conversation and return its session id; the conversation so
        far stays as it is under its own id. Raises: UsageError when the title is taken."""
        with self._turn_lock:
            self._open_session()
            self.background.stop()
            new_id = new_session_id(self.clock.now())
            self.store.fork_session(self.session_id, new_id, title=title)
            self.move_to(new_id)
            return new_id

    def recall(
        self,
        query: str | None = None,
        rows: str | None = None,
        budget_tokens: int = 2000,
        *,
        offset: int = 0,
    ) -> list[Message]:
        """Return accepted rows by search or by seqs (`"17"`, `"40-62"`), within a token budget.

        `offset` skips characters of the first of the seqs; a row that is cut has `_slice`.
        """
        self._open_session()
        return recall.recall_rows(
            StoredRows(self.store, self.session_id),
            query=query,
            rows=rows,
            offset=offset,
            budget_tokens=budget_tokens,
        )

    def pin(self, text: str) -> Pin:
        """Set a standing instruction that every request carries word for word, and return it.

        Raises: UsageError for a blank text, a secret, and one past the pin budget.
        """
        self._open_session()
        refuse_over_budget(text, self.store.pins(self.session_id), self.budget().pin_tokens)
        return self.store.add_pin(self.session_id, text)

    def unpin(self, pin_id: int) -> Pin:
        """Take a pin off and return it. Raises: UsageError when there is none of that number."""
        self._open_session()
        return self.store.retire_pin(self.session_id, pin_id)

    def pins(self) -> list[Pin]:
        """Return the standing instructions in force, oldest first."""
        self._open_session()
        self.store.extract_pending()
        return self.store.pins(self.session_id)

    def context(self) -> ContextMeter:
        """Return what the next request would be made of, in tokens."""
        self._open_session()
        return measure(self)

    def usage_totals(self) -> UsageTotals:
        """Return what this agent has used since it was made."""
        return dataclasses.replace(self.usage)

    def switch_model(self, name: str) -> None:
        """Use another model of the same endpoint from the next request on.

        Strikes, brake and calibration of the old model are void; a smaller window is compacted
        for before the next request.
        """
        with self._turn_lock:
            self._open_session()
            self.background.stop()
            self._use_model(self._named(name))
            self.calibrate(Calibration(), {})
            self.store.settle(self.session_id, model_switched(self.clock.now()))
            self._bind_compressor()

    def set_title(self, title: str) -> None:
        """Name the session. Raises: UsageError when another session has that title."""
        self._open_session()
        self.store.set_title(self.session_id, title)

    def close(self) -> None:
        """Stop what runs and close connections; the store too when the agent opened it."""
        self.interrupt()
        self.background.close()
        if self._telemetry is not None:
            self._telemetry.close()
        self._close_providers()
        if self.options.session_db is None and self._store is not None:
            self._store.close()
            self._store = None

    def _run(self, first_seq: int) -> TurnResult:
        """Run the turn that begins with the user row `first_seq`."""
        turn = self._turn = self._new_turn(first_seq)
        note_turn_start(self, turn.id)
        try:
            self.emit(TurnStarted())
            with self.traced_turn(turn) as trace:
                ending = run_turn(self, turn)
                if trace is not None:
                    trace.stop_reason = ending.stop_reason
                self._follow_turn(turn, ending)
            self.background.deliver()
            self.emit(TurnFinished(final_text=ending.final_text, stop_reason=ending.stop_reason))
        except HermesError as error:
            self.emit(ErrorRaised(failure_class=error.failure_class, text=str(error)))
            self.emit(TurnFinished(final_text="", stop_reason="error"))
            raise
        except BaseException:
            turn.cancel.cancel()
            raise
        finally:
            note_turn_persisted(self)
            self._turn = None
        self._take_care(extracts=turn.used_tokens >= self.trigger_tokens * EXTRACT_SHARE)
        if ending.stop_reason != "interrupted":
            self.background.consider(turn.used_tokens)
        return TurnResult(
            final_text=ending.final_text,
            messages=self.store.accepted_rows(self.session_id, first_seq, self.live.head.watermark),
            usage=turn.usage,
            session_id=self.session_id,
            passes=turn.passes,
            stop_reason=ending.stop_reason,
            waited_ms=turn.waited_ms,
        )

    def _new_turn(self, first_seq: int) -> Turn:
        return Turn(id=new_turn_id(), first_seq=first_seq)

    def _follow_turn(self, turn: Turn, ending: Ending) -> None:
        """Take the answer into the view, and condense an exchange when that is on and due."""
        answer = ending.final_text if ending.stop_reason in ("stop", "length") else ""
        self.live.refresh()
        _micro_compact_after_turn(self, list(self.live.messages), answer, _log, turn.id)

    def _take_care(self, *, extracts: bool) -> None:
        """Complete the search index, and the extracts where they may soon be needed."""
        self.store.index_pending()
        if extracts:
            self.store.extract_pending()

    def _change_view(self, change: Callable[[Guards], UndoResult]) -> UndoResult:
        """Stop a running pass, make a change of the view, and tell it."""
        self._open_session()
        for fence in list(self.fences):
            fence.try_cancel_before_commit()
        self.background.stop()
        result = change(guards_of_undo(self))
        for row in result.ledger:
            self.publish_pass(row)
        return result

    def _rewind(self, seq: int) -> None:
        self._change_view(lambda guards: self.store.rewind(self.session_id, seq, guards=guards))

    def _last_user_turn(self) -> list[Message]:
        """Return the newest user rows of the view that were accepted one directly after the other.

        Raises: UndoRefused when there are none.
        """
        self._open_session()
        self.live.refresh()
        rows: list[Message] = []
        for row in filter(is_user_text, reversed(self.live.messages)):
            if rows and row["_seq"] != rows[0]["_seq"] - 1:
                break
            rows.insert(0, row)
        if not rows:
            raise UndoRefused(
                f"session {self.session_id!r} shows no message of the user to take back"
            )
        return rows

    def _compress_context(
        self, messages: list[Message], system_message: str, **options: Any
    ) -> tuple[list[Message], str]:
        """Run `compress_context` for this agent; `options` are its keyword arguments."""
        self._open_session()
        self.background.stop()
        return conversation_compression.compress_context(self, messages, system_message, **options)
