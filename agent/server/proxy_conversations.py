"""All conversations of a proxy: found in the store by what a client sends, kept open while used.

Read next: `proxy_host.py` (one of them), `agent/sessions/prefixes.py` (how they are found).
"""

from __future__ import annotations

import dataclasses
import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from agent.base.cancel import CancelToken
from agent.base.clock import SYSTEM_CLOCK, Clock
from agent.base.errors import UnknownSession
from agent.base.messages import Message, clean_text, text_of
from agent.base.settings import ModelSettings, Settings
from agent.compaction.budget import PREPARE_SHARE, budget_for
from agent.providers.endpoint import bare_url
from agent.providers.facts import listed_facts
from agent.providers.windows import SMALLEST_WINDOW_TOKENS
from agent.server.caretaker import Caretaker
from agent.server.proxy_bodies import Bodies
from agent.server.proxy_chain import Chains, Sent, after
from agent.server.proxy_host import ProxyHost
from agent.sessions.prefixes import Expected, History, Standing, accept_history, expect_history
from agent.turn.routes import Route
from hermes_state import SessionDB

_OPEN_HOSTS = 256
_NEAR_SHARE = 0.6
"""Part of what a pass is prepared at, above which a conversation is kept open: estimates of a
conversation whose upstream has not counted anything yet may be off by a third."""
_TITLE_CHARS = 40


class Conversations:
    """Finds, keeps and closes conversations. Thread-safe."""

    def __init__(
        self, store: SessionDB, settings: Settings, upstream: str, is_busy: Callable[[], bool]
    ) -> None:
        self.store = store
        self.settings = settings
        self.upstream = upstream
        self._origin = {"platform": "proxy", "upstream": bare_url(upstream)}
        self.bodies = Bodies()
        self.chains = Chains()
        self._lock = threading.Lock()
        self._hosts: OrderedDict[int, ProxyHost] = OrderedDict()
        self.clock: Clock = SYSTEM_CLOCK
        self._routes: dict[str, Route] = {}
        self._asked: set[str] = set()
        self._caretaker = Caretaker(store, is_busy)

    # -- what a client says ------------------------------------------------------------------
    def expect(self, sent: Sent) -> Expected | None:
        """Return where a request will stand, None unless its conversation just goes on."""
        return expect_history(self.store.database, self._history(sent))

    def accept(self, sent: Sent, expected: Expected | None = None) -> Standing:
        """Store what is new of a request and return where it stands; durable when it returns."""
        return accept_history(self.store.database, self.clock, self._history(sent), expected)

    def accept_answer(self, sent: Sent, answer: Message, *, tip_only: bool) -> Standing:
        """Store the answer to a request. With `tip_only` it is left out when the client has gone
        on without it."""
        history = self._history(sent)
        history = dataclasses.replace(
            history,
            hashes=[*history.hashes, after(history.hashes, sent.model, answer)],
            answer=answer,
            tip_only=tip_only,
        )
        standing = accept_history(self.store.database, self.clock, history)
        self._caretaker.wake()
        return standing

    def _history(self, sent: Sent) -> History:
        """Return a request as the store takes it."""
        return History(
            owner=sent.owner,
            hashes=sent.hashes,
            messages=sent.rows,
            system_prompt=sent.beside.prompt,
            model=sent.model,
            title=_title(sent.rows),
            origin=self._origin,
        )

    # -- windows -----------------------------------------------------------------------------
    def window_tokens(self, model: str) -> int:
        """Return the window of a model of the upstream, as far as it is known."""
        return max(self._route(model).window_tokens, SMALLEST_WINDOW_TOKENS)

    def lower_window(self, model: str, tokens: int) -> None:
        """Keep what the upstream named as its limit when it refused a request."""
        if tokens < self.window_tokens(model):
            self._route(model).learn("overflow", window_tokens=tokens)

    def ask_window(self, model: str, key: str) -> None:
        """Ask the upstream's list of models, once, for a window that nobody knows yet."""
        with self._lock:
            if model in self._asked:
                return
            self._asked.add(model)
        route = Route(self, dataclasses.replace(self._settings_of(model), api_key=key))
        if route.ask_listing(CancelToken()):
            self._routes.pop(model, None)

    def learn_listing(self, listing: Any) -> None:
        """Keep the windows that a list of models names, or an entry of one."""
        entries = listing.get("data", [listing]) if isinstance(listing, dict) else ()
        for entry in entries if isinstance(entries, list) else ():
            if not isinstance(entry, dict) or not isinstance(entry.get("id"), str):
                continue
            route, tokens = self._route(entry["id"]), listed_facts(entry).window_tokens
            if tokens and route.known.window_tokens != tokens:
                route.learn("listing", window_tokens=tokens)

    def _route(self, model: str) -> Route:
        """Return what is known of a model, kept in the store as for every other route."""
        route = self._routes.get(model)
        if route is None:
            route = self._routes[model] = Route(self, self._settings_of(model))
        return route

    def _settings_of(self, model: str) -> ModelSettings:
        return dataclasses.replace(
            self.settings.model,
            name=model,
            base_url=self.upstream,
            api_key="",
            api_mode="chat_completions",
            context_length=self.settings.proxy.context_length,
            fallbacks=(),
        )

    def model_settings(self, sent: Sent, key: str) -> ModelSettings:
        """Return the model that passes of a conversation ask: the request's, with its key."""
        window = self.window_tokens(sent.model)
        return dataclasses.replace(
            self._settings_of(sent.model),
            api_key=key,
            context_length=window,
            max_output_tokens=_reserve(sent.body, window),
        )

    # -- open conversations --------------------------------------------------------------------
    def host_if_near(self, sent: Sent, standing: Standing, body_bytes: int) -> ProxyHost | None:
        """Return the conversation's host, None while it is far from any pass.

        Bytes bound tokens from above, so the short conversation costs nothing here.
        """
        window = self.window_tokens(sent.model)
        budget = budget_for(
            window,
            _reserve(sent.body, window),
            0,
            threshold=self.settings.compression.threshold,
        )
        near_tokens = int(budget.trigger_tokens * PREPARE_SHARE * _NEAR_SHARE)
        if not standing.generation:
            if body_bytes < near_tokens:
                return None
            held_tokens = standing.live_tokens + sent.overhead_tokens + sent.beyond_tokens
            if held_tokens < near_tokens:
                return None
        return self.host(standing)

    def host(self, standing: Standing) -> ProxyHost:
        """Return the conversation's host, opened when it is not open yet."""
        with self._lock:
            host = left = self._hosts.pop(standing.conversation_id, None)
            if host is None or self._is_deleted(host, standing):
                host = ProxyHost(self.store, standing.session_id, self.settings)
            self._hosts[standing.conversation_id] = host
            if left is host:
                left = None
            if len(self._hosts) > _OPEN_HOSTS:
                left = self._hosts.popitem(last=False)[1]
        if left is not None:
            left.close()
        return host

    def _is_deleted(self, host: ProxyHost, standing: Standing) -> bool:
        """Return whether a host's conversation was deleted, so that another has its number."""
        if host.session_id == standing.session_id:
            return False
        try:
            kept = self.store.session(host.session_id)
        except UnknownSession:
            return True
        return kept.conversation_id != standing.conversation_id

    def close(self) -> None:
        """Stop what is being prepared; the store stays open."""
        self._caretaker.close()
        with self._lock:
            hosts, self._hosts = list(self._hosts.values()), OrderedDict()
        for host in hosts:
            host.close()


def _title(rows: Sequence[Message]) -> str:
    """Return what people read a conversation by: how its first message begins."""
    begin = " ".join(text_of(rows[0].get("content"))[: 2 * _TITLE_CHARS].split()) if rows else ""
    return clean_text(f"proxy: {begin[:_TITLE_CHARS]}".rstrip(": "))


def _reserve(body: Mapping[str, Any], window_tokens: int) -> int:
    """Return how many tokens of the window a request keeps for its answer."""
    asked = [body.get(name) for name in ("max_completion_tokens", "max_tokens")]
    given = next((value for value in asked if isinstance(value, int) and value > 0), None)
    return min(given or min(4096, window_tokens // 8), window_tokens // 2)
