"""`POST /v1/responses`: what clients of OpenAI's Responses API send and expect.

What it takes is read by `response_items.py`; how its events look stands in `response_events.py`.
"""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import Callable, Sequence

from starlette.responses import Response

from agent.base.ids import new_session_id
from agent.server.agents import Served, Wishes, new_messages
from agent.server.desk import Conversation, Desk
from agent.server.faults import Fault, refused
from agent.server.response_events import Head, stream_response, whole_response
from agent.server.response_items import ResponseRequest, read_input, read_tools
from agent.server.routing import Asked, Nothing
from agent.server.turns import (
    SESSION_HEADER,
    choose,
    reply,
    require_model,
    require_tools,
    start_turn,
)
from agent.server.wire import offered_tools, unsupported
from agent.sessions.records import SessionRecord


async def create_response(asked: Asked[ResponseRequest, Nothing]) -> Response:
    """Run the turn that a request asks for, and keep where it ended under a new id."""
    body, desk, request = asked.body, asked.desk, asked.request
    _refuse_unserved(body)
    require_model(desk, body.model)
    messages, said = read_input(body.input)
    wishes = _wishes(body, said)
    require_tools(desk, wishes)
    name = _conversation_name(body)
    if body.previous_response_id:
        with desk.jobs.place():
            conversation = await _follow(desk, body.previous_response_id)
    elif name:
        conversation = await desk.named(name)
    else:
        conversation = await choose(request, desk, messages)
    if body.previous_response_id or name or SESSION_HEADER in request.headers:
        messages = list(new_messages(messages))
    head = Head(
        id=f"resp_{uuid.uuid4().hex}",
        created_at=int(time.time()),
        session_id=conversation.session_id,
        request=body,
    )
    job = start_turn(desk, conversation, messages, wishes, note=_note_under(desk, head))
    if body.stream:
        return await reply(
            request, conversation, job, frames=lambda job: stream_response(head, job)
        )
    return await reply(
        request, conversation, job, whole=lambda served: whole_response(head, served)
    )


def _refuse_unserved(body: ResponseRequest) -> None:
    form = (body.text or {}).get("format")
    if isinstance(form, dict) and form.get("type") != "text":
        raise unsupported("text.format", "only 'text' is served")
    if body.background:
        raise unsupported("background", "responses in the background are not served")
    if body.previous_response_id and body.conversation:
        raise refused("previous_response_id and conversation exclude each other; give one")


def _wishes(body: ResponseRequest, said: Sequence[str]) -> Wishes:
    spoken = [text for text in (body.instructions, *said) if text]
    return Wishes(
        tools=offered_tools(read_tools(body.tools), body.tool_choice),
        instructions="\n\n".join(spoken) if spoken else None,
        max_tokens=body.max_output_tokens or 0,
        temperature=body.temperature,
    )


def _conversation_name(body: ResponseRequest) -> str:
    given = body.conversation
    name = given.get("id") if isinstance(given, dict) else given
    if given is not None and (not isinstance(name, str) or not name):
        raise refused("conversation: give the id of a session, or an object with it as 'id'")
    return name or ""


async def _follow(desk: Desk, response_id: str) -> Conversation:
    """Return the conversation that goes on from a response: a fork when more was said since.

    Raises: Fault 404 when the response is not known.
    """
    place = await asyncio.to_thread(desk.store.find_response, response_id)
    if place is None:
        raise Fault(
            404, f"there is no response {response_id[:100]!r}", code="previous_response_not_found"
        )
    if place.is_last:
        return desk.find(place.session)

    def fork() -> SessionRecord:
        return desk.store.fork_session(place.session.id, new_session_id(), up_to_seq=place.seq)

    return desk.find(await asyncio.to_thread(fork))


def _note_under(desk: Desk, head: Head) -> Callable[[Served], None]:
    def note(served: Served) -> None:
        desk.store.note_response(head.id, served.result.session_id, served.last_seq)

    return note
