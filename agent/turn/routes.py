"""The routes of one agent: the model's own, those it falls back on, and those of its summaries.

Opened at first use. What providers say of a route, and how long one that failed rests, is kept in
the store. Read next: `fallback.py` (what a turn does when a route fails), `summaries.py`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Protocol

from agent.base.cancel import CancelToken
from agent.base.clock import Clock
from agent.base.errors import CallCancelled, ProviderError, SettingsError
from agent.base.later import later
from agent.base.settings import ModelSettings, RouteSettings, Settings
from agent.base.tokens import Calibration
from agent.providers.catalog import ask_models, open_route
from agent.providers.endpoint import bare_url
from agent.providers.facts import ModelFacts, is_own_machine, known_facts, price_list_window
from agent.providers.protocol import CallWatch, Limits, Provider
from agent.providers.rests import is_route_fault, rest_seconds
from agent.providers.windows import UNKNOWN_WINDOW_TOKENS
from agent.sessions.protocol import SessionStore
from agent.sessions.routes import RouteKey, RouteRecord

if TYPE_CHECKING:
    from agent import auxiliary_client, conversation_compression
    from agent.turn import summaries
else:
    auxiliary_client, conversation_compression = later(
        "agent", "auxiliary_client", "conversation_compression"
    )
    [summaries] = later("agent.turn", "summaries")

_LISTING_LIMITS = Limits(connect_s=3.0, first_byte_s=5.0, idle_s=5.0, total_s=6.0, retries=0)
_KEPT_S = 30 * 86_400.0
_KEPT_OWN_S = 86_400.0
"""How long a learned window holds; a server on this machine may be started with another one."""


class RouteOwner(Protocol):
    """What the routes need of their agent."""

    settings: Settings
    clock: Clock

    @property
    def store(self) -> SessionStore: ...


class Route:
    """One model on one endpoint, and what is known of it.

    `given` is a provider that a program handed over: what is learned of it is not kept, nor of the
    embedded model.
    """

    def __init__(
        self, owner: RouteOwner, settings: ModelSettings, given: Provider | None = None
    ) -> None:
        self.settings = settings
        self.calibration = Calibration()
        self.leaves_cached_out = False
        self._owner = owner
        self._is_given = given is not None
        self._opened = given
        self._record: RouteRecord | None = None
        self._asked: set[str] = set()
        self._has_strikes = False

    @property
    def provider(self) -> Provider:
        """The wire, opened at first use, still without any network."""
        if self._opened is None:
            self._opened = open_route(self.settings, self._owner.settings.local)
        return self._opened

    @property
    def window_tokens(self) -> int:
        """The window: as set or known by name, corrected by what the provider said of it."""
        window, learned = self.provider.window_tokens, self.known.window_tokens
        if not learned:
            return window
        return min(window, learned) if self._is_fixed else learned

    @property
    def reserve_tokens(self) -> int:
        """Tokens kept free for the answer and sent as its limit."""
        window = self.window_tokens
        wanted = self._owner.settings.model.max_output_tokens or min(4096, window // 8)
        return min(wanted, window // 2, self.known.output_tokens or wanted)

    @property
    def takes_images(self) -> bool:
        """Whether images are sent."""
        choice = self._owner.settings.model.image_support
        if choice != "auto":
            return choice == "on"
        learned = self.known.takes_images
        if learned is not None:
            return learned
        return known_facts(self.provider.model).takes_images is not False

    # -- what is learned ----------------------------------------------------------------------
    @property
    def known(self) -> RouteRecord:
        """What the provider said of the route; a window from too long ago counts no more."""
        if self._record is None:
            key = self._key
            record = RouteRecord() if key is None else self._owner.store.routes.read(key)
            kept_s = _KEPT_OWN_S if is_own_machine(self.settings.base_url) else _KEPT_S
            if self._owner.clock.now() - record.learned_at > kept_s:
                record = replace(record, window_tokens=0)
            self._record = record
        return self._record

    def learn(self, learned_from: str, **said: Any) -> None:
        """Keep what the provider said of the route, for every later process too.

        `said` are fields of a `RouteRecord`; `learned_from` names who said a window.
        """
        known, key = self.known, self._key
        if key is not None:
            self._owner.store.routes.learn(key, learned_from=learned_from, **said)
        self._record = replace(known, **said)

    def ask_listing(self, cancel: CancelToken) -> bool:
        """Ask the endpoint's list of models, once, for a window that nobody knows.

        Return whether something was learned. An endpoint that cannot be asked says nothing.
        """
        if not self._may_ask("listing") or self.provider.window_tokens != UNKNOWN_WINDOW_TOKENS:
            return False
        if known_facts(self.settings.name).window_tokens:
            return False
        try:
            listed = ask_models(self.settings, _LISTING_LIMITS, CallWatch(cancel=cancel))
        except CallCancelled:
            self._asked.discard("listing")
            return False
        except ProviderError:
            return False
        facts = listed.get(self.settings.name, ModelFacts())
        said = {
            "window_tokens": facts.window_tokens or None,
            "output_tokens": facts.output_tokens or None,
            "takes_images": facts.takes_images,
        }
        said = {name: value for name, value in said.items() if value is not None}
        if said:
            self.learn("listing", **said)
        return bool(said)

    def ask_price_list(self) -> bool:
        """Take over, once, the window that the price list names; return whether it names one.

        For after a first answer: its price has loaded the list, which takes long.
        """
        if not self._may_ask("price list") or is_own_machine(self.settings.base_url):
            return False
        tokens = price_list_window(self.settings.name, self.settings.base_url)
        if tokens:
            self.learn("price list", window_tokens=tokens)
        return bool(tokens)

    def _may_ask(self, source: str) -> bool:
        """Return whether a hosted model's window is open, and note that a source is asked."""
        if source in self._asked or self._is_fixed or not self.settings.base_url:
            return False
        self._asked.add(source)
        return not self.known.window_tokens

    # -- rests --------------------------------------------------------------------------------
    def began_at(self) -> float:
        """Return the instant by which a call that begins now is told from later failures."""
        return self._owner.clock.now()

    def rested_until(self) -> float:
        """Return when the route may be asked again, 0 when it may be now."""
        record = self._owner.store.routes.read(self._rest_key)
        self._has_strikes = record.strikes > 0
        return record.rested_until if record.rested_until > self._owner.clock.now() else 0.0

    def failed(self, fault: ProviderError, began_at: float) -> float:
        """Let the route rest after a call that began at `began_at`; return until when, 0 for none.

        What passes soon rests shortly, what a person must mend long, and longer each time.
        """
        if not is_route_fault(fault):
            return 0.0
        self._has_strikes = True
        record = self._owner.store.routes.rest(
            self._rest_key,
            fault.failure_class,
            began_at=began_at,
            seconds=lambda strikes: rest_seconds(fault, strikes),
        )
        return record.rested_until

    def answered(self, began_at: float) -> None:
        """Note an answer to a call that began at `began_at`: the next rest is a short one again."""
        if self._has_strikes:
            self._has_strikes = False
            self._owner.store.routes.end_rest(self._rest_key, began_at=began_at)

    def close(self) -> None:
        """Close the provider, if it was opened."""
        if self._opened is not None:
            self._opened.close()

    @property
    def _is_fixed(self) -> bool:
        """Whether the window is what a person or a program set: then it only becomes smaller."""
        is_local = self.settings.api_mode == "local"
        return self._is_given or bool(self.settings.context_length) or is_local

    @property
    def _key(self) -> RouteKey | None:
        settings = self.settings
        if self._is_given or not settings.base_url:
            return None
        return RouteKey(settings.api_mode, bare_url(settings.base_url), self.provider.model)

    @property
    def _rest_key(self) -> RouteKey:
        """The route with a digest of its key: a rest is over with another key."""
        settings = self.settings
        if self._is_given:
            return RouteKey("given", self.provider.route, self.provider.model)
        digest = hashlib.sha256(settings.api_key.encode()).hexdigest()[:8]
        wire = f"{settings.api_mode} {digest}" if settings.api_key else f"{settings.api_mode} -"
        return RouteKey(wire, bare_url(settings.base_url), self.provider.model)


class Routes:
    """The chain that a turn goes along, in the order of the settings, and where it stands."""

    def __init__(self, owner: RouteOwner, given: Provider | None = None) -> None:
        self._owner = owner
        main = owner.settings.model
        self._chain = [Route(owner, main, given)]
        self._chain += [Route(owner, _beside(main, item)) for item in main.fallbacks]
        self._summary_chain: list[Route] | None = None
        self._summarisers: summaries.Summarisers | None = None
        self.current = self._chain[0]

    @property
    def has_others(self) -> bool:
        """Whether there is more than one route."""
        return len(self._chain) > 1

    def best(self) -> Route:
        """Return the first route that does not rest, else the one whose rest ends first.

        Raises: SettingsError for a fallback that cannot be opened, before it is needed.
        """
        if not self.has_others:
            return self.current
        for place, route in enumerate(self._chain[1:]):
            try:
                _opened = route.provider
            except SettingsError as error:
                raise SettingsError(f"model.fallbacks[{place}]: {error}") from error
        until = {route: route.rested_until() for route in self._chain}
        return min(self._chain, key=lambda route: until[route])

    def next_after(self, failed: Collection[Route], needed_tokens: int) -> Route | None:
        """Return the route to try when `failed` have failed, None when none is left.

        Those that do not rest come first, of these the ones whose window holds the request of
        `needed_tokens` as it is, then the order of the settings; the others need a compaction.
        """
        left = [route for route in self._chain if route not in failed]

        def rank(route: Route) -> tuple[float, bool]:
            holds = needed_tokens <= route.window_tokens - route.reserve_tokens
            return route.rested_until(), not holds

        return min(left, key=rank, default=None)

    @property
    def summarises_in_one_slot(self) -> bool:
        """Whether the summary model's calls take turns."""
        return self._summary_routes()[0].provider.one_slot

    def summarisers(self) -> summaries.Summarisers:
        """Return the client of the summary model and of those that stand in for it."""
        if self._summarisers is None:
            self._summarisers = summaries.Summarisers(self._summary_routes(), self._open_client)
        return self._summarisers

    def close(self) -> None:
        """Close what was opened."""
        for route in {*self._chain, *(self._summary_chain or ())}:
            route.close()

    def _summary_routes(self) -> list[Route]:
        """Return the summary model's routes: the main chain unless settings name others."""
        if self._summary_chain is None:
            owner, main = self._owner, self._owner.settings.model
            chosen = owner.settings.auxiliary.compression
            others = [Route(owner, _beside(main, item)) for item in chosen.fallback_chain]
            if chosen.model or chosen.base_url:
                own = RouteSettings(
                    name=chosen.model,
                    base_url=chosen.base_url,
                    api_key=chosen.api_key,
                    context_length=chosen.context_length,
                )
                self._summary_chain = [Route(owner, _beside(main, own)), *others]
            else:
                self._summary_chain = [self._chain[0], *(others or self._chain[1:])]
        return self._summary_chain

    def _open_client(self, route: Route) -> auxiliary_client.AuxiliaryClient:
        settings = self._owner.settings
        idle_s, total_s = conversation_compression.resolve_context_compression_timeouts(
            settings.compression
        )
        limits = Limits(
            connect_s=settings.model.connect_timeout_seconds,
            first_byte_s=settings.auxiliary.compression.first_token_timeout_seconds,
            idle_s=idle_s,
            total_s=total_s,
        )
        return auxiliary_client.AuxiliaryClient(route.provider, limits)


def switched(settings: Settings, name: str) -> Settings:
    """Return settings that name another model of the same endpoint.

    A window that was set is the old model's where the new one's is known; a server on this machine
    may have been started with less than a model can.
    """
    model = settings.model
    known = known_facts(name, model.base_url).window_tokens if name != model.name else 0
    window = model.context_length
    if known:
        window = min(window, known) if is_own_machine(model.base_url) else 0
    return replace(settings, model=replace(model, name=name, context_length=window))


def _beside(main: ModelSettings, item: RouteSettings) -> ModelSettings:
    """Return the settings of a route that takes from the main one what it does not name."""
    is_same_endpoint = not item.base_url or item.base_url == main.base_url
    is_same_model = is_same_endpoint and item.name in ("", main.name)
    return replace(
        main,
        name=item.name or main.name,
        base_url=item.base_url or main.base_url,
        api_key=item.api_key or (main.api_key if is_same_endpoint else ""),
        api_mode=item.api_mode or (main.api_mode if is_same_endpoint else "chat_completions"),
        context_length=item.context_length or (main.context_length if is_same_model else 0),
    )
