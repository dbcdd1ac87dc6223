"""Compaction by the provider itself, where it offers that: opt-in, a pass in the ledger with its
own mark, and our own engine armed behind it.

Every row stays live. While the item that an answer brought stands, requests on its route begin
with that answer; any change of the view, another route and an undo bring all rows back.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence

from agent.base.messages import Message, is_user_text, last_user_index
from agent.compaction.pins import render_pins
from agent.compaction.report import tell_finished
from agent.providers.protocol import CallWatch, KeepsHistory, SendsCompactionsBack
from agent.sessions.records import NativePass, Pin
from agent.turn.host import Turn, TurnHost
from agent.turn.request import Shaped, ShapeLimits, join, shape, tokens_of

_SHARE_OF_TRIGGER = 0.9
"""Where the provider compacts unless told: before our own engine would."""


def native_threshold(host: TurnHost) -> int:
    """Return the tokens from which on the provider may compact by itself; 0: it may not."""
    compression = host.settings.compression
    if isinstance(host.provider, KeepsHistory):
        return 1 if compression.enabled and compression.codex_app_server_auto == "native" else 0
    if not (compression.enabled and compression.codex_responses_native):
        return 0
    own = int(host.trigger_tokens * _SHARE_OF_TRIGGER)
    return compression.codex_responses_compact_threshold or own


def shown_rows(host: TurnHost, first_seq: int | None = None) -> Sequence[Message]:
    """Return the rows that the next request is made of: the live view from the newest answer on
    that brought a compaction which stands, with the requests in progress before it.

    `first_seq` is the first user row of the running turn, None the newest user row.
    """
    view, generation = host.live.messages, host.live.head.generation
    provider = host.provider
    if not generation or not isinstance(provider, SendsCompactionsBack):
        return view
    for index in range(len(view) - 1, -1, -1):
        row = view[index]
        if "_reasoning" not in row:
            continue
        if row.get("_generation") != generation:
            break
        if provider.holds_compaction(row):
            return [*_in_progress(view, index, first_seq), *view[index:]]
    return view


def shape_shown(
    host: TurnHost, make: Callable[[Sequence[Message]], Shaped], first_seq: int | None
) -> Shaped:
    """Return the wire form that `make` gives of the rows to show.

    All rows are shown where the answer with the compaction cannot go back as it came, since it was
    joined with another.
    """
    rows = shown_rows(host, first_seq)
    shaped = make(rows)
    provider = host.provider
    if rows is host.live.messages or not isinstance(provider, SendsCompactionsBack):
        return shaped
    if any(map(provider.holds_compaction, shaped.messages)):
        return shaped
    return make(host.live.messages)


def shape_kept(
    rows: Sequence[Message], limits: ShapeLimits, pins: Sequence[Pin], first_seq: int | None
) -> Shaped:
    """Return the wire form for a provider that keeps the conversation: pins stand before the
    newest request, which is all that it is told of a conversation that it knows."""
    shaped = shape(rows, limits, current_from_seq=first_seq)
    last = last_user_index(shaped.messages)
    if not pins or last is None:
        return shaped
    block: Message = {"role": "user", "content": render_pins(pins)}
    messages = [*shaped.messages]
    messages[last] = join(block, messages[last])
    return dataclasses.replace(shaped, messages=messages)


def _in_progress(view: list[Message], end: int, first_seq: int | None) -> list[Message]:
    if first_seq is None:
        last = last_user_index(view)
        first_seq = view[last]["_seq"] if last is not None else end
    return [row for row in view[:end] if is_user_text(row) and row["_seq"] >= first_seq]


def native_pass(
    host: TurnHost, message: Message, shaped: Shaped, generation: int
) -> NativePass | None:
    """Return what an answer tells the ledger when it brought a compaction, None when not."""
    provider = host.provider
    if isinstance(provider, KeepsHistory):
        brought = provider.brought_compaction(message)
    else:
        brought = isinstance(provider, SendsCompactionsBack) and provider.holds_compaction(message)
    if not brought:
        return None
    overhead_tokens = host.budget().overhead_tokens
    return NativePass(
        generation=generation,
        tokens_before=shaped.tokens + overhead_tokens,
        tokens_after=tokens_of(message) + overhead_tokens,
        messages_before=len(shaped.messages),
        messages_after=1,
        model=host.provider.model,
        route=host.provider.route,
    )


def lend(host: TurnHost, turn: Turn, watch: CallWatch) -> None:
    """Let a provider with tools of its own tell of them, and ask before one writes or executes."""
    runner = host.tool_runner(turn)
    watch.on_event = host.emit
    if runner is None:
        return
    watch.cwd = str(runner.context.cwd)
    is_off = host.settings.tools.approval == "off"
    watch.confirm = (lambda _call_id, _why: True) if is_off else runner.confirm


def tell_native(host: TurnHost, turn: Turn, pass_id: str) -> None:
    """Report a pass that an answer brought."""
    ledger = host.store.pass_record(pass_id)
    turn.passes.append(pass_id)
    tell_finished(host, ledger)
    host.publish_pass(ledger)
