"""The public compaction-conformance-kit: its corpora and its scoring, our engine as its compactor.

Needs the package `compaction-conformance-kit`. Labels on and labels cut are two measurements of
the same sessions.
"""

from __future__ import annotations

import dataclasses
import re
import shutil
from bisect import bisect_left
from collections.abc import Callable, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import compaction_kit  # type: ignore[import-untyped]  # the kit ships no types

from agent.base.headings import under_headings
from agent.base.messages import Message, text_of
from agent.compaction.mechanical import TITLE
from agent.compaction.pins import choose_pins
from agent.testing.scripted import ScriptedProvider
from benchmarks.fidelity.bounded import (
    CHARS_A_TOKEN,
    MADE_BY_PASS,
    BoundedAgent,
    open_agent,
    open_folder,
    standing_of,
)
from benchmarks.fidelity.rates import Rate
from benchmarks.fidelity.sessions_run import PROBE
from benchmarks.fidelity.summarisers import Nonsense
from hermes_state import SessionDB

BUDGETS = (0.10, 0.15, 0.20, 0.30)
ROUNDS = 5
CORPORA: dict[str, tuple[Callable[[int], tuple[Any, ...]], ...]] = {
    "random": (compaction_kit.build_random_session,),
    "generated": (compaction_kit.build_generated_session,),
    "semantic": (
        compaction_kit.build_semantic_session,
        compaction_kit.build_semantic_heldout_session,
    ),
}
"""The builders of each corpus: a seed to (session, canaries, perhaps more)."""

OURS = "ours"
THEIRS = {
    compactor.name: compactor
    for compactor in (
        compaction_kit.ChecklistCompactor,
        compaction_kit.LossyTruncationCompactor,
        compaction_kit.NaiveSummaryCompactor,
        compaction_kit.PinnedRulesCompactor,
        compaction_kit.ProgressiveSummaryCompactor,
        compaction_kit.SemanticChecklistCompactor,
        compaction_kit.SummaryTailCompactor,
        compaction_kit.UpdateAwareChecklistCompactor,
    )
}
FILLINGS = tuple(3.0 * 0.97**step for step in range(64))
"""Tokens for the notes over those that the characters would hold, largest first."""

_LABEL = re.compile(r"^(?:SAFETY RULE|HARD CONSTRAINT|FACT|GOAL STATE|USER PREFERENCE): ")
_FRAME_LINE = re.compile(
    rf"#|To (?:read any|find something)|- \[\d+\] (?:\w+: )?(?:{re.escape(PROBE)}|Here\.)$"
)
_SESSION = "kit"


@dataclass(frozen=True)
class Trial:
    """One session of a corpus at one budget; `compactor` is `OURS` or a name of `THEIRS`.

    `mode` says who writes our summaries.
    """

    corpus: str
    labels: bool
    budget: float
    seed: int
    compactor: str
    mode: str = "none"


@dataclass(frozen=True)
class Survival:
    """Canaries that survived the last round, superseded values resolved, and whether every round
    kept within the budget. Pairs are (hits, trials)."""

    survived: tuple[int, int]
    resolved: tuple[int, int]
    compliant: bool


class HermesCompactor:
    """Our engine under the kit's interface.

    The first round accepts the transcript into a store and compacts it; a later round, which gets
    our own text back, goes on with the same session. The text is that of the view's rows and of
    the pins, without the request's fixed framing and without the harness's own exchange, which is
    there so that the newest request and the last answer are none of the kit's.
    """

    name = OURS

    def __init__(self, mode: str = "none") -> None:
        self._mode = mode
        self._folder = open_folder()
        self._agent: BoundedAgent | None = None

    def __enter__(self) -> Self:
        """Keep a store until the end of the block."""
        return self

    def __exit__(self, *_raised: object) -> None:
        """Close the store and remove it."""
        if self._agent is not None:
            self._agent.store.close()
        self._folder.cleanup()

    def compact(
        self, turns: Sequence[Any], round_num: int = 1, budget_chars: int | None = None
    ) -> Any:
        """Return the view after one more pass, within `budget_chars` characters if they are given.

        The filling whose text fits best is found by trying; what still does not fit is cut behind
        its last whole line.
        """
        limit = budget_chars or sum(len(turn.text) for turn in turns)
        if round_num > 1 and self._agent is not None:
            text = _pass(self._agent)
        else:
            text = self._first(turns, limit)
        if len(text) > limit:
            text = text[:limit].rpartition("\n")[0]
        return compaction_kit.CompactedContext(
            text=text, compactor_name=self.name, round_num=round_num
        )

    def _first(self, turns: Sequence[Any], limit: int) -> str:
        """Accept the turns once, and return the longest text that a filling gives within `limit`.

        Where a filling is too small for any pass to change the view, a larger one is needed.
        """
        rows: list[Message] = [
            {"role": turn.role, "content": turn.text} for turn in turns if turn.role != "system"
        ]
        accepted = self._path("accepted")
        with closing(SessionDB(db_path=accepted)) as store:
            store.create_session(_SESSION, "benchmark")
            store.append(_SESSION, rows)
            standing_of(_open(store, self._mode, 1))
        whole = sum(len(row["content"]) for row in rows)

        def fits(number: int) -> bool:
            size = len(self._fill(number, limit))
            return size <= limit or size >= whole

        number = bisect_left(range(len(FILLINGS) - 1), True, key=fits)
        return self._fill(number, limit)

    def _fill(self, number: int, limit: int) -> str:
        """Go on with a copy of the accepted session at one filling; return its text."""
        if self._agent is not None:
            self._agent.store.close()
        path = self._path(f"filling{number}")
        shutil.copyfile(self._path("accepted"), path)
        tokens = int(limit * FILLINGS[number] / CHARS_A_TOKEN)
        self._agent = _open(SessionDB(db_path=path), self._mode, tokens)
        return _pass(self._agent)

    def _path(self, name: str) -> Path:
        return Path(self._folder.name) / f"{name}.db"


def _open(store: SessionDB, mode: str, notes_tokens: int) -> BoundedAgent:
    nonsense = Nonsense(notes_tokens)
    return open_agent(
        mode,
        notes_tokens=notes_tokens,
        without_tail=True,
        session_db=store,
        session_id=_SESSION,
        provider=ScriptedProvider(lambda request: nonsense.write(request.max_tokens)),
    )


def _pass(agent: BoundedAgent) -> str:
    """Let the session go on by one exchange, compact it, and return what is in view."""
    exchange: list[Message] = [
        {"role": "user", "content": PROBE},
        {"role": "assistant", "content": "Here."},
    ]
    first = agent.store.append(_SESSION, exchange)[0]["_seq"]
    agent.compress_fully()
    rows = [row for row in agent.store.view(_SESSION).messages if row["_seq"] < first]
    pins = [pin.text for pin in choose_pins(agent.pins(), agent.budget().pin_tokens)[0]]
    said = [text_of(row.get("content")) for row in rows if row.get("_kind") not in MADE_BY_PASS]
    notes = [text_of(row.get("content")) for row in rows if row.get("_kind") in MADE_BY_PASS]
    lines = under_headings([("", text) for text in said if text not in {*pins, PROBE}])
    text = "\n".join([*lines, *map(without_frame, notes)])
    return "\n".join([*(pin for pin in pins if pin not in text), text])


def without_frame(text: str) -> str:
    """Return a row's text; of a digest without its title, headings and the lines of how to read on,
    and without what it says of the harness's own exchange."""
    if not text.startswith(TITLE):
        return text
    return "\n".join(
        line for line in text.splitlines() if line and line != TITLE and not _FRAME_LINE.match(line)
    )


def run_trial(trial: Trial) -> Survival:
    """Run a trial's sessions through the kit and return what its scoring says of the last round."""
    survived, resolved, compliant = [], [], True
    for build in CORPORA[trial.corpus]:
        session, canaries = build(trial.seed)[:2]
        if not trial.labels:
            session = without_labels(session)
        with ExitStack() as stack:
            if trial.compactor == OURS:
                compactor = stack.enter_context(HermesCompactor(trial.mode))
            else:
                compactor = THEIRS[trial.compactor]()
            run = compaction_kit.run_conformance(
                session, compactor, rounds=ROUNDS, canaries=canaries, budget_fraction=trial.budget
            )
        last = run.rounds[-1]
        survived += [bool(last.survived[canary.id]) for canary in canaries]
        resolved += [
            is_resolved(canary, last.context.text)
            for canary in canaries
            if canary.superseded_tokens
        ]
        compliant = compliant and all(each.within_budget for each in run.rounds)
    return Survival((sum(survived), len(survived)), (sum(resolved), len(resolved)), compliant)


def is_resolved(canary: Any, text: str) -> bool:
    """Return whether the text holds the canary's latest value and not the one it replaced."""
    text = text.lower()
    return all(token.lower() in text for token in canary.required_tokens) and not any(
        token.lower() in text for token in canary.superseded_tokens
    )


def without_labels(session: Any) -> Any:
    """Return the session with the type's label cut from the begin of each turn."""
    return dataclasses.replace(
        session,
        turns=tuple(
            dataclasses.replace(turn, text=_LABEL.sub("", turn.text)) for turn in session.turns
        ),
    )


def best_of(rates: dict[str, tuple[Rate, bool]]) -> str:
    """Return the name with the highest rate among those within the budget, the first of equals."""
    within = {name: rate.percent for name, (rate, compliant) in rates.items() if compliant}
    return max(within, key=within.__getitem__, default="")
