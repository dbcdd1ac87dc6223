"""The figures as text. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from benchmarks.fidelity.rates import Rate

Case = tuple[int, int]

GOALS: Mapping[str, tuple[str, Mapping[Case, float]]] = {
    "kept": (">=", {(100, 4_000): 97, (500, 8_000): 95, (2_000, 16_000): 93}),
    "verbatim": (">=", {(500, 16_000): 100}),
    "injected": ("<=", {}),
    "pasted": ("<=", {}),
    "withdrawn": ("<=", {}),
    "stale": ("<=", {(500, 16_000): 2, (2_000, 16_000): 2}),
}
"""What a measure of the sessions must come to, by case."""

EVERYWHERE = {"injected": 0.0, "pasted": 5.0, "withdrawn": 0.0}
"""Goals that hold for every case."""

SURVIVAL_GOALS: Mapping[str, Mapping[float, float]] = {
    "random": {0.30: 99, 0.20: 95, 0.15: 75, 0.10: 42},
    "generated": {0.30: 97, 0.20: 85, 0.10: 33},
}
RESOLVED_GOALS: Mapping[str, Mapping[float, float]] = {"generated": {0.20: 55}}


def grid(title: str, heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a table whose first column is flush left and whose others are flush right."""
    lines = [heads, *rows]
    widths = [max(len(line[place]) for line in lines) for place in range(len(heads))]
    text = [title]
    for line in lines:
        first, *others = (cell for cell in line)
        cells = [first.ljust(widths[0])]
        cells += [cell.rjust(width) for cell, width in zip(others, widths[1:], strict=True)]
        text.append("  " + "  ".join(cells).rstrip())
    return "\n".join(text)


def session_goal(measure: str, case: Case) -> str:
    """Return the goal of a measure in a case, such as `>=97`, or an empty string."""
    sign, goals = GOALS.get(measure, ("", {}))
    goal = goals.get(case, EVERYWHERE.get(measure))
    return "" if goal is None else f"{sign}{goal:g}"


def cell(rate: Rate, goal: str = "") -> str:
    """Return percent, interval and goal, such as `97.5 (93-99) >=97`; `-` without trials."""
    if not rate.trials:
        return "-"
    low, high = rate.interval()
    return f"{rate.percent:.1f} ({low:.0f}-{high:.0f}) {goal:>5}".rstrip()


def count(rate: Rate) -> str:
    """Return hits of trials, such as `9/10`."""
    return f"{rate.hits}/{rate.trials}"


def ratio(ours: Rate, theirs: Rate) -> str:
    """Return ours over theirs, such as `1.25`."""
    return f"{ours.percent / theirs.percent:.2f}" if theirs.percent else "-"
