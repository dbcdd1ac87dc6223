"""Before each request: shape the view, compact when it is time, and refuse what cannot fit."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from agent.base.errors import ContextCannotFit
from agent.base.events import Notice
from agent.base.later import later
from agent.base.messages import Message
from agent.compaction.budget import PREPARE_SHARE
from agent.providers.protocol import KeepsHistory
from agent.sessions.records import PassStatus, Pin
from agent.turn.host import Turn, TurnHost
from agent.turn.request import Shaped, ShapeLimits, shape

if TYPE_CHECKING:
    from agent.turn import native, timing
else:
    native, timing = later("agent.turn", "native", "timing")

_TIGHTER = (0.5, 0.25)
"""What excerpts get of their share when nothing else makes a request fit."""


def prepare_request(host: TurnHost, turn: Turn, *, trigger: str) -> Shaped:
    """Return the request's messages, within the window.

    Compacts at most once when the trigger is reached and once more, without a model, when the
    result still does not fit. What was prepared in the background is committed as the turn starts;
    while one is being prepared a request that still fits is sent as it is. Both are left for later
    while a warm prompt cache makes that worth it (`timing.py`).
    Raises: ContextCannotFit when it is larger than the window after that; nothing was sent.
    """
    shaped = _shape(host, turn)
    if keeps_history(host):
        return shaped
    turn.used_tokens = _used(host, shaped)
    is_near = turn.used_tokens >= PREPARE_SHARE * host.trigger_tokens
    waits = is_near and trigger != "overflow" and timing.waits(host, turn.used_tokens)
    if waits:
        timing.tell_waiting(host, turn)
    if trigger == "turn_start_threshold" and not waits and host.background.commit(turn):
        shaped = _shape(host, turn)
        turn.used_tokens = _used(host, shaped)
    if turn.used_tokens < host.trigger_tokens or waits:
        host.background.consider(turn.used_tokens)
    may_start = not (host.background.running or turn.blocked_noted or waits)
    is_due = host.context_compressor.should_compress(turn.used_tokens)
    if _over(host, shaped) or (is_due and may_start):
        for _ in range(2):
            outcome = host.background.attempt(
                turn, trigger=trigger, needed=lambda: _over(host, _shape(host, turn))
            )
            turn.blocked_noted |= outcome.ledger.status is PassStatus.BLOCKED
            shaped = _shape(host, turn)
            if not outcome.committed or not _over(host, shaped):
                break
    elif turn.used_tokens >= host.trigger_tokens and may_start:
        turn.blocked_noted = True
        host.background.attempt(turn, trigger=trigger)
    for share in _TIGHTER:
        if _over(host, shaped):
            shaped = _shape(host, turn, share=share)
    if _over(host, shaped):
        raise cannot_fit(host, shaped)
    _tell_pins_beyond(host)
    for seq in shaped.excerpted:
        if seq >= turn.first_seq and seq not in host.excerpt_notices:
            host.excerpt_notices.add(seq)
            host.emit(
                Notice(
                    level="warning",
                    text=f"message #{seq} is longer than a quarter of the window: the model sees "
                    "its beginning and end and can read the rest with recall; it is stored whole",
                )
            )
    return shaped


def _shape(host: TurnHost, turn: Turn, *, share: float = 1.0) -> Shaped:
    """Return the wire form of the view; `share` of what excerpts may take is given to them."""
    host.live.refresh()
    budget = host.budget()
    limits = ShapeLimits(
        int(budget.round_tokens * share),
        int(budget.message_tokens * share),
        recall=host.recall_offered,
        images=host.takes_images,
    )
    pins, _beyond = host.standing_pins()
    return shape_view(host, limits, pins, first_seq=turn.first_seq)


def native_is_on(host: TurnHost) -> bool:
    """Whether the provider may compact by itself."""
    return host.settings.compression.codex_responses_native or keeps_history(host)


def keeps_history(host: TurnHost) -> bool:
    """Whether the provider keeps the conversation itself."""
    return isinstance(host.provider, KeepsHistory)


def shape_view(
    host: TurnHost, limits: ShapeLimits, pins: Sequence[Pin], *, first_seq: int | None = None
) -> Shaped:
    """Return the wire form of the live view, behind a compaction of the provider's if one stands.

    `first_seq` is the first user row of the running turn.
    """

    def make(rows: Sequence[Message]) -> Shaped:
        return shape(rows, limits, current_from_seq=first_seq, pins=pins)

    if keeps_history(host):
        return native.shape_kept(host.live.messages, limits, pins, first_seq)
    if native_is_on(host):
        return native.shape_shown(host, make, first_seq)
    return make(host.live.messages)


def _tell_pins_beyond(host: TurnHost) -> None:
    """Say once which standing instructions the pin budget leaves out."""
    _shown, beyond = host.standing_pins()
    new = [pin for pin in beyond if pin.id not in host.pin_notices]
    if new:
        host.pin_notices.update(pin.id for pin in new)
        host.emit(
            Notice(
                level="warning",
                text=f"{len(beyond)} standing instructions do not fit into the pin budget of "
                f"{host.budget().pin_tokens} tokens, the oldest first: {new[-1].text[:80]!r}; "
                "/pins lists them, /unpin takes one off",
            )
        )


def _used(host: TurnHost, shaped: Shaped) -> int:
    return host.counted(shaped.tokens + host.budget().overhead_tokens)


def _over(host: TurnHost, shaped: Shaped) -> bool:
    return _used(host, shaped) > host.window_tokens - host.reserve_tokens


def cannot_fit(host: TurnHost, shaped: Shaped) -> ContextCannotFit:
    """Return the error that names what is too large and what can be done about it."""
    needed, limit = _used(host, shaped), host.window_tokens - host.reserve_tokens
    advice = (
        "compaction is off (compression.enabled): switch it on, start anew with /new, or use a "
        "model with a larger window"
        if not host.settings.compression.enabled
        else "shorten the newest message, offer fewer tools, or use a model with a larger window"
    )
    return ContextCannotFit(
        f"the next request needs about {needed} tokens (system prompt and tools "
        f"{host.calibration.apply(host.budget().overhead_tokens)}), the window of "
        f"{host.provider.model!r} leaves {limit}; {advice}",
        needed_tokens=needed,
        limit_tokens=limit,
    )
