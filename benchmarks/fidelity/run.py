"""The fidelity benchmark: what is left of a session after its passes.

    python -m benchmarks.fidelity [--quick] [--part tune] [--mode none] [--only kit] [--fresh]

README.md beside this file says how to read the tables.
"""

from __future__ import annotations

import argparse
import random
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from typing import TypeVar

from benchmarks.fidelity import guard, kit, phrasings, tables
from benchmarks.fidelity.items import LANGUAGES, PARTS
from benchmarks.fidelity.rates import Rate, rate
from benchmarks.fidelity.scoring import MEASURES
from benchmarks.fidelity.sessions_run import CASES, Case, Measured, measure
from benchmarks.fidelity.summarisers import MODES

SECTIONS = ("phrasings", "sessions", "kit", "guard")
MODEL_CASE = (100, 16_000)

Given = TypeVar("Given")
Got = TypeVar("Got")


@dataclass(frozen=True)
class Effort:
    """Seeds for each of `cases`, for each trial of the kit, and for the guard.

    `every_mode` runs kit and guard with every summariser, else with the last one asked for; with
    the embedded model, which would take hours, never.
    """

    session_seeds: tuple[int, ...]
    kit_seeds: int
    guard_seeds: int
    every_mode: bool = True
    cases: tuple[tuple[int, int], ...] = CASES
    corpora: tuple[str, ...] = tuple(kit.CORPORA)
    budgets: tuple[float, ...] = kit.BUDGETS
    guard_case: tuple[int, int] = guard.CASE


QUICK = Effort((4, 2, 2, 1), kit_seeds=4, guard_seeds=2, every_mode=False)
FULL = Effort((24, 10, 10, 4), kit_seeds=25, guard_seeds=10)


@dataclass(frozen=True)
class Plan:
    """What is measured. Seeds count from `first_seed`; `workers` 1 stays in this process."""

    effort: Effort
    part: str = "test"
    modes: tuple[str, ...] = MODES[:2]
    first_seed: int = 1
    workers: int = 2

    def seeds(self, count: int) -> range:
        """Return so many seeds."""
        return range(self.first_seed, self.first_seed + count)

    def work(self, function: Callable[[Given], Got], given: list[Given]) -> list[Got]:
        """Return the results of `function`, in order."""
        if self.workers == 1:
            return [function(each) for each in given]
        with ProcessPoolExecutor(self.workers) as pool:
            return list(pool.map(function, given))


# -- single phrasings ---------------------------------------------------------------------------
def report_phrasings(plan: Plan, _mode: str) -> str:
    """Return the table of single phrasings, by language; no summary is written."""
    counted = phrasings.count_pins(plan.part, plan.first_seed)
    rows = []
    for kind, text in phrasings.MEASURES.items():
        found = [counted[kind, language] for language in LANGUAGES]
        together = Rate(tuple(session for each in found for session in each.sessions))
        rows.append([text, tables.cell(together), *(tables.count(each) for each in found)])
    title = f"\nEvery phrasing alone, part {plan.part} (percent, and hits by language)"
    return tables.grid(title, ["what becomes a pin", "all", *LANGUAGES], rows)


# -- our own sessions ---------------------------------------------------------------------------
def report_sessions(plan: Plan, mode: str) -> str:
    """Return the table of our own sessions with one summariser.

    The embedded model takes minutes for each summary: it gets one session of few passes.
    """
    cases = list(zip(plan.effort.cases, plan.effort.session_seeds, strict=True))
    if mode == "model":
        cases = [(MODEL_CASE, 1)]
    runs = [
        Case(plan.part, mode, messages, chars, seed)
        for (messages, chars), count in cases
        for seed in plan.seeds(count)
    ]
    results = list(zip(runs, plan.work(measure, runs), strict=True))
    by_case: dict[tuple[int, int], list[Measured]] = {
        case: [got for run, got in results if (run.messages, run.chars) == case]
        for case, _count in cases
    }
    rows = [
        [text, *(_session_cell(name, case, by_case[case]) for case in by_case)]
        for name, text in MEASURES.items()
    ]
    rows.append(["largest notes, characters", *_each(by_case, lambda got: got.notes_chars)])
    rows.append(["most passes", *_each(by_case, lambda got: got.passes)])
    rows.append(["sessions", *(str(len(got)) for got in by_case.values())])
    heads = ["messages / characters", *(f"{m:,} / {c:,}" for m, c in by_case)]
    title = f"\nSessions of our own, part {plan.part}, summariser: {mode} (percent)"
    return tables.grid(title, heads, rows)


def _session_cell(name: str, case: tuple[int, int], measured: Iterable[Measured]) -> str:
    found = rate(each.marks.get(name, []) for each in measured)
    return tables.cell(found, tables.session_goal(name, case))


def _each(
    by_case: dict[tuple[int, int], list[Measured]], size: Callable[[Measured], int]
) -> list[str]:
    return [f"{max(map(size, measured)):,}" for measured in by_case.values()]


# -- the kit ------------------------------------------------------------------------------------
def report_kit(plan: Plan, mode: str) -> str:
    """Return the table of the kit's corpora: ours beside the best of the kit's own compactors."""
    seeds = plan.seeds(plan.effort.kit_seeds)
    rows = []
    for corpus in plan.effort.corpora:
        for budget in reversed(plan.effort.budgets):
            for labels in (True, False):
                trials = [
                    kit.Trial(corpus, labels, budget, seed, name, mode)
                    for name in (kit.OURS, *kit.THEIRS)
                    for seed in seeds
                ]
                found = plan.work(kit.run_trial, trials)
                by_name = {
                    name: [
                        got
                        for trial, got in zip(trials, found, strict=True)
                        if trial.compactor == name
                    ]
                    for name in (kit.OURS, *kit.THEIRS)
                }
                rows.append(_kit_row(corpus, budget, labels, by_name))
    heads = ["corpus, budget, labels", "survived", "kit's best", "ratio", "which"]
    heads += ["resolved", "kit's best", "ratio", "within budget"]
    title = (
        f"\ncompaction-conformance-kit, {kit.ROUNDS} rounds, {len(seeds)} seeds, "
        f"summariser: {mode} (percent)"
    )
    return tables.grid(title, heads, rows)


def _kit_row(
    corpus: str, budget: float, labels: bool, by_name: dict[str, list[kit.Survival]]
) -> list[str]:
    ours = by_name.pop(kit.OURS)
    survived = Rate(tuple(each.survived for each in ours))
    resolved = Rate(tuple(each.resolved for each in ours))
    name, best = _best(by_name, lambda each: each.survived)
    _name, best_resolved = _best(by_name, lambda each: each.resolved)
    return [
        f"{corpus} {budget:.0%} {'labels' if labels else 'cut'}",
        tables.cell(survived, _goal(tables.SURVIVAL_GOALS, corpus, budget)),
        tables.cell(best),
        tables.ratio(survived, best),
        name,
        tables.cell(resolved, _goal(tables.RESOLVED_GOALS, corpus, budget)),
        tables.cell(best_resolved),
        tables.ratio(resolved, best_resolved),
        "yes" if all(each.compliant for each in ours) else "NO",
    ]


def _best(
    by_name: dict[str, list[kit.Survival]], part: Callable[[kit.Survival], tuple[int, int]]
) -> tuple[str, Rate]:
    """Return name and rate of the kit's best compactor among those within the budget."""
    rates = {
        name: (Rate(tuple(map(part, found))), all(each.compliant for each in found))
        for name, found in by_name.items()
    }
    name = kit.best_of(rates)
    return name, rates[name][0] if name else Rate(())


def _goal(goals: Mapping[str, Mapping[float, float]], corpus: str, budget: float) -> str:
    goal = goals.get(corpus, {}).get(budget)
    return "" if goal is None else f">={goal:g}"


# -- the guard ----------------------------------------------------------------------------------
def report_guard(plan: Plan, mode: str) -> str:
    """Return the table of compaction-guard's verdicts."""
    messages, chars = plan.effort.guard_case
    runs = [
        Case(plan.part, mode, messages, chars, seed) for seed in plan.seeds(plan.effort.guard_seeds)
    ]
    found = plan.work(guard.watch, runs)
    rows = [
        [text, tables.cell(rate(each[name] for each in found))]
        for name, text in guard.VERDICTS.items()
    ]
    title = f"\ncompaction-guard, part {plan.part}, summariser: {mode} (percent)"
    return tables.grid(title, ["verdict", f"{messages:,} / {chars:,}"], rows)


REPORTS = {
    "phrasings": report_phrasings,
    "sessions": report_sessions,
    "kit": report_kit,
    "guard": report_guard,
}


def report(plan: Plan, sections: Iterable[str] = SECTIONS) -> Iterator[str]:
    """Yield the tables of a plan, each when it is ready."""
    yield f"seeds from {plan.first_seed}; (95 % interval); goals behind >= and <="
    for section in sections:
        for mode in _modes(plan, section):
            yield REPORTS[section](plan, mode)


def _modes(plan: Plan, section: str) -> tuple[str, ...]:
    """Return the summarisers that a section runs with."""
    if section == "sessions":
        return plan.modes
    if section == "phrasings":
        return ("none",)
    modes = tuple(mode for mode in plan.modes if mode != "model")
    return modes if plan.effort.every_mode else modes[-1:]


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the tables that are asked for."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.fidelity", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="few seeds, under three minutes")
    parser.add_argument("--part", choices=PARTS, default="test", help="whose phrasings")
    parser.add_argument("--mode", choices=MODES, nargs="+", default=MODES[:2])
    parser.add_argument("--only", choices=SECTIONS, nargs="+", default=SECTIONS)
    parser.add_argument("--first-seed", type=int, default=1)
    parser.add_argument("--fresh", action="store_true", help="draw the first seed")
    parser.add_argument("--workers", type=int, default=2, help="processes")
    given = parser.parse_args(arguments)
    first = random.SystemRandom().randrange(1, 1_000_000_000) if given.fresh else given.first_seed
    plan = Plan(
        effort=QUICK if given.quick else FULL,
        part=given.part,
        modes=tuple(given.mode),
        first_seed=first,
        workers=given.workers,
    )
    for table in report(plan, given.only):
        sys.stdout.write(table + "\n")
        sys.stdout.flush()
    return 0


if __name__ == "__main__":
    sys.exit(main())
