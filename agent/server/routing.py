"""The route table at work: finding a route, checking what a request holds, answering failures.

A route is one `Endpoint`: path, what it takes, what it does. The OpenAPI description is built from
the same table, so that neither can say what the other does not do. Read next: `app.py`.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any, Generic, Protocol, TypeVar

from pydantic import BaseModel
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from agent.base.record import dataclass
from agent.server.desk import Desk
from agent.server.faults import Fault, answer_of
from agent.server.intake import checked, read_body, read_json
from agent.server.stream import EventStream

B = TypeVar("B")
Q = TypeVar("Q")


class Nothing(BaseModel):
    """What a route takes that takes nothing."""


@dataclass(frozen=True)
class Asked(Generic[B, Q]):
    """One request whose parts were checked."""

    desk: Desk
    request: Request
    body: B
    query: Q

    def part(self, name: str) -> str:
        """Return the part of the path that stands for `name`."""
        return str(self.request.path_params[name])


class Handler(Protocol):
    """What a route does."""

    __name__: str

    async def __call__(self, asked: Asked[Any, Any], /) -> Response: ...


@dataclass(frozen=True)
class Endpoint:
    """One route.

    `body` and `query` are what it takes, `status` is what it answers when all went well and
    `faults` the statuses of failures that not every route has. `is_stream` says that the answer
    may be server-sent events, `is_endless` that it ends only when the client leaves, for which a
    description has no word, and `is_open` that no token is asked for.
    """

    method: str
    path: str
    handler: Handler
    body: type[BaseModel] | None = None
    query: type[BaseModel] = Nothing
    media_type: str = "application/json"
    status: int = 200
    faults: Sequence[int] = ()
    is_stream: bool = False
    is_endless: bool = False
    is_open: bool = False

    @property
    def name(self) -> str:
        """The handler's name."""
        return self.handler.__name__

    @property
    def about(self) -> str:
        """What the handler says of itself in its first line."""
        return (self.handler.__doc__ or "").partition("\n")[0]


def routes_of(endpoints: Sequence[Endpoint], desk: Desk) -> list[Route]:
    """Return the routes of a table; methods of one path stand in one route, so 405 names them."""
    paths: dict[str, dict[str, Endpoint]] = {}
    for endpoint in endpoints:
        paths.setdefault(endpoint.path, {})[endpoint.method] = endpoint
    return [
        Route(path, _Place(by_method, desk), methods=list(by_method))
        for path, by_method in paths.items()
    ]


class _Place:
    """What stands at one path."""

    def __init__(self, by_method: Mapping[str, Endpoint], desk: Desk) -> None:
        self._by_method = by_method
        self._desk = desk

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive)
        method = "GET" if request.method == "HEAD" else request.method
        endpoint = self._by_method[method]
        begun, status = time.monotonic(), [0]

        async def noting(message: Any) -> None:
            if message["type"] == "http.response.start":
                status[0] = message["status"]
            await send(message)

        try:
            if request.method == "HEAD" and endpoint.is_stream:
                response = Response(media_type=EventStream.media_type)
            else:
                response = await answer(endpoint, self._desk, request)
            await response(scope, receive, noting)
        finally:
            elapsed_s = time.monotonic() - begun
            self._desk.metrics.observe_request(method, endpoint.path, status[0], elapsed_s)


async def answer(endpoint: Endpoint, desk: Desk, request: Request) -> Response:
    """Return the response to one request; whatever fails becomes one."""
    try:
        body = None
        if endpoint.body is not None:
            raw = await read_body(request, desk.settings.server.max_body_bytes)
            body = checked(endpoint.body, read_json(raw or b"{}"), where="body")
        query = checked(endpoint.query, dict(request.query_params), where="query")
        return await endpoint.handler(Asked(desk, request, body, query))
    except ClientDisconnect:
        return Response(status_code=400)
    except Exception as error:
        return answer_of(error).response()


async def answer_missing(request: Request, error: Exception) -> Response:
    """Answer a path or a method that is not served."""
    assert isinstance(error, HTTPException)
    what = {
        404: f"there is nothing at {request.url.path!r}; see /openapi.json",
        405: f"{request.method} is not served at {request.url.path!r}; see /openapi.json",
    }.get(error.status_code, error.detail)
    code = {404: "not_found", 405: "method_not_allowed"}.get(error.status_code, "refused")
    headers = dict(error.headers or {})
    return Fault(error.status_code, what, code=code, headers=headers).answer.response()
