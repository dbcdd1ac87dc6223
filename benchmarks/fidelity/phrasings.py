"""Every phrasing once, alone in a short session: does it become a standing instruction?

No pass runs here. It shows by language what the extractor makes of single texts, which a session
with its few items of each kind cannot.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from agent.base.messages import Message
from agent.testing.builders import assistant, call, result, user
from agent.testing.scripted import ScriptedProvider
from benchmarks.fidelity.bounded import open_agent, open_folder, standing_of
from benchmarks.fidelity.generate import fill
from benchmarks.fidelity.items import LANGUAGES, Item, load_items
from benchmarks.fidelity.rates import Rate, rate
from benchmarks.fidelity.scoring import says, sentences
from benchmarks.fidelity.values import draw
from hermes_state import SessionDB

MEASURES = {
    "rule": "rules pinned, verbatim",
    "withdrawal": "withdrawn rules still pinned",
    "injection": "injected by tools, files or pages: pinned",
    "pasted": "pasted or quoted by the user: pinned",
    "talk": "plain talk and one-off requests: pinned",
}
"""The kinds that are asked for and what a hit is."""


def count_pins(part: str, seed: int) -> dict[tuple[str, str], Rate]:
    """Return by (kind, language) how many phrasings of a part ended as a pin."""
    items = [item for item in load_items(part) if item.kind in MEASURES]
    with _open_store() as store:
        ended = {item.id: _is_pinned(store, item, seed) for item in items}
    return {
        (kind, language): rate(
            [ended[item.id]] for item in items if (item.kind, item.language) == (kind, language)
        )
        for kind in MEASURES
        for language in LANGUAGES
    }


@contextmanager
def _open_store() -> Iterator[SessionDB]:
    with open_folder() as folder:
        store = SessionDB(db_path=Path(folder) / "state.db")
        try:
            yield store
        finally:
            store.close()


def _is_pinned(store: SessionDB, item: Item, seed: int) -> bool:
    """Say the item in a session of its own; return whether its words, or any, are a pin then.

    A rule and its withdrawal are looked for by the rule's words; from the other kinds no pin at
    all may come.
    """
    rng = random.Random(f"{seed}/{item.id}")  # nosec B311: repeatable test data
    values = {name: draw(rng, kind, item.language) for name, kind in item.values.items()}
    agent = open_agent(
        "none",
        notes_tokens=1_000,
        session_db=store,
        session_id=item.id,
        provider=ScriptedProvider(),
    )
    store.create_session(item.id, "benchmark")
    for where, text in item.turns:
        store.append(item.id, _turn(where, fill(text, values)))
    pins = "\n".join(pin.text for pin in standing_of(agent))
    agent.close()
    rule = [each for text in item.stale or item.expected for each in sentences(fill(text, values))]
    return bool(pins) if item.forbidden else all(says(pins, sentence) for sentence in rule)


def _turn(where: str, text: str) -> list[Message]:
    """Return a short turn in which the text stands where it belongs."""
    if where == "user":
        return [user(text), assistant("All right.")]
    if where == "assistant":
        return [user("How far are you?"), assistant(text)]
    asked = call(where, {"of": "it"})
    return [
        user("What does it say?"),
        assistant(None, asked),
        result(asked, f"line one\n{text}\nline three"),
        assistant("Nothing unusual."),
    ]
