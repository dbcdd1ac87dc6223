"""Everything that can be read of a conversation, with ids replaced by places: two conversations are
the same when their readings are equal."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from agent.base.messages import Message
from agent.sessions.protocol import SessionStore
from agent.sessions.records import PassKind, PassRecord

LAST = 2**40


def read_all(store: SessionStore, session_id: str) -> dict[str, Any]:
    """Return what the protocol tells of a conversation, but for brake, health and lease."""
    history = store.history(session_id)
    rows = {place.message["_row_id"]: number for number, place in enumerate(history)}
    ledger = [p for p in store.passes(session_id) if p.kind is not PassKind.IMPORT]
    passes = {record.id: number for number, record in enumerate(ledger)}
    names = _Names(rows, passes)
    view, record = store.view(session_id), store.session(session_id)
    return {
        "session": (record.source, record.model, record.model_config, record.system_prompt)
        + (record.started_at, record.ended_at, record.end_reason, record.cwd)
        + (record.last_active_at, record.message_count, record.pass_count),
        "view": [names.message(message) for message in view.messages],
        "size": (view.tokens, view.watermark),
        "history": [
            (
                names.message(place.message),
                place.state,
                passes.get(place.compacted_by or ""),
                passes.get(place.made_by or ""),
            )
            for place in history
        ],
        "accepted": [names.message(m) for m in store.accepted_rows(session_id, 1, LAST)],
        "passes": [names.ledger_row(record) for record in ledger],
        "changes": [names.changes(store, session_id, record) for record in ledger],
        "pins": [dataclasses.replace(pin, id=0) for pin in store.pins(session_id)],
        "extracts": [
            (rows[found.row_id], found.seq, found.role, found.kind, found.subject, found.value)
            for found in store.extracts(session_id)
        ],
    }


@dataclasses.dataclass(frozen=True)
class _Names:
    rows: Mapping[int, int]
    passes: Mapping[str, int]

    def message(self, message: Message) -> Message:
        named = {**message, "_row_id": self.rows[message["_row_id"]]}
        if "_masked_by" in message:
            named["_masked_by"] = self.passes[message["_masked_by"]]
        return named

    def ledger_row(self, record: PassRecord) -> dict[str, Any]:
        return {
            **dataclasses.asdict(record),
            "id": None,
            "conversation_id": None,
            "session_id": None,
            "child_session_id": record.child_session_id is not None,
            "target_pass": self.passes.get(record.target_pass or ""),
        }

    def changes(self, store: SessionStore, session_id: str, record: PassRecord) -> Any:
        changes = store.pass_changes(record.id, session_id=session_id)
        return (
            [self.message(message) for message in changes.left],
            [(self.message(before), self.message(after)) for before, after in changes.masked],
            [self.message(message) for message in changes.made],
        )
