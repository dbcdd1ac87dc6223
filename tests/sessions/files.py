"""Exports in memory, and a conversation that has one of everything."""

from __future__ import annotations

import io
from typing import Any

import orjson

from agent.testing.clock import FakeClock
from hermes_state import SessionDB
from tests.sessions.steps import LARGE, SESSION, cover, mask, talk

Lines = list[Any]


def exported(store: SessionDB, session_id: str = SESSION) -> bytes:
    out = io.BytesIO()
    store.export_session(session_id, out)
    return out.getvalue()


def lines_of(data: bytes) -> Lines:
    return [orjson.loads(line) for line in data.splitlines()]


def joined(lines: Lines) -> bytes:
    return b"".join(orjson.dumps(line) + b"\n" for line in lines)


def rich(store: SessionDB, clock: FakeClock) -> None:
    """Fill a session with one of everything: blob, parts, mask, two passes, undo, rewind, pins."""
    store.create_session(
        SESSION, "cli", model="m", model_config={"t": 0.5}, title="Garden plan", cwd="/tmp"
    )
    store.set_system_prompt(SESSION, "be brief")
    store.append(SESSION, [{"role": "user", "content": "Never touch the audit log. Port is 5432."}])
    clock.advance(5)
    calls = [{"id": "c1", "type": "function", "function": {"name": "f", "arguments": "{}"}}]
    rows = store.append(
        SESSION,
        [
            {"role": "assistant", "content": None, "tool_calls": calls, "_usage": {"prompt": 7}},
            {"role": "tool", "tool_call_id": "c1", "name": "f", "content": LARGE},
            {"role": "user", "content": [{"type": "text", "text": "a\u0000b"}], "odd": [1.5, None]},
            *talk(6, first=5),
        ],
    )
    store.add_pin(SESSION, "Answer in French.")
    gone = store.add_pin(SESSION, "Answer in verse.")
    store.retire_pin(SESSION, gone.id)
    mask(store, rows[1], "[a long log]", 5)
    cover(store, rows[3:5], "first notes")
    store.undo_pass(SESSION, cover(store, rows[6:8], "undone notes")[0])
    clock.advance(60)
    view = store.view(SESSION).messages
    cover(store, [row for row in view if row.get("_kind")], "second notes")
    store.append(SESSION, talk(4, first=11))
    store.rewind(SESSION, 13)
    store.note_unstarted(SESSION, status="skipped", failure_class="cooldown", trigger="manual")
    store.extract_pending()
