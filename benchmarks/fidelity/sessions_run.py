"""Sessions of our own, through the real agent: its loop, its store, its passes, its requests."""

from __future__ import annotations

import random
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from agent.base.messages import Message, text_of
from agent.testing.scripted import ScriptedProvider
from agent.tools.recall import row_text
from benchmarks.fidelity.bounded import (
    notes_of,
    open_agent,
    open_folder,
    standing_of,
    tokens_for,
    window_for,
)
from benchmarks.fidelity.generate import Session, plant
from benchmarks.fidelity.replay import Replay
from benchmarks.fidelity.scoring import Seen, judge, says
from benchmarks.fidelity.summarisers import Nonsense
from hermes_state import SessionDB

CASES = ((100, 4_000), (500, 8_000), (500, 16_000), (2_000, 16_000))
"""(messages of a session, characters that the notes may take)."""

PROBE = "Where were we?"
IDENTIFIERS = 20
"""Identifiers that are looked for in each session."""

_IDENTIFIER = re.compile(r"src/\w+/\w+_\d+\.py|(?<=\[)[0-9a-f]{8}(?=\])")
_NAME = "fidelity"
_Identity = tuple[str, str, str, str]


@dataclass(frozen=True)
class Case:
    """One session to measure. `part` is `tune` or `test`, `mode` one of `summarisers.MODES`."""

    part: str
    mode: str
    messages: int
    chars: int
    seed: int


@dataclass(frozen=True)
class Measured:
    """What came of one session: for each measure its outcomes; sizes and passes for the reader."""

    marks: dict[str, list[bool]]
    notes_chars: int
    passes: int


def measure(case: Case) -> Measured:
    """Run a session to its end and judge what is left of it."""
    session = plant(case.part, seed=case.seed, messages=case.messages)
    with run_session(case, session) as run:
        return run.judge(run.play())


@contextmanager
def run_session(case: Case, session: Session) -> Iterator[SessionRun]:
    """Open an agent on a new store for a session, and close both."""
    with open_folder() as folder:
        run = SessionRun(case, session, SessionDB(db_path=Path(folder) / "state.db"))
        try:
            yield run
        finally:
            run.agent.close()
            run.store.close()


class SessionRun:
    """One session on its way through an agent."""

    def __init__(self, case: Case, session: Session, store: SessionDB) -> None:
        self.case, self.session, self.store = case, session, store
        self.replay = Replay(session.messages, Nonsense(case.seed))
        self.provider = ScriptedProvider(self.replay.answer, window_tokens=window_for(case.chars))
        self.agent = open_agent(
            case.mode,
            notes_tokens=tokens_for(case.chars),
            tools=self.replay.tools(),
            session_db=store,
            session_id=_NAME,
            provider=self.provider,
            on_event=self.replay.hear,
        )

    def play(self) -> Sequence[Message]:
        """Play every turn, compact, ask one more thing, and return that request's messages."""
        for text in self.replay.turns():
            self.agent.run_conversation(text)
        self.agent.compress_fully()
        self.agent.run_conversation(PROBE)
        return self.provider.requests[-1].messages

    def judge(self, request: Sequence[Message]) -> Measured:
        """Judge what the last request carries and what the archive gives."""
        notes = notes_of(
            request,
            self.store.view(_NAME).messages,
            text_of(self.provider.requests[0].messages[0]["content"]),
        )
        stored = self._stored()
        seqs = [stored.get(_identity(message), 0) for message in self.replay.messages]
        seen = Seen(notes[: self.case.chars], standing_of(self.agent), self._lookup, seqs)
        marks: dict[str, list[bool]] = {}
        for planted in self.session.planted:
            for name, mark in judge(planted, seen).items():
                marks.setdefault(name, []).append(mark)
        marks.setdefault("plain", []).extend(self._plain_requests(seen))
        marks["identifiers"] = [
            says(seen.notes, each) or says(self._lookup(each), each) for each in self._identifiers()
        ]
        asked, kept = self.replay.requests, self.replay.kept
        marks["newest"] = [True] * kept + [False] * (asked - kept)
        marks["exact"] = [seq > 0 for seq in seqs]
        return Measured(marks, len(notes), len(self.store.passes(_NAME)))

    def _lookup(self, query: str) -> str:
        return "\n".join(row_text(row) for row in self.agent.recall(query=query))

    def _plain_requests(self, seen: Seen) -> list[bool]:
        """Return for each request without any item whether it made a standing instruction."""
        sources = {pin.source_seq for pin in seen.standing}
        said = {place for planted in self.session.planted for place in planted.places}
        return [
            seq in sources
            for place, seq in enumerate(seen.seqs)
            if self.replay.messages[place]["role"] == "user" and place not in said
        ]

    def _identifiers(self) -> list[str]:
        """Return some identifiers of the older part, drawn by the session's seed."""
        older = self.replay.messages[: len(self.replay.messages) * 4 // 5]
        found = {
            name
            for message in older
            for name in _IDENTIFIER.findall(text_of(message.get("content")))
        }
        rng = random.Random(self.case.seed)  # nosec B311: repeatable test data
        return rng.sample(sorted(found), min(IDENTIFIERS, len(found)))

    def _stored(self) -> dict[_Identity, int]:
        """Return the seq of each accepted row by what it says; of equal rows the oldest."""
        last = self.store.head(_NAME).watermark
        rows = self.store.accepted_rows(_NAME, 1, last)
        return {_identity(row): row["_seq"] for row in reversed(rows)}


def _identity(message: Message) -> _Identity:
    return (
        message["role"],
        text_of(message.get("content")),
        str(message.get("tool_call_id", "")),
        str([call["function"] for call in message.get("tool_calls") or ()]),
    )
