"""Which route a turn asks, and where it goes on when that one fails. Nothing of it is silent."""

from __future__ import annotations

from dataclasses import field

from agent.base.errors import ContextCannotFit, HermesError, ProviderError
from agent.base.events import Notice
from agent.base.record import dataclass
from agent.providers.failures import in_words
from agent.providers.rests import all_failed
from agent.turn.host import Turn, TurnHost
from agent.turn.routes import Route


@dataclass
class Failures:
    """The routes that failed for one request, and why, in the order they were asked; `began_at` is
    when the newest call began (Unix epoch seconds)."""

    routes: list[Route] = field(default_factory=list)
    faults: list[ProviderError] = field(default_factory=list)
    too_small: list[str] = field(default_factory=list)
    began_at: float = 0.0


def choose_route(host: TurnHost, turn: Turn) -> None:
    """Begin a turn on the first route that does not rest, and learn its window if nobody knows."""
    before = host.routes.current
    route = host.routes.best()
    if route is not before:
        host.use_route(route)
        host.emit(
            Notice(
                level="info",
                text=f"{route.provider.route} is asked again"
                if not route.rested_until()
                else f"every route rests; {route.provider.route} is asked, whose rest ends first",
            )
        )
    if route.ask_listing(turn.cancel):
        host.use_route(route)


def go_on_elsewhere(host: TurnHost, turn: Turn, fault: HermesError, failures: Failures) -> bool:
    """Let the route rest that failed and take the next one; return whether there is one.

    Raises: the error that names every route when the last of several failed.
    """
    failed = host.routes.current
    failures.routes.append(failed)
    until = 0.0
    if isinstance(fault, ProviderError):
        failures.faults.append(fault)
        if host.routes.has_others:
            until = failed.failed(fault, failures.began_at)
    elif isinstance(fault, ContextCannotFit):
        failures.too_small.append(failed.provider.route)
    else:
        return False
    route = host.routes.next_after(failures.routes, turn.used_tokens)
    if route is None or not _helps(route, failed, fault):
        if len(failures.routes) == 1 or not failures.faults:
            return False
        raise all_failed(failures.faults, failures.too_small) from fault
    host.use_route(route)
    rest = f", {in_words(until - host.clock.now())} at the earliest" if until else ""
    host.emit(
        Notice(
            level="warning",
            text=f"{fault}; {route.provider.route} goes on instead until "
            f"{failed.provider.route} can be asked again{rest}",
        )
    )
    return True


def _helps(route: Route, failed: Route, fault: HermesError) -> bool:
    """Return whether another route can do better: what was too large needs a larger window."""
    if not isinstance(fault, ContextCannotFit):
        return True
    return route.window_tokens > failed.window_tokens
