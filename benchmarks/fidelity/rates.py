"""Rates with their intervals. Pure."""

from __future__ import annotations

import math
import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

_Z = 1.96
_RESAMPLES = 1000


@dataclass(frozen=True)
class Rate:
    """Hits of trials, each (hits, trials) one session."""

    sessions: tuple[tuple[int, int], ...]

    @property
    def hits(self) -> int:
        """Hits in all sessions."""
        return sum(hits for hits, _trials in self.sessions)

    @property
    def trials(self) -> int:
        """Trials in all sessions."""
        return sum(trials for _hits, trials in self.sessions)

    @property
    def percent(self) -> float:
        """The share of hits; 0 without trials."""
        return 100 * self.hits / self.trials if self.trials else 0.0

    def interval(self) -> tuple[float, float]:
        """Return the 95 % interval in percent: the wider of Wilson's, which takes trials as
        independent, and a bootstrap over sessions, which does not. (0, 100) without trials."""
        if not self.trials:
            return (0.0, 100.0)
        low, high = wilson(self.hits, self.trials)
        boot_low, boot_high = bootstrap(self.sessions)
        return (min(low, boot_low), max(high, boot_high))

    def __str__(self) -> str:
        """Percent, interval and trials, such as `97.5 (93.1-99.2) n=120`."""
        if not self.trials:
            return "-"
        low, high = self.interval()
        return f"{self.percent:5.1f} ({low:.1f}-{high:.1f}) n={self.trials}"


def rate(outcomes: Iterable[Iterable[bool]]) -> Rate:
    """Return the rate of outcomes grouped by session."""
    groups = [list(group) for group in outcomes]
    return Rate(tuple((sum(group), len(group)) for group in groups if group))


def wilson(hits: int, trials: int) -> tuple[float, float]:
    """Return Wilson's 95 % interval in percent."""
    share = hits / trials
    spread = _Z * math.sqrt(share * (1 - share) / trials + _Z**2 / (4 * trials**2))
    middle, scale = share + _Z**2 / (2 * trials), 1 + _Z**2 / trials
    low, high = (middle - spread) / scale, (middle + spread) / scale
    return (max(0.0, 100 * low), min(100.0, 100 * high))


def bootstrap(sessions: Sequence[tuple[int, int]]) -> tuple[float, float]:
    """Return the 95 % percentile interval over sessions in percent."""
    rng = random.Random(0)  # nosec B311: the same figures give the same interval
    shares = []
    for _ in range(_RESAMPLES):
        drawn = rng.choices(sessions, k=len(sessions))
        shares.append(100 * sum(hits for hits, _ in drawn) / sum(trials for _, trials in drawn))
    shares.sort()
    return (shares[int(0.025 * _RESAMPLES)], shares[int(0.975 * _RESAMPLES) - 1])
