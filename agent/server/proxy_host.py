"""One conversation of a client as passes see it, and the messages of its next request.

The client's own dicts stand for the live rows; what a pass replaced is rendered by the request
builder of turns. Read next: `proxy_exchange.py`, `agent/turn/background.py`.
"""

from __future__ import annotations

import dataclasses
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from agent.base.cancel import CancelToken
from agent.base.errors import CallCancelled, ContextOverflow
from agent.base.events import Event
from agent.base.ids import new_turn_id
from agent.base.messages import Message, is_user_text
from agent.base.record import dataclass
from agent.base.settings import ModelSettings, Settings
from agent.base.tokens import Calibration, estimate_message
from agent.compaction.budget import PREPARE_SHARE, Budget
from agent.compaction.verdict import judge_last_pass, model_switched
from agent.providers.protocol import TokenUsage
from agent.server.proxy_chain import Sent
from agent.server.proxy_recall import may_offer, recall_tokens
from agent.sessions.prefixes import Standing
from agent.sessions.protocol import SessionStore
from agent.turn.background import TRIGGER as BETWEEN_TURNS
from agent.turn.host import Turn
from agent.turn.options import AgentOptions
from agent.turn.preflight import cannot_fit
from agent.turn.request import Shaped, ShapeLimits, shape
from agent.turn.runtime import AgentRuntime

_LOCK_SLICE_S = 0.1
_RATIO_CHANGE = 0.02
"""Part by which the calibration must have changed before it is written again."""
_TIGHTER = (1.0, 0.5, 0.25)
"""What excerpts get of their share, in turn, until a request fits."""


class Moved(Exception):
    """Another request took the conversation on meanwhile: this one's history stands elsewhere."""


@dataclass(frozen=True)
class Prepared:
    """What a request is sent with: messages, or None for the body as it came.

    `estimated` are estimated tokens of the whole request, `generation` is that of the conversation
    it was made of.
    """

    messages: Sequence[Message] | None
    estimated: int
    generation: int = 0


class ProxyHost(AgentRuntime):
    """The runtime of one conversation: no prompt and no tools of its own, the caller's key.

    Concurrency: everything but `as_it_came` and `close` under `held`.
    """

    def __init__(self, store: SessionStore, session_id: str, settings: Settings) -> None:
        options = AgentOptions(
            session_db=store,
            session_id=session_id,
            builtin_tools=False,
            platform="proxy",
            skip_context_files=True,
            skip_memory=True,
        )
        super().__init__(settings, options)
        self.offers_recall = False
        self._lock = threading.Lock()
        self._beside_tokens = 0
        self._client_rows: Sequence[Message] = ()
        self._may_be_prepared = True
        """Whether a pass may wait to be committed: one of an earlier process, or of ours."""

    @property
    def system_prompt(self) -> str:
        """Nothing: the client sends its own."""
        return ""

    @property
    def recall_offered(self) -> bool:
        """Whether the proxy answers recall calls in this conversation."""
        return self.offers_recall

    @property
    def overhead_tokens(self) -> int:
        """Estimated tokens of the client's system messages and schemas."""
        return self._beside_tokens

    def emit(self, event: Event) -> None:
        """Hear nothing: what a pass came to is on the ledger and in the log."""

    @contextmanager
    def held(self, cancel: CancelToken, on_wait: Callable[[], None]) -> Iterator[None]:
        """Have the conversation to oneself. Raises: CallCancelled when the client left."""
        if not self._lock.acquire(timeout=_LOCK_SLICE_S):
            on_wait()
            self._acquire(cancel)
        try:
            yield
        finally:
            self._lock.release()

    def _acquire(self, cancel: CancelToken) -> None:
        while not self._lock.acquire(timeout=_LOCK_SLICE_S):
            if cancel.cancelled:
                raise CallCancelled("the client left while another request was prepared")

    def take(self, sent: Sent, model: ModelSettings) -> None:
        """Take over what a request came with: model, key, window, output, and its messages."""
        before = self.settings.model
        self._client_rows = sent.rows
        self.offers_recall = self.settings.proxy.recall and may_offer(sent.body)
        self._beside_tokens = sent.overhead_tokens + (recall_tokens() if self.offers_recall else 0)
        if dataclasses.replace(before, max_output_tokens=model.max_output_tokens) != model:
            self.background.stop()
            self._use_model(dataclasses.replace(self.settings, model=model))
        self.settings = dataclasses.replace(self.settings, model=model)
        self._open_session()
        if before.name and before.name != model.name:
            self.calibrate(Calibration(), {})
            self.store.settle(self.session_id, model_switched(self.clock.now()))
        self._bind_compressor()

    def as_it_came(self, sent: Sent, model: ModelSettings, standing: Standing) -> Prepared | None:
        """Return how a request goes on that needs nothing done: no pass waits or has replaced
        anything, and all of it fits. None where that is not plain.

        Concurrency: any thread.
        """
        is_plain = not standing.generation and not sent.beyond_tokens
        if not is_plain or self._may_be_prepared or self.settings.model != model:
            return None
        estimated = standing.live_tokens + sent.overhead_tokens
        fits = estimated + recall_tokens() <= self.budget().usable_tokens
        return Prepared(None, estimated) if fits else None

    def prepare(self, sent: Sent, cancel: CancelToken, on_wait: Callable[[], None]) -> Prepared:
        """Return what to send, after the pass that waits to be committed and, if the request would
        not fit, another one; `on_wait` hears that this takes its time.

        Raises: Moved; ContextCannotFit when nothing more can be left out; CallCancelled.
        """
        turn = self._new_turn(sent, cancel)
        if self._may_be_prepared:
            self.background.commit(turn)
            self._may_be_prepared = self.background.running
        self._require_here()
        as_it_came = self._whole_tokens()
        budget = self.budget()
        if as_it_came is not None:
            estimated = as_it_came + budget.overhead_tokens
            if estimated <= budget.usable_tokens or not self.settings.compression.enabled:
                return Prepared(None, estimated, self.live.head.generation)
        shaped = self._shape(turn)
        for _ in range(2):
            if not self._over(shaped):
                break
            on_wait()
            outcome = self.background.attempt(
                turn, trigger=BETWEEN_TURNS, needed=lambda: self._over(self._shape(turn))
            )
            shaped = self._shape(turn)
            if not outcome.committed:
                break
        return self._fitted(turn, shaped)

    def shrink(
        self, sent: Sent, cancel: CancelToken, refused: Prepared, error: ContextOverflow
    ) -> Prepared | None:
        """Return what to send after the upstream refused a request as too large, None when
        nothing has become smaller.

        The upstream's own numbers replace ours. Raises: as `prepare`.
        """
        turn = self._new_turn(sent, cancel)
        self._learn(error, refused.estimated)
        if not self.settings.compression.enabled:
            return None
        self.background.attempt(
            turn, trigger="overflow", needed=lambda: self._over(self._shape(turn))
        )
        self._require_here()
        smaller = self._fitted(turn, self._shape(turn))
        return smaller if smaller.estimated < refused.estimated else None

    def follow(self, prepared: Prepared, usage: TokenUsage | None) -> None:
        """After a reply: take the upstream's count over, and prepare a pass when one is near.

        A reply that comes behind a pass of another request says nothing of what that left.
        """
        self.live.refresh()
        is_of_now = prepared.generation == self.live.head.generation
        used = self.calibration.apply(prepared.estimated)
        if usage is not None and usage.held_tokens > 0:
            used = usage.held_tokens
            self._observe(prepared.estimated, used)
            if is_of_now:
                judge_last_pass(self, used, self.trigger_tokens, usage)
        if not is_of_now:
            return
        newest = self.live.messages[-1] if self.live.messages else {}
        used += self.calibration.apply(newest.get("_tokens", 0))
        self._may_be_prepared |= used >= PREPARE_SHARE * self.trigger_tokens
        self.background.consider(used)

    def close(self) -> None:
        """Stop what is being prepared and close connections."""
        for fence in list(self.fences):
            fence.stop()
        self.background.close()
        if self._telemetry is not None:
            self._telemetry.close()
        self._close_providers()

    def _observe(self, estimated: int, counted: int) -> None:
        """Take a count over; it is written only when it changes what estimates are worth."""
        before, self.calibration = self.calibration, self.calibration.observe(estimated, counted)
        change = abs(self.calibration.ratio - before.ratio)
        if not before.reports or change > _RATIO_CHANGE * before.ratio:
            self.calibrate(self.calibration, self.calibration.to_dict())

    def _learn(self, error: ContextOverflow, estimated: int) -> None:
        """Take over what the upstream said of its window, or of the size of the request."""
        if error.limit_tokens is not None and error.limit_tokens < self.window_tokens:
            self.learn_window(error.limit_tokens)
        real = max(error.request_tokens or 0, error.limit_tokens or self.window_tokens)
        if real > self.calibration.apply(estimated):
            calibration = Calibration().observe(estimated, real)
            self.calibrate(calibration, calibration.to_dict())

    # -- what is shown ------------------------------------------------------------------------
    def _new_turn(self, sent: Sent, cancel: CancelToken) -> Turn:
        first = len(sent.rows)
        while first > 1 and not is_user_text(sent.rows[first - 1]):
            first -= 1
        while first > 1 and is_user_text(sent.rows[first - 2]):
            first -= 1
        return Turn(id=new_turn_id(), first_seq=first, cancel=cancel)

    def _require_here(self) -> None:
        self.live.refresh()
        if self.live.head.watermark != len(self._client_rows):
            raise Moved

    def _whole_tokens(self) -> int | None:
        """Return the estimate of all the client's messages, None when a pass replaced some."""
        rows = self.live.messages
        if len(rows) != len(self._client_rows) or any("_stub" in r or "_kind" in r for r in rows):
            return None
        return sum(map(self._tokens_of, rows))

    def _shown(self) -> list[Message]:
        """Return the live view with the client's own messages in place of their stored rows."""
        return [self._client_row(row) for row in self.live.messages]

    def _client_row(self, row: Message) -> Message:
        if "_kind" in row:
            return row
        given = self._client_rows[row["_seq"] - 1]
        shown = {key: value for key, value in given.items() if not key.startswith("_")}
        shown["_seq"] = row["_seq"]
        if "_stub" in row:
            return {**shown, **row["_stub"], "_tokens": row["_tokens"]}
        tokens = self._tokens_of(row)
        return {**shown, "_tokens": tokens, "_row_id": row["_row_id"], "_given": given}

    def _tokens_of(self, row: Message) -> int:
        """Return what a client's message takes; of a large result the store has only a part."""
        if "_blob" in row:
            return estimate_message(self._client_rows[row["_seq"] - 1])
        return int(row["_tokens"])

    def _shape(self, turn: Turn, *, share: float = 1.0) -> Shaped:
        """Return the wire form of the view. Raises: Moved: rows of another request came."""
        self._require_here()
        budget: Budget = self.budget()
        limits = ShapeLimits(
            int(budget.round_tokens * share),
            int(budget.message_tokens * share),
            recall=self.offers_recall,
        )
        pins, _beyond = self.standing_pins()
        return shape(self._shown(), limits, current_from_seq=turn.first_seq, pins=pins)

    def _over(self, shaped: Shaped) -> bool:
        budget = self.budget()
        return shaped.tokens + budget.overhead_tokens > budget.usable_tokens

    def _fitted(self, turn: Turn, shaped: Shaped) -> Prepared:
        """Return the request with excerpts cut until it fits. Raises: ContextCannotFit."""
        for share in _TIGHTER:
            if not self._over(shaped):
                break
            shaped = self._shape(turn, share=share)
        if self._over(shaped):
            raise cannot_fit(self, shaped)
        estimated = shaped.tokens + self.budget().overhead_tokens
        return Prepared(shaped.messages, estimated, self.live.head.generation)


def compose(sent: Sent, prepared: Prepared) -> list[Any]:
    """Return the messages of a request: the client's system messages and what a view shows.

    A system message stands before the row that it stood before, where that row is still shown, or
    last if it was; else it comes first.
    """
    shown = {message["_seq"] for message in prepared.messages or () if "_given" in message}
    placed: dict[int, list[Message]] = {}
    for before, message in sent.system_at:
        is_last = before and before == len(sent.rows)
        place = before + 1 if is_last or (before and before + 1 in shown) else 0
        placed.setdefault(place, []).append(message)
    wire: list[Any] = placed.pop(0, [])
    for message in prepared.messages or ():
        if "_given" in message:
            wire += placed.pop(message["_seq"], ())
        wire.append(_wire(message))
    return wire + [message for rest in placed.values() for message in rest]


def _wire(message: Mapping[str, Any]) -> Any:
    """Return a message as it is sent: the client's own dict where nothing changed it."""
    if "_given" in message and "_row_id" in message:
        return message["_given"]
    return {key: value for key, value in message.items() if not key.startswith("_")}
