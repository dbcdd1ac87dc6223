"""The agent behind served requests: whole messages come in, and their tools may be the client's.

Read next: `desk.py`, which keeps one for each conversation.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import TYPE_CHECKING, Any

from agent.base.cancel import CancelToken
from agent.base.errors import CallCancelled
from agent.base.messages import Message, is_user_text, last_user_index, wire_message
from agent.base.record import dataclass
from agent.server.caretaker import Caretaker
from agent.server.faults import Fault, refused
from agent.sessions.records import PassRecord
from agent.tools.protocol import Tool
from agent.turn.host import Turn, TurnResult
from agent.turn.prompt import PromptParts, build_prompt, fresh_prompt
from run_agent import AIAgent

if TYPE_CHECKING:
    from agent.tools.runner import ToolRunner

_CALLER = "\n\n# Instructions of the caller\n\n"
"""Stands in a kept prompt between what the session began with and what the client asked for."""


@dataclass(frozen=True)
class Wishes:
    """What one request asks of its turn.

    `tools` None lets the agent use its own; a list offers only those and hands their calls back.
    `instructions` None leaves those of the session as they are. `max_tokens` 0 and `temperature`
    None ask for nothing.
    """

    tools: Sequence[dict[str, Any]] | None = None
    instructions: str | None = None
    max_tokens: int = 0
    temperature: float | None = None


@dataclass(frozen=True)
class Served:
    """A finished turn: its result, the rows it said, and the seq of its newest row."""

    result: TurnResult
    rows: Sequence[Message] = field(default_factory=tuple)
    last_seq: int = 0


class ServedAgent(AIAgent):
    """An agent that takes the messages of a request and runs the turn they ask for."""

    caretaker: Caretaker
    """Indexes and extracts what a turn has stored, which is not done here."""
    _wishes = Wishes()
    _wished_cancel = CancelToken()
    _prompt: str | None = None

    def serve(self, messages: Sequence[Message], wishes: Wishes, cancel: CancelToken) -> Served:
        """Accept messages, run the turn that answers them, and return what was said.

        Rows of the view that were accepted before and never answered are answered too; those that
        `messages` begins with are not accepted a second time. `cancel` stops the turn.
        Raises: Fault when nothing waits for an answer; as `run_conversation`.
        """
        with self._turn_lock:
            self._open_session()
            self._take(wishes, cancel)
            self.live.refresh()
            unanswered = _after_last_answer(self.live.messages)
            new = messages[_same_beginning(unanswered, messages) :]
            stored = self.store.append(self.session_id, new)
            rows = [*unanswered, *stored]
            if not rows:
                raise refused("nothing waits for an answer: send a message", code="nothing_to_do")
            try:
                result = self._run(self._first_request(rows))
            finally:
                self._take(Wishes(), CancelToken())
            head = self.store.head(self.session_id)
            last_seq = rows[-1]["_seq"]
            later = self.store.accepted_rows(self.session_id, last_seq + 1, head.watermark)
            said = [row for row in later if row["role"] in ("assistant", "tool")]
            return Served(result, said, head.watermark)

    def compact(self, focus: str | None, cancel: CancelToken, *, preview: bool) -> PassRecord:
        """Run one pass by hand and return its ledger row; `cancel` stops it.

        Raises: CallCancelled when it was stopped before it began.
        """
        with self._turn_lock:
            if cancel.cancelled:
                raise CallCancelled("the pass was stopped before it began")
            forget = cancel.on_cancel(self.interrupt)
            try:
                return self.compress(focus, preview=preview)
            finally:
                forget()

    def _take(self, wishes: Wishes, cancel: CancelToken) -> None:
        """Let the next turn follow the wishes of a request."""
        if wishes.tools and not self.provider.supports_tools:
            raise refused(f"{self.provider.model!r} takes no tools", code="unsupported_tools")
        self._wishes, self._wished_cancel = wishes, cancel
        self._prompt = self._overhead = None
        if wishes.instructions is not None:
            base, _mark, before = self._kept_prompt().partition(_CALLER)
            if wishes.instructions != before:
                prompt = f"{base}{_CALLER}{wishes.instructions}"
                self.store.set_system_prompt(self.session_id, prompt)

    def _first_request(self, rows: Sequence[Message]) -> int:
        """Return the seq of the first user row in progress: results go on with an earlier one."""
        asked = [row for row in rows if is_user_text(row)]
        if asked:
            return int(asked[0]["_seq"])
        self.live.refresh()
        last = last_user_index(self.live.messages)
        return int((rows[0] if last is None else self.live.messages[last])["_seq"])

    def _new_turn(self, first_seq: int) -> Turn:
        turn = super()._new_turn(first_seq)
        turn.max_tokens = self._wishes.max_tokens
        turn.temperature = self._wishes.temperature
        self._wished_cancel.on_cancel(turn.cancel.cancel)
        return turn

    def _take_care(self, *, extracts: bool) -> None:
        self.caretaker.wake(extracts=extracts)

    # -- what requests are made of ------------------------------------------------------------
    @property
    def tools(self) -> Mapping[str, Tool]:
        """The tools that are run here; none when the client brought its own."""
        return super().tools if self._wishes.tools is None else {}

    @property
    def tool_schemas(self) -> Sequence[dict[str, Any]]:
        """What requests offer: the agent's own tools, or only the client's."""
        return super().tool_schemas if self._wishes.tools is None else self._wishes.tools

    def tool_runner(self, turn: Turn) -> ToolRunner | None:
        """Return a runner of the agent's tools; None when the client runs its own."""
        return super().tool_runner(turn) if self._wishes.tools is None else None

    @property
    def system_prompt(self) -> str:
        """The session's own prompt and the client's; with the client's tools only the latter."""
        if self._prompt is None:
            self._prompt = self._compose()
        return self._prompt

    def _compose(self) -> str:
        self._open_session()
        base, _mark, said = self._kept_prompt().partition(_CALLER)
        if self._wishes.tools is not None:
            bare = PromptParts(cwd=self.cwd, tools_offered=False)
            return said or build_prompt(bare, window_tokens=self.window_tokens)
        if not base:
            base = fresh_prompt(
                self.options,
                self.cwd,
                tools_offered=bool(self.tools),
                window_tokens=self.window_tokens,
            )
            kept = f"{base}{_CALLER}{said}" if said else base
            self.store.set_system_prompt(self.session_id, kept)
        return f"{base}\n\n{said}" if said else base

    def _kept_prompt(self) -> str:
        return self.store.session(self.session_id).system_prompt or ""


def new_messages(messages: Sequence[Message]) -> Sequence[Message]:
    """Return the messages after the last one of the assistant: what a stored session lacks."""
    for index in range(len(messages) - 1, -1, -1):
        if messages[index]["role"] == "assistant":
            return messages[index + 1 :]
    return messages


def require_request(messages: Sequence[Message]) -> None:
    """Raise Fault unless the last message is one that a model can answer."""
    last = messages[-1]["role"] if messages else None
    if last not in ("user", "tool"):
        what = f"the last one is the {last}'s" if last else "there is none"
        raise Fault(400, f"a message of the user or a tool is needed; {what}", code="no_request")


def _after_last_answer(view: Sequence[Message]) -> list[Message]:
    """Return the rows of a view that no answer follows: user rows and tool results."""
    rows = []
    for row in reversed(view):
        if row["role"] == "assistant" or row.get("_kind", "message") != "message":
            break
        rows.append(row)
    return rows[::-1]


def _same_beginning(stored: Sequence[Message], sent: Sequence[Message]) -> int:
    """Return how many messages were sent that are stored already: a request that is sent again."""
    if len(sent) < len(stored):
        return 0
    same = all(wire_message(row) == message for row, message in zip(stored, sent, strict=False))
    return len(stored) if same else 0
