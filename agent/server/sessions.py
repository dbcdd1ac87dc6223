"""`/api/sessions`: everything that a conversation has, for pages and programs of ours."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import AsyncGenerator
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field
from starlette.responses import Response

from agent.base.events import Event
from agent.base.messages import Message
from agent.server.agents import Served, Wishes
from agent.server.desk import Conversation, Desk
from agent.server.jobs import Job
from agent.server.routing import Asked, Nothing
from agent.server.stream import KEEP_ALIVE, EventStream, Mailbox, end_tasks, frame
from agent.server.turns import json_response, reply, start_turn, unless_gone
from agent.server.wire import read_content
from agent.sessions.records import PassRecord, SessionRecord
from agent.sessions.shapes import made_shape, pass_shape, place_shape, row_shape, session_shape

_MOST_UNREAD = 10_000
"""Events that a reader may be behind before its stream is ended; it reads on from the store."""
_LARGEST_SEQ = 2**53
Seq = Annotated[int, Field(ge=0, le=_LARGEST_SEQ)]
Title = Annotated[str, Field(min_length=1, max_length=200)]


class Strict(BaseModel):
    """A body or a query in which a field that is not known is a fault."""

    model_config = ConfigDict(extra="forbid")


class NewSession(Strict):
    """A session that begins."""

    title: Title | None = None


class SessionChange(Strict):
    """What of a session is changed; a title of null takes its name away."""

    title: Title | None


class NewMessage(Strict):
    """A message of the user; without one the turn answers what waits for an answer."""

    content: str | list[dict[str, Any]] | None = None


class CompactRequest(Strict):
    """A pass by hand. A preview is prepared and left so; the next request commits it."""

    focus: str | None = None
    preview: bool = False


class NewPin(Strict):
    """A standing instruction."""

    text: str = Field(min_length=1)


class Page(Strict):
    """How much of a list."""

    limit: Annotated[int, Field(ge=1, le=1_000)] = 50


class Reading(Strict):
    """Which rows of a conversation: of the live view or all, after a seq."""

    view: Literal["live", "all"] = "live"
    after: Seq = 0


class Question(Page):
    """What is looked for."""

    q: str = Field(min_length=1)


class PinChoice(Strict):
    """One pin by its number."""

    id: Annotated[int, Field(ge=1, le=_LARGEST_SEQ)]


async def _named(asked: Asked[Any, Any]) -> Conversation:
    return await asked.desk.named(asked.part("id"))


async def _shape(desk: Desk, conversation: Conversation) -> dict[str, Any]:
    record = await asyncio.to_thread(desk.store.find_session, conversation.session_id)
    return _session(desk, record)


def _session(desk: Desk, record: SessionRecord) -> dict[str, Any]:
    return {**session_shape(record), "busy": desk.busy(record.conversation_id)}


# -- sessions -------------------------------------------------------------------------------------


async def list_sessions(asked: Asked[None, Page]) -> Response:
    """Return sessions, most recently active first."""
    desk, limit = asked.desk, asked.query.limit
    records = await asyncio.to_thread(lambda: desk.store.sessions(limit=limit))
    return json_response({"sessions": [_session(desk, record) for record in records]})


async def create_session(asked: Asked[NewSession, Nothing]) -> Response:
    """Begin a session."""
    conversation = await asked.desk.begin(asked.body.title)
    location = {"Location": f"/api/sessions/{conversation.session_id}"}
    return json_response(await _shape(asked.desk, conversation), 201, location)


async def read_session(asked: Asked[None, Nothing]) -> Response:
    """Return one session, by id, beginning of an id, or title."""
    return json_response(await _shape(asked.desk, await _named(asked)))


async def change_session(asked: Asked[SessionChange, Nothing]) -> Response:
    """Name a session, or take its name away."""
    conversation = await _named(asked)
    await asyncio.to_thread(asked.desk.store.set_title, conversation.session_id, asked.body.title)
    return json_response(await _shape(asked.desk, conversation))


async def delete_session(asked: Asked[None, Nothing]) -> Response:
    """Stop what runs and delete the whole conversation."""
    await asked.desk.delete(await _named(asked))
    return Response(status_code=204)


# -- messages -------------------------------------------------------------------------------------


async def read_messages(asked: Asked[None, Reading]) -> Response:
    """Return rows: those that the model sees, or all with what became of them."""
    conversation = await _named(asked)
    store, after = asked.desk.store, asked.query.after
    if asked.query.view == "all":
        places = await asyncio.to_thread(
            lambda: store.history(conversation.session_id, first_seq=after + 1)
        )
        return json_response({"messages": [place_shape(place) for place in places]})
    rows = await asyncio.to_thread(store.rows_after, conversation.session_id, after)
    return json_response({"messages": [made_shape(row) for row in rows]})


async def send_message(asked: Asked[NewMessage, Nothing]) -> Response:
    """Send a message and return what the turn said, or its events as they happen."""
    conversation = await _named(asked)
    content = read_content(asked.body.content)
    messages: list[Message] = [{"role": "user", "content": content}] if content else []
    job = start_turn(asked.desk, conversation, messages, Wishes())
    if "text/event-stream" in asked.request.headers.get("accept", ""):
        return await reply(asked.request, conversation, job, frames=_turn_events)
    return await reply(asked.request, conversation, job, whole=_said)


def _said(served: Served) -> dict[str, Any]:
    result = served.result
    return {
        "session_id": result.session_id,
        "final_text": result.final_text,
        "stop_reason": result.stop_reason,
        "messages": [row_shape(row) for row in served.rows],
        "passes": result.passes,
        "usage": dataclasses.asdict(result.usage),
    }


async def _turn_events(job: Job[Served]) -> AsyncGenerator[bytes, None]:
    async for event in job.events():
        yield frame(event.as_dict())
    await job.result()


async def stop(asked: Asked[None, Nothing]) -> Response:
    """Stop the turn or the pass that runs."""
    return json_response({"stopped": asked.desk.stop(await _named(asked))})


async def stream_events(asked: Asked[None, Nothing]) -> Response:
    """Return the events of a conversation from now on, for as long as the client stays."""
    return EventStream(_live(asked.desk, await _named(asked)))


async def _live(desk: Desk, conversation: Conversation) -> AsyncGenerator[bytes, None]:
    unread: Mailbox[Event] = Mailbox()
    ending = asyncio.ensure_future(desk.jobs.has_ended.wait())
    following = asyncio.ensure_future(unread.take())
    try:
        with conversation.feed.read(unread.put):
            yield KEEP_ALIVE
            while len(unread.peek()) <= _MOST_UNREAD:
                await asyncio.wait((following, ending), return_when=asyncio.FIRST_COMPLETED)
                if not following.done():
                    break
                yield frame(following.result().as_dict())
                following = asyncio.ensure_future(unread.take())
    finally:
        await end_tasks(following, ending)


# -- passes ---------------------------------------------------------------------------------------


async def compact(asked: Asked[CompactRequest, Nothing]) -> Response:
    """Run one pass by hand, or commit the one that a preview left."""
    conversation = await _named(asked)
    focus, preview = asked.body.focus or None, asked.body.preview

    job = asked.desk.start(
        conversation, lambda agent, cancel: agent.compact(focus, cancel, preview=preview)
    )
    record: PassRecord = await unless_gone(asked.request, job, job.result())
    return json_response(pass_shape(record))


async def list_passes(asked: Asked[None, Nothing]) -> Response:
    """Return the ledger, oldest first."""
    conversation = await _named(asked)
    records = await asyncio.to_thread(asked.desk.store.passes, conversation.session_id)
    return json_response({"passes": [pass_shape(record) for record in records]})


async def read_pass(asked: Asked[None, Nothing]) -> Response:
    """Return one pass with the rows that it took out of the view and those it put there."""
    conversation = await _named(asked)
    store, name = asked.desk.store, asked.part("pass")
    changes = await asyncio.to_thread(
        lambda: store.pass_changes(name, session_id=conversation.session_id)
    )
    return json_response(
        {
            "pass": pass_shape(changes.record),
            "left": [made_shape(row) for row in changes.left],
            "masked": [
                {"before": row_shape(before), "after": row_shape(after)}
                for before, after in changes.masked
            ],
            "made": [made_shape(row) for row in changes.made],
        }
    )


async def undo_pass(asked: Asked[None, Nothing]) -> Response:
    """Undo a pass and those that stand on it."""
    conversation, name = await _named(asked), asked.part("pass")

    def undo() -> list[PassRecord]:
        with asked.desk.agent(conversation) as agent:
            return list(agent.undo_compaction(name).ledger)

    ledger = await asyncio.to_thread(undo)
    return json_response({"passes": [pass_shape(record) for record in ledger]})


# -- pins and search ------------------------------------------------------------------------------


async def list_pins(asked: Asked[None, Nothing]) -> Response:
    """Return the standing instructions in force, oldest first."""
    conversation = await _named(asked)

    def read() -> list[dict[str, Any]]:
        with asked.desk.agent(conversation) as agent:
            return [dataclasses.asdict(pin) for pin in agent.pins()]

    return json_response({"pins": await asyncio.to_thread(read)})


async def add_pin(asked: Asked[NewPin, Nothing]) -> Response:
    """Set a standing instruction."""
    conversation, text = await _named(asked), asked.body.text

    def add() -> dict[str, Any]:
        with asked.desk.agent(conversation) as agent:
            return dataclasses.asdict(agent.pin(text))

    return json_response(await asyncio.to_thread(add), 201)


async def remove_pin(asked: Asked[None, PinChoice]) -> Response:
    """Take a standing instruction off."""
    conversation, number = await _named(asked), asked.query.id

    def remove() -> dict[str, Any]:
        with asked.desk.agent(conversation) as agent:
            return dataclasses.asdict(agent.unpin(number))

    return json_response(await asyncio.to_thread(remove))


async def search(asked: Asked[None, Question]) -> Response:
    """Return accepted rows that hold every word, newest first, compacted ones too."""
    conversation, query = await _named(asked), asked.query
    hits = await asyncio.to_thread(
        lambda: asked.desk.store.search(
            query.q, session_id=conversation.session_id, limit=query.limit
        )
    )
    return json_response(
        {
            "hits": [
                {
                    "session_id": hit.session_id,
                    "state": hit.state.value,
                    "snippet": hit.snippet,
                    "message": row_shape(hit.message),
                }
                for hit in hits
            ]
        }
    )
