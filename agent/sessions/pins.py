"""Standing instructions: set by hand, or found in what a real user wrote.

A pin is never deleted, it is retired: by hand, or by a later row of the user that takes it back.
Both are undone by a rewind that hides the row, because a pin is read together with its rows.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from agent.base.errors import UsageError
from agent.base.later import later
from agent.base.messages import clean_text
from agent.base.pattern import pattern
from agent.base.redact import contains_secret
from agent.sessions.places import conversation_of
from agent.sessions.records import Pin
from agent.sessions.sqlite import Connection, insert_id

if TYPE_CHECKING:
    from agent.base import takeback
else:
    [takeback] = later("agent.base", "takeback")

_WORDS = pattern(r"[^\W_]+")
BY_HAND, BY_ROW = "user", "row"

_HIDDEN = """EXISTS (SELECT 1 FROM places h WHERE h.conversation_id = n.conversation_id
    AND h.seq = {} AND h.made_by IS NULL AND h.hidden_by IS NOT NULL)"""
_IN_FORCE = f"""
SELECT n.id, n.text, n.source_seq, n.created_at FROM pins n
WHERE n.conversation_id = ? AND NOT {_HIDDEN.format("n.source_seq")}
    AND (n.retired_at IS NULL OR {_HIDDEN.format("n.retired_seq")})
ORDER BY coalesce(n.source_seq, 0), n.id"""
_NEW_PIN = "INSERT INTO pins (conversation_id, text, source_seq, created_at) VALUES (?, ?, ?, ?)"
_RETIRE = "UPDATE pins SET retired_at = ?, retired_by = ?, retired_seq = ? WHERE id = ?"


def read_pins(connection: Connection, session_id: str) -> list[Pin]:
    """Return the pins in force, each wording once."""
    return list(_once(_in_force(connection, conversation_of(connection, session_id))))


def _in_force(connection: Connection, conversation_id: int) -> list[Pin]:
    return [Pin(*row) for row in connection.execute(_IN_FORCE, (conversation_id,)).fetchall()]


def _once(pins: Iterable[Pin]) -> list[Pin]:
    """Return the newest of each wording; one set by hand stands for all that say the same."""
    newest: dict[str, Pin] = {}
    for pin in pins:
        key = wording(pin.text)
        if key in newest and newest[key].source_seq is None:
            continue
        newest.pop(key, None)
        newest[key] = pin
    return list(newest.values())


def wording(text: str) -> str:
    """Return what two pins have in common that say the same."""
    return " ".join(_WORDS.findall(text.casefold()))


def add_pin(connection: Connection, session_id: str, text: str, now: float) -> Pin:
    """Set a pin by hand."""
    conversation_id = conversation_of(connection, session_id)
    text = clean_text(text.strip())
    if not wording(text):
        raise UsageError(f"the pin {text!r} says nothing: give the instruction as a sentence")
    if contains_secret(text):
        raise UsageError(
            "the pin holds a secret, which would be sent with every request; name where the secret "
            "is kept instead"
        )
    for pin in _in_force(connection, conversation_id):
        if pin.source_seq is None and wording(pin.text) == wording(text):
            return pin
    return _insert(connection, conversation_id, text, None, now)


def _insert(
    connection: Connection, conversation_id: int, text: str, source_seq: int | None, now: float
) -> Pin:
    pin_id = insert_id(connection, _NEW_PIN, (conversation_id, text, source_seq, now))
    return Pin(pin_id, text, source_seq, now)


def retire_pin(connection: Connection, session_id: str, pin_id: int, now: float) -> Pin:
    """Take a pin and its like off by hand."""
    pins = _in_force(connection, conversation_of(connection, session_id))
    chosen = next((pin for pin in pins if pin.id == pin_id), None)
    if chosen is None:
        raise UsageError(
            f"session {session_id!r} has no pin {pin_id} in force; see `hermes pins list`"
        )
    for pin in pins:
        if wording(pin.text) == wording(chosen.text):
            connection.execute(_RETIRE, (now, BY_HAND, None, pin.id))
    return chosen


def recognise(
    connection: Connection, conversation_id: int, seq: int, sentence: str, now: float
) -> None:
    """Pin an instruction that the user's row `seq` holds; what is a secret never becomes one."""
    if not contains_secret(sentence):
        _insert(connection, conversation_id, sentence, seq, now)


def withdraw(
    connection: Connection, conversation_id: int, seq: int, sentence: str, now: float
) -> int:
    """Retire the pins that a sentence in row `seq` takes back, those it fits best; return how
    many. One that names none does nothing."""
    likely = [
        (score, pin)
        for pin in _in_force(connection, conversation_id)
        if (pin.source_seq or 0) < seq and (score := takeback.takes_back(sentence, pin.text))
    ]
    best = max((score for score, _pin in likely), default=0.0)
    retired = [pin for score, pin in likely if score == best]
    for pin in retired:
        connection.execute(_RETIRE, (now, BY_ROW, seq, pin.id))
    return len(retired)
