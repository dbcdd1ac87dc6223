"""Bounds of time are the code's, not the machine's: the best of a few measurements counts."""

from __future__ import annotations

from collections.abc import Callable

_TRIES = 5


def best_of(measure: Callable[[], float], bound: float) -> float:
    """Return the first measurement below a bound, else the least of five."""
    measured: list[float] = []
    while len(measured) < _TRIES and not (measured and measured[-1] < bound):
        measured.append(measure())
    return min(measured)
