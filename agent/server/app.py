"""The application of `hermes serve`: the route table, and everything around it.

A new route is one line in `ENDPOINTS`. Read next: `routing.py`, `turns.py`.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from agent.base.settings import Settings
from agent.providers.catalog import open_route
from agent.server import care, sessions
from agent.server.chat import ChatRequest, complete_chat
from agent.server.desk import Desk
from agent.server.guard import Door, Guard
from agent.server.openapi import describe
from agent.server.response_items import ResponseRequest
from agent.server.responses import create_response
from agent.server.routing import Asked, Endpoint, Nothing, answer_missing, routes_of
from agent.server.store import ServedStore
from agent.server.turns import json_response

_TURN = (404, 409, 413, 429, 502, 503, 504)
_ONE = "/api/sessions/{id}"


async def tell_openapi(asked: Asked[None, Nothing]) -> Response:
    """Return this description."""
    return json_response(describe(ENDPOINTS, [asked.desk.route.model]))


ENDPOINTS = (
    Endpoint("GET", "/healthz", care.tell_health, is_open=True),
    Endpoint("GET", "/readyz", care.tell_readiness, is_open=True, faults=(503,)),
    Endpoint("GET", "/metrics", care.tell_metrics, media_type="text/plain"),
    Endpoint("GET", "/openapi.json", tell_openapi, is_open=True),
    Endpoint("GET", "/v1/models", care.tell_models),
    Endpoint("GET", "/v1/models/{model:path}", care.tell_model, faults=(404,)),
    Endpoint(
        "POST",
        "/v1/chat/completions",
        complete_chat,
        body=ChatRequest,
        is_stream=True,
        faults=_TURN,
    ),
    Endpoint(
        "POST", "/v1/responses", create_response, body=ResponseRequest, is_stream=True, faults=_TURN
    ),
    Endpoint("GET", "/api/sessions", sessions.list_sessions, query=sessions.Page),
    Endpoint(
        "POST",
        "/api/sessions",
        sessions.create_session,
        body=sessions.NewSession,
        status=201,
        faults=(413,),
    ),
    Endpoint("GET", _ONE, sessions.read_session, faults=(404,)),
    Endpoint(
        "PATCH", _ONE, sessions.change_session, body=sessions.SessionChange, faults=(404, 413)
    ),
    Endpoint(
        "DELETE",
        _ONE,
        sessions.delete_session,
        status=204,
        media_type="",
        faults=(404, 429, 503),
    ),
    Endpoint(
        "GET", f"{_ONE}/messages", sessions.read_messages, query=sessions.Reading, faults=(404,)
    ),
    Endpoint(
        "POST",
        f"{_ONE}/messages",
        sessions.send_message,
        body=sessions.NewMessage,
        is_stream=True,
        faults=_TURN,
    ),
    Endpoint("POST", f"{_ONE}/stop", sessions.stop, faults=(404,)),
    Endpoint(
        "POST", f"{_ONE}/compact", sessions.compact, body=sessions.CompactRequest, faults=_TURN
    ),
    Endpoint("GET", f"{_ONE}/compactions", sessions.list_passes, faults=(404,)),
    Endpoint("GET", f"{_ONE}/compactions/{{pass}}", sessions.read_pass, faults=(404,)),
    Endpoint("POST", f"{_ONE}/compactions/{{pass}}/undo", sessions.undo_pass, faults=(404, 409)),
    Endpoint("GET", f"{_ONE}/pins", sessions.list_pins, faults=(404,)),
    Endpoint(
        "POST",
        f"{_ONE}/pins",
        sessions.add_pin,
        body=sessions.NewPin,
        status=201,
        faults=(404, 413),
    ),
    Endpoint(
        "DELETE", f"{_ONE}/pins", sessions.remove_pin, query=sessions.PinChoice, faults=(404,)
    ),
    Endpoint("GET", f"{_ONE}/search", sessions.search, query=sessions.Question, faults=(404,)),
    Endpoint(
        "GET",
        f"{_ONE}/events",
        sessions.stream_events,
        media_type="",
        is_stream=True,
        is_endless=True,
    ),
)


class ServedApp:
    """The application with its desk, which lives as long as the loop it is served in.

    The store is the caller's. Concurrency: `drain` in the loop of the server.
    Raises: SettingsError when the settings name no model that can be asked.
    """

    def __init__(self, settings: Settings, store: ServedStore, token: str) -> None:
        self._settings = settings
        self._store = store
        self._route = open_route(settings.model, settings.local)
        self._desk: Desk | None = None
        self._app = Starlette(
            lifespan=self._live, exception_handlers={HTTPException: answer_missing}
        )
        self._app.router.redirect_slashes = False
        server = settings.server
        door = Door(
            host=server.host,
            hosts=server.allowed_hosts,
            origins=server.allowed_origins,
            token=token,
            open_paths=frozenset(one.path for one in ENDPOINTS if one.is_open),
        )
        self._guarded: ASGIApp = Guard(self._app, door)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._guarded(scope, receive, send)

    async def drain(self, grace_s: float) -> None:
        """Take no turn any more, and let those that run end within `grace_s`."""
        if self._desk is not None:
            await self._desk.drain(grace_s)

    @asynccontextmanager
    async def _live(self, app: Starlette) -> AsyncIterator[None]:
        desk = self._desk = Desk(self._settings, self._store, self._route)
        app.router.routes.extend(routes_of(ENDPOINTS, desk))
        try:
            yield
        finally:
            await asyncio.shield(desk.close())
