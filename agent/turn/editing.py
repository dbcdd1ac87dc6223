"""Context editing by the provider: old tool results, and perhaps thinking, that it leaves out of
what it reads. Opt-in, and our own engine stays armed behind it.

Nothing of ours changes: every row is sent, and the provider leaves the same out of each request
anew. The ledger tells of it when what is left out has grown.
"""

from __future__ import annotations

import dataclasses

from agent.providers.protocol import Cleared
from agent.sessions.records import CONTEXT_EDITING, NativePass, PassStatus
from agent.turn.host import Turn, TurnHost
from agent.turn.native import tell_native
from agent.turn.request import Shaped

_SHARE_OF_TRIGGER = 0.7
"""Where the provider begins: before a pass of our own is prepared."""
_NOTED_SHARE = 0.1
"""By what part of our trigger the cleared tokens grow from one ledger row to the next."""


def clear_at(host: TurnHost) -> int:
    """Return the tokens from which on the provider may leave out old tool results; 0: it may not.

    Once such a pass was undone it may not in that conversation.
    """
    compression = host.settings.compression
    if not compression.enabled or compression.anthropic_context_editing == "off":
        return 0
    for record in host.store.passes(host.session_id):
        if record.strategy == CONTEXT_EDITING and record.status is PassStatus.UNDONE:
            return 0
    return int(host.trigger_tokens * _SHARE_OF_TRIGGER)


def note_cleared(host: TurnHost, turn: Turn, shaped: Shaped, cleared: Cleared) -> int:
    """Record what the provider left out of a request if it has grown; return the tokens that the
    ledger tells of now."""
    stored = host.store.usage_anchor(host.session_id) if host.anchor is not None else {}
    noted = int(stored.get("noted", 0))
    if not cleared.tokens or (noted and cleared.tokens < noted + _step(host)):
        return noted
    before, count = shaped.tokens + host.budget().overhead_tokens, len(shaped.messages)
    brought = NativePass(
        generation=host.live.head.generation,
        tokens_before=before,
        tokens_after=max(0, before - round(cleared.tokens / host.calibration.ratio)),
        messages_before=count,
        messages_after=count,
        model=host.provider.model,
        route=host.provider.route,
        strategy=CONTEXT_EDITING,
        receipt={"cleared": dataclasses.asdict(cleared)},
    )
    host.store.append(host.session_id, [], brought)
    ledger = reversed(host.store.passes(host.session_id))
    tell_native(host, turn, next(r.id for r in ledger if r.strategy == CONTEXT_EDITING))
    return cleared.tokens


def _step(host: TurnHost) -> int:
    return int(host.trigger_tokens * _NOTED_SHARE)
