"""Standing instructions: set by hand, or found in what a real user wrote.

A pin is never deleted, it is retired: by hand, or by a later row of the user that takes it back.
What may take it back, and does not surely, leaves it in force with those words beside it.
All are undone by a rewind that hides the row, because a pin is read together with its rows.
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
SELECT n.id, n.text, n.source_seq, n.created_at, d.seq, coalesce(e.value, '') FROM pins n
LEFT JOIN places d ON n.retired_at IS NULL AND d.conversation_id = n.conversation_id
    AND d.seq = n.retired_seq AND d.made_by IS NULL AND d.hidden_by IS NULL
LEFT JOIN extracts e ON e.row_id = d.row_id AND e.kind = 'doubt' AND e.subject = n.text
WHERE n.conversation_id = ? AND NOT {_HIDDEN.format("n.source_seq")}
    AND (n.retired_at IS NULL OR {_HIDDEN.format("n.retired_seq")})
ORDER BY coalesce(n.source_seq, 0), n.id"""
_NEW_PIN = "INSERT INTO pins (conversation_id, text, source_seq, created_at) VALUES (?, ?, ?, ?)"
_RETIRE = "UPDATE pins SET retired_at = ?, retired_by = ?, retired_seq = ? WHERE id = ?"
_DOUBT = "UPDATE pins SET retired_seq = ? WHERE id = ?"
"""Names the row that may take a pin back; one without `retired_at` is not retired."""


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


def before(connection: Connection, conversation_id: int, seq: int) -> list[Pin]:
    """Return the pins in force that rows before `seq` or hands set."""
    pins = _in_force(connection, conversation_id)
    return [pin for pin in pins if (pin.source_seq or 0) < seq]


def withdraw(
    connection: Connection, pins: Iterable[Pin], seq: int, sentence: str, now: float
) -> list[Pin]:
    """Retire and return the pins that a sentence in row `seq` takes back, those it fits best; one
    that names none does nothing."""
    likely = [(score, pin) for pin in pins if (score := takeback.takes_back(sentence, pin.text))]
    best = max((score for score, _pin in likely), default=0.0)
    retired = [pin for score, pin in likely if score == best]
    for pin in retired:
        connection.execute(_RETIRE, (now, BY_ROW, seq, pin.id))
    return retired


def doubt(connection: Connection, pins: Iterable[Pin], seq: int, sentence: str) -> Pin | None:
    """Note on the pin that a sentence in row `seq` is most about that it may take it back, and
    return the pin; its words are read from the row's extracts."""
    likely = [(takeback.may_take_back(sentence, pin.text), pin) for pin in _once(pins)]
    score, pin = max(likely, key=lambda each: each[0], default=(0.0, None))
    if pin is None or not score:
        return None
    connection.execute(_DOUBT, (seq, pin.id))
    return pin
