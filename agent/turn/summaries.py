"""The summary model with those that stand in for it while it fails, as one client of the engine."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from agent.auxiliary_client import AuxiliaryClient, SummaryFence, SummaryText
from agent.base.errors import ContextOverflow, ProviderError, SummaryDeclined
from agent.base.messages import Message
from agent.base.tokens import estimate_message
from agent.providers.protocol import Provider
from agent.providers.rests import all_failed


class SummaryRoute(Protocol):
    """What is asked of a route; see `agent.turn.routes.Route`."""

    @property
    def provider(self) -> Provider: ...

    @property
    def window_tokens(self) -> int: ...

    def learn(self, learned_from: str, **said: Any) -> None: ...

    def began_at(self) -> float: ...

    def rested_until(self) -> float: ...

    def failed(self, fault: ProviderError, began_at: float) -> float: ...

    def answered(self, began_at: float) -> None: ...


class Summarisers:
    """Routes for summaries, the preferred one first; fulfils `SummaryClient`.

    A route that failed rests, and the same call goes to the next one; a summary made for a larger
    window than that one's comes back as an overflow, from which the engine makes smaller requests.
    Concurrency: as that of its providers; `take_notices` belongs to the thread of the turn.
    """

    def __init__(
        self, routes: Sequence[SummaryRoute], open_client: Callable[[Any], AuxiliaryClient]
    ) -> None:
        self._routes = list(routes)
        self._open_client = open_client
        self._clients: dict[SummaryRoute, AuxiliaryClient] = {}
        self._said: deque[str] = deque()
        self._used: SummaryRoute | None = None

    @property
    def window_tokens(self) -> int:
        """The window of the route that would be asked now."""
        return self._in_order()[0].window_tokens

    @property
    def model(self) -> str:
        """The id of the model that this attempt asked last, else of the one it would ask."""
        return (self._used or self._in_order()[0]).provider.model

    @property
    def route(self) -> str:
        """That model and its endpoint for people, without any key."""
        return (self._used or self._in_order()[0]).provider.route

    def take_notices(self) -> list[str]:
        """Return what people should know of an attempt that ended, oldest first, and forget it."""
        said = list(self._said)
        self._said.clear()
        self._used = None
        return said

    def summarise(
        self,
        prompt_messages: Sequence[Message],
        *,
        max_tokens: int,
        fence: SummaryFence,
        on_delta: Callable[[str], None] | None = None,
    ) -> SummaryText:
        """Return the answer of the first route that gives one; see `AuxiliaryClient.summarise`.

        Raises: as that; when every route failed, the error that passes soonest, which names all.
        """
        faults: list[ProviderError] = []
        order = self._in_order()
        for place, route in enumerate(order):
            if faults:
                _refuse_larger(route, prompt_messages, max_tokens)
            self._used = route
            began_at = route.began_at()
            try:
                text = self._client_of(route).summarise(
                    prompt_messages, max_tokens=max_tokens, fence=fence, on_delta=on_delta
                )
            except ContextOverflow as fault:
                if fault.limit_tokens and fault.limit_tokens < route.window_tokens:
                    route.learn("overflow", window_tokens=fault.limit_tokens)
                raise
            except SummaryDeclined as refusal:
                if place + 1 == len(order):
                    raise
                self._tell(str(refusal), order[place + 1])
            except ProviderError as fault:
                faults.append(fault)
                if len(self._routes) > 1:
                    route.failed(fault, began_at)
                if place + 1 < len(order):
                    self._tell(str(fault), order[place + 1])
            else:
                route.answered(began_at)
                return text
        raise all_failed(faults)

    def _in_order(self) -> list[SummaryRoute]:
        """Return the routes, those that rest last, the one whose rest ends first before others."""
        if len(self._routes) == 1:
            return self._routes
        return sorted(self._routes, key=lambda route: route.rested_until())

    def _client_of(self, route: SummaryRoute) -> AuxiliaryClient:
        if route not in self._clients:
            self._clients[route] = self._open_client(route)
        return self._clients[route]

    def _tell(self, why: str, next_route: SummaryRoute) -> None:
        self._said.append(f"{why}; the summary is written by {next_route.provider.route} instead")


def _refuse_larger(route: SummaryRoute, messages: Sequence[Message], max_tokens: int) -> None:
    """Raise ContextOverflow for a request that a smaller window than the one it was made for
    would not hold."""
    needed = sum(map(estimate_message, messages)) + max_tokens
    if needed > route.window_tokens:
        raise ContextOverflow(
            f"a summary request of about {needed} tokens does not fit the window of "
            f"{route.window_tokens} tokens of {route.provider.route}, which stands in",
            route=route.provider.route,
            request_tokens=needed,
            limit_tokens=route.window_tokens,
        )
