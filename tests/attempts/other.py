"""Another process that changes session `s` of a store: python -m tests.attempts.other PATH STEP."""

from __future__ import annotations

import sys

from agent.sessions.protocol import SessionStore
from agent.sessions.records import MaskedPlace, PassKind
from agent.testing.builders import user
from hermes_state import SessionDB
from tests.sessions.steps import cover, run_pass


def append(store: SessionStore) -> None:
    """Accept two rows."""
    store.append("s", [user("other 1"), user("other 2")])


def cover_oldest(store: SessionStore) -> None:
    """Take the conversation over and cover its two oldest rows."""
    _take_over(store)
    cover(store, store.view("s").messages[:2], "the other's notes", session_id="s")


def mask_newest(store: SessionStore) -> None:
    """Take the conversation over and mask its newest row."""
    _take_over(store)
    place = MaskedPlace(store.view("s").messages[-1]["_row_id"], {"content": "[other]"}, 3)
    run_pass(store, "s", kind=PassKind.MASK, mask=(place,))


def rewind(store: SessionStore) -> None:
    """Take the newest row back."""
    store.rewind("s", store.head("s").watermark)


def recreate(store: SessionStore) -> None:
    """Delete the conversation and begin another one of the same name and length."""
    count = store.head("s").watermark
    store.delete_session("s")
    store.create_session("s", source="test")
    store.append("s", [user(f"n{number}") for number in range(count)])


def _take_over(store: SessionStore) -> None:
    """End the running attempt as an undo does: what it holds is void."""
    store.append("s", [user("taken back")])
    rewind(store)


STEPS = {step.__name__: step for step in (append, cover_oldest, mask_newest, rewind, recreate)}

if __name__ == "__main__":
    changed = SessionDB(sys.argv[1])
    STEPS[sys.argv[2]](changed)
    changed.close()
