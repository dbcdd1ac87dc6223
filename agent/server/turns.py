"""What every route that runs a turn shares: which conversation, what is asked, how it is answered.

Read next: `chat.py`, `responses.py`, `sessions.py`.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from typing import Any, TypeVar

import orjson
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from agent.base.cancel import CancelToken
from agent.base.messages import Message
from agent.server.agents import Served, ServedAgent, Wishes, require_request
from agent.server.desk import Conversation, Desk
from agent.server.faults import Fault, answer_of, refused
from agent.server.jobs import Job
from agent.server.stream import KEEP_ALIVE_S, EventStream, end_tasks, frame, wait_until_gone

SESSION_HEADER = "X-Hermes-Session"
T = TypeVar("T")
Frames = Callable[[Job[Served]], AsyncGenerator[bytes, None]]
Whole = Callable[[Served], Any]


def json_response(
    value: Any, status: int = 200, headers: Mapping[str, str] | None = None
) -> Response:
    """Return a JSON response."""
    return Response(orjson.dumps(value), status, headers, "application/json")


def require_model(desk: Desk, name: str) -> None:
    """Raise Fault 404 unless the model of that name is served."""
    if name != desk.route.model:
        raise Fault(
            404,
            f"the model {name!r} is not served; there is: {desk.route.model!r}",
            code="model_not_found",
        )


def require_tools(desk: Desk, wishes: Wishes) -> None:
    """Raise Fault 400 when a request brings tools to a model that takes none."""
    if wishes.tools and not desk.route.supports_tools:
        raise refused(
            f"the model {desk.route.model!r} takes no tools; send none", code="unsupported_tools"
        )


async def choose(request: Request, desk: Desk, messages: Sequence[Message]) -> Conversation:
    """Return the conversation that a request goes on with: the one it names, or a new one.

    Raises: UnknownSession; Fault when there is nothing to answer or no place to run it.
    """
    name = request.headers.get(SESSION_HEADER)
    if name:
        return await desk.named(name)
    require_request(messages)
    with desk.jobs.place():
        return await desk.begin()


def start_turn(
    desk: Desk,
    conversation: Conversation,
    messages: Sequence[Message],
    wishes: Wishes,
    *,
    note: Callable[[Served], None] | None = None,
) -> Job[Served]:
    """Start the turn that answers messages; `note` is told how it ended, in its thread.

    Raises: Fault with 429 or 503.
    """

    def work(agent: ServedAgent, cancel: CancelToken) -> Served:
        served = agent.serve(messages, wishes, cancel)
        if note is not None:
            note(served)
        return served

    return desk.start(conversation, work)


async def reply(
    request: Request,
    conversation: Conversation,
    job: Job[Served],
    *,
    whole: Whole | None = None,
    frames: Frames | None = None,
) -> Response:
    """Return the answer to a request whose turn was started: whole, or as it arrives.

    Either way it names the session, and the turn is stopped when the client goes away.
    """
    # An imported session may have an id that no header can carry.
    named = {SESSION_HEADER: conversation.session_id} if conversation.session_id.isascii() else {}
    try:
        if frames is None:
            served = await unless_gone(request, job, job.result())
            assert whole is not None
            return json_response(whole(served), headers=named)
        await unless_gone(request, job, job.begin(KEEP_ALIVE_S))
    except ClientDisconnect:
        raise
    except Exception as error:
        response = answer_of(error).response()
        response.headers.update(named)
        return response
    return EventStream(_guarded(job, frames(job)), named)


async def unless_gone(request: Request, job: Job[Any], waiting: Awaitable[T]) -> T:
    """Return what is waited for. Raises: ClientDisconnect when the client goes away before; then
    the job is stopped."""
    wanted = asyncio.ensure_future(waiting)
    leaving = asyncio.ensure_future(wait_until_gone(request.receive))
    try:
        await asyncio.wait((wanted, leaving), return_when=asyncio.FIRST_COMPLETED)
        if wanted.done():
            return wanted.result()
        raise ClientDisconnect
    finally:
        if not wanted.done():
            job.cancel.cancel()
        await end_tasks(wanted, leaving)


async def _guarded(
    job: Job[Served], frames: AsyncGenerator[bytes, None]
) -> AsyncGenerator[bytes, None]:
    """Yield frames; a failure becomes the last one, and a client that leaves stops the job."""
    try:
        async for piece in frames:
            yield piece
    except Exception as error:
        yield frame(answer_of(error).body())
    finally:
        job.cancel.cancel()
        await frames.aclose()
