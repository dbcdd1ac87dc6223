"""What the server keeps between requests: store, route, conversations and their warm agents.

Read next: `jobs.py` (turns on threads), `agents.py` (one turn).
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar
from weakref import WeakValueDictionary

from agent.base.cancel import CancelToken
from agent.base.errors import HermesError, UnknownSession
from agent.base.events import Event
from agent.base.ids import new_session_id
from agent.base.settings import Settings
from agent.providers.catalog import list_models
from agent.providers.local import LocalModel, require_embedded
from agent.providers.protocol import Provider
from agent.server.agents import ServedAgent
from agent.server.caretaker import Caretaker
from agent.server.faults import answer_of
from agent.server.jobs import Feed, Job, Jobs
from agent.server.metrics import Metrics
from agent.server.store import ServedStore
from agent.sessions.records import SessionRecord

PLATFORM = "server"
_KNOWN_FOR_S = 10.0
"""How long an answer about the model is good, so that probes do not become its load."""
T = TypeVar("T")


class Conversation:
    """One conversation that somebody asks for. `order` lets its jobs take turns."""

    def __init__(self, session: SessionRecord) -> None:
        self.id = session.conversation_id
        self.session_id = session.id
        self.feed = Feed()
        self.order = asyncio.Lock()
        self.job: Job[Any] | None = None
        self.agent: ServedAgent | None = None
        self.users = 0
        self.is_deleted = False


class ModelCheck:
    """Looks whether the model can be reached, at most every ten seconds."""

    def __init__(self, settings: Settings, route: Provider) -> None:
        self._settings = settings
        self._route = route
        self._order = asyncio.Lock()
        self._known_until_s = 0.0
        self._fault = ""

    async def fault(self) -> str:
        """Return what is wrong with the model's endpoint, nothing when it answers."""
        async with self._order:
            if time.monotonic() > self._known_until_s:
                self._fault = await asyncio.to_thread(self._look)
                self._known_until_s = time.monotonic() + _KNOWN_FOR_S
            return self._fault

    def _look(self) -> str:
        try:
            if isinstance(self._route, LocalModel):
                require_embedded(self._settings.local)
            else:
                list_models(self._settings.model)
        except HermesError as error:
            return answer_of(error).message
        return ""


class Desk:
    """Finds conversations and runs turns on them.

    Concurrency: `find`, `start`, `stop`, `drain` and `close` in the loop it was made in; `agent`
    in any thread.
    """

    def __init__(self, settings: Settings, store: ServedStore, route: Provider) -> None:
        server = settings.server
        self.settings = settings
        self.store = store
        self.jobs = Jobs(server.max_turns, server.max_waiting)
        self.metrics = Metrics(self.jobs)
        self.route = route
        self.model_check = ModelCheck(settings, route)
        self._caretaker = Caretaker(store, lambda: bool(self.jobs.running))
        self._most_warm = server.warm_sessions
        self._lock = threading.Lock()
        self._known: WeakValueDictionary[int, Conversation] = WeakValueDictionary()
        self._warm: OrderedDict[int, Conversation] = OrderedDict()
        self._left: list[ServedAgent] = []
        """Agents of conversations that were deleted, to be closed."""

    def find(self, session: SessionRecord) -> Conversation:
        """Return the conversation of a stored session."""
        with self._lock:
            found = self._known.get(session.conversation_id)
            if found is not None and self._was_deleted(found, session):
                found.is_deleted = True
                if found.agent is not None and not found.users:
                    self._left.append(found.agent)
                self._forget(found)
                found = None
            if found is None:
                found = self._known[session.conversation_id] = Conversation(session)
            return found

    def _was_deleted(self, found: Conversation, session: SessionRecord) -> bool:
        """Return whether another process deleted a conversation, so that a newer has its number."""
        if found.session_id == session.id:
            return False
        try:
            return self.store.session(found.session_id).conversation_id != found.id
        except UnknownSession:
            return True

    async def named(self, name: str) -> Conversation:
        """Return a conversation by id, beginning of an id, or title. Raises: UnknownSession."""
        return self.find(await asyncio.to_thread(self.store.find_session, name))

    async def begin(self, title: str | None = None) -> Conversation:
        """Return a new conversation. Raises: UsageError when the title is taken."""
        return self.find(await asyncio.to_thread(self._create, title))

    def _create(self, title: str | None) -> SessionRecord:
        session_id = new_session_id()
        self.store.create_session(session_id, PLATFORM, model=self.route.model, title=title)
        return self.store.session(session_id)

    def start(
        self, conversation: Conversation, work: Callable[[ServedAgent, CancelToken], T]
    ) -> Job[T]:
        """Have work done on a conversation when its turn comes. Raises: Fault with 429 or 503."""

        def on_agent(cancel: CancelToken) -> T:
            with self.agent(conversation) as agent:
                conversation.job = job
                try:
                    return work(agent, cancel)
                finally:
                    conversation.job = None

        job = Job(conversation.feed, on_agent)
        self.jobs.start(job, conversation.order)
        return job

    def stop(self, conversation: Conversation) -> str:
        """Stop what runs on a conversation and return what it was: `turn`, `pass` or nothing."""
        agent, job = conversation.agent, conversation.job
        what = agent.busy if agent is not None else ""
        if job is not None:
            job.cancel.cancel()
        if agent is not None:
            agent.interrupt()
        return what or ("turn" if job is not None else "")

    def busy(self, conversation_id: int) -> str:
        """Return what runs on a conversation: `turn`, `pass` or nothing."""
        with self._lock:
            found = self._known.get(conversation_id)
        return found.agent.busy if found is not None and found.agent is not None else ""

    @contextmanager
    def agent(self, conversation: Conversation) -> Iterator[ServedAgent]:
        """Give the agent of a conversation, which stays warm for the length of the block.

        Raises: UnknownSession when the conversation was deleted meanwhile.
        """
        with self._lock:
            if conversation.is_deleted:
                raise UnknownSession(f"session {conversation.session_id!r} was deleted")
            if conversation.agent is None:
                conversation.agent = self._open_agent(conversation)
            conversation.users += 1
            self._warm[conversation.id] = conversation
            self._warm.move_to_end(conversation.id)
            cooled, self._left = [*self._cool(), *self._left], []
        for agent in cooled:
            agent.close()
        try:
            yield conversation.agent
        finally:
            with self._lock:
                conversation.users -= 1

    def _open_agent(self, conversation: Conversation) -> ServedAgent:
        def observe(event: Event) -> None:
            self.metrics.observe(event)
            conversation.feed.publish(event)

        agent = ServedAgent(
            settings=self.settings,
            session_db=self.store,
            session_id=conversation.session_id,
            on_event=observe,
            platform=PLATFORM,
        )
        agent.caretaker = self._caretaker
        return agent

    def _cool(self) -> list[ServedAgent]:
        """Take the agents that are used least out of memory, until there are few enough."""
        cooled: list[ServedAgent] = []
        for conversation in list(self._warm.values()):
            if len(self._warm) <= self._most_warm:
                break
            if not conversation.users and conversation.agent is not None:
                cooled.append(conversation.agent)
                self._forget(conversation)
        return cooled

    def _forget(self, conversation: Conversation) -> None:
        conversation.agent = None
        self._warm.pop(conversation.id, None)

    async def delete(self, conversation: Conversation) -> None:
        """Stop what runs on a conversation and delete it. Raises: Fault as `start`."""
        self.stop(conversation)

        def remove(agent: ServedAgent, _cancel: CancelToken) -> None:
            agent.close()
            self.store.delete_session(conversation.session_id)
            with self._lock:
                conversation.is_deleted = True
                self._forget(conversation)
                self._known.pop(conversation.id, None)

        await self.start(conversation, remove).result()

    async def drain(self, grace_s: float) -> None:
        """Take nothing new, and let what runs end within `grace_s`."""
        await self.jobs.drain(grace_s)

    async def close(self) -> None:
        """Stop everything, close the agents and the route; the store is the caller's."""
        await self.jobs.close()
        with self._lock:
            agents = [warm.agent for warm in self._warm.values() if warm.agent is not None]
            agents += self._left
            self._warm.clear()
        for agent in agents:
            await asyncio.to_thread(agent.close)
        await asyncio.to_thread(self._caretaker.close)
        self.route.close()
