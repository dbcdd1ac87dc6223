"""How long a route is left alone after it failed, by what went wrong. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from agent.base.errors import ProviderError
from agent.base.record import dataclass


@dataclass(frozen=True)
class Rest:
    """The first rest and the longest; each failure in a row doubles it. Units: seconds."""

    first_s: float
    longest_s: float


_DAY_S = 86_400.0
_LONG = Rest(1_800.0, _DAY_S)
_SHORT = Rest(30.0, 900.0)
_RESTS = {
    "auth": _LONG,
    "quota": _LONG,
    "refused": Rest(300.0, 3_600.0),
    "model_unavailable": Rest(600.0, 3_600.0),
    "rate": Rest(30.0, 3_600.0),
    "overload": _SHORT,
    "network": _SHORT,
    "timeout": Rest(60.0, 900.0),
    "stalled": Rest(60.0, 900.0),
}
"""By failure class; one that is not here says nothing about the next request."""


def is_route_fault(fault: ProviderError) -> bool:
    """Return whether a fault says that the route, not this one request, will fail again."""
    return fault.failure_class in _RESTS


def rest_seconds(fault: ProviderError, strikes: int) -> float:
    """Return how long a route rests after its `strikes`-th failure in a row; 0 for not at all.

    What the provider asks to wait is obeyed, up to a day.
    """
    rest = _RESTS.get(fault.failure_class)
    if rest is None:
        return 0.0
    if fault.retry_after_s is not None:
        return min(max(fault.retry_after_s, 1.0), _DAY_S)
    return min(rest.first_s * 2.0 ** min(strikes - 1, 30), rest.longest_s)


def all_failed(faults: Sequence[ProviderError], too_small: Sequence[str] = ()) -> ProviderError:
    """Return one error for routes that failed one after the other; a single one stays as it is.

    It is of the kind that passes soonest, and names each route and class; `too_small` are routes
    whose window does not hold the request.
    """
    soonest = min(faults, key=lambda fault: rest_seconds(fault, 1))
    if len(faults) == 1 and not too_small:
        return soonest
    tried = "; ".join(
        [f"{fault.route} ({fault.failure_class})" for fault in faults]
        + [f"{route} (context_cannot_fit)" for route in too_small]
    )
    error = type(soonest)(
        f"no route answered: {tried}; the last said: {faults[-1]}",
        route=soonest.route,
        status=soonest.status,
    )
    error.retry_after_s = soonest.retry_after_s
    return error
