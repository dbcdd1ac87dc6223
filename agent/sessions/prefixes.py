"""Conversations of clients that send their whole history each time, found by what they send.

A history is a chain of hashes, one for each message that is no system message, so the row of a
message has its number in the history as seq. Read next: `agent/server/proxy_chain.py`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import Any

from agent.base.clock import Clock
from agent.base.errors import StoreBusy
from agent.base.ids import new_session_id
from agent.base.messages import Message, wire_message
from agent.base.record import dataclass
from agent.sessions import accept, directory, forks
from agent.sessions import statements as sql
from agent.sessions.accept import Incoming
from agent.sessions.sqlite import Connection, SqliteDatabase

_TRIES = 8


@dataclass(frozen=True)
class History:
    """A client's whole history.

    `messages` are the client's without system messages, `answer` is ours to the last of them;
    `hashes` are of the prefixes, one for each message and the answer, all oldest first. `owner` is
    the digest of the caller's key. With `tip_only` nothing is stored once the conversation went on
    in another way.
    """

    owner: str
    hashes: Sequence[str]
    messages: Sequence[Message]
    system_prompt: str = ""
    model: str = ""
    title: str = ""
    source: str = "proxy"
    origin: Mapping[str, Any] = field(default_factory=dict)
    tip_only: bool = False
    answer: Message | None = None

    @property
    def known(self) -> int:
        """How many messages are stored already, if nothing is new but what followed the last
        answer."""
        if self.answer is not None:
            return len(self.messages)
        places = range(len(self.messages), 0, -1)
        return next((at for at in places if self.messages[at - 1]["role"] == "assistant"), 0)

    def ready(self, count: int) -> list[Incoming]:
        """Return what follows the first `count` messages, ready to be inserted.

        Keys of the client's that begin with `_` are left out: in the store they are ours.
        """
        rows = [wire_message(message) for message in self.messages[count:]]
        if self.answer is not None and count <= len(self.messages):
            rows.append(self.answer)
        return [accept.make_ready(row) for row in rows]


@dataclass(frozen=True)
class Standing:
    """The conversation that a history is the whole of, and whether it had to be made.

    `live_tokens` and `generation` are as of the moment it was found.
    """

    session_id: str
    conversation_id: int
    generation: int
    live_tokens: int
    appended: int
    made: str = ""
    """`new`, `fork`, or empty for one that goes on."""


@dataclass(frozen=True)
class _Found:
    """The longest known prefix: how many messages, and the conversation that begins with it."""

    count: int
    conversation_id: int = 0
    session_id: str = ""
    generation: int = 0
    watermark: int = 0
    live_tokens: int = 0
    system_prompt: str | None = None

    @property
    def is_tip(self) -> bool:
        """Whether nothing stands behind the prefix."""
        return self.count == self.watermark


@dataclass(frozen=True)
class Expected:
    """Where a history will stand once it is stored, and what is new of it, made ready."""

    standing: Standing
    ready: list[Incoming]


def expect_history(database: SqliteDatabase, history: History) -> Expected | None:
    """Return what `accept_history` will come to; None unless the conversation just goes on, no pass
    has replaced anything of it and the tokens of what is new are known.

    Raises: UsageError when a message cannot be stored.
    """
    ready = history.ready(history.known)
    with database.read() as connection:
        found = _find(connection, history)
    goes_on = found.count == history.known and found.is_tip and not found.generation
    if not (found.count and goes_on) or any(incoming.blob for incoming in ready):
        return None
    tokens = found.live_tokens + sum(incoming.tokens for incoming in ready)
    standing = Standing(found.session_id, found.conversation_id, 0, tokens, len(ready))
    return Expected(standing, ready)


def accept_history(
    database: SqliteDatabase, clock: Clock, history: History, expected: Expected | None = None
) -> Standing:
    """Store what is new of a history in one durable transaction; return where it stands.

    The conversation with the longest known prefix goes on when nothing stands behind that prefix;
    else it is forked there, so what another branch holds is never touched. `expected` only spares
    work.
    Concurrency: any thread; two that bring the same history find the same conversation.
    """
    count = history.known
    ready = expected.ready if expected else history.ready(count)
    for _ in range(_TRIES):
        with database.write() as connection:
            found = _find(connection, history)
            if history.tip_only and not found.is_tip:
                return _standing(found, appended=0)
            if found.count == count:
                return _go_on(connection, history, found, ready, clock.now())
        count = found.count
        ready = history.ready(count)
    raise StoreBusy(
        f"the conversation changed {_TRIES} times while a request was accepted; send it again"
    )


def _find(connection: Connection, history: History) -> _Found:
    """Return the longest known prefix, without messages that a rewind hides."""
    for count in range(len(history.hashes), 0, -1):
        key = (history.owner, history.hashes[count - 1])
        row = connection.execute(sql.PREFIX, key).fetchone()
        if row is None:
            continue
        found = _Found(count, *row)
        hidden = None
        if found.generation:
            hidden = connection.execute(sql.FIRST_REWOUND, (found.conversation_id,)).fetchone()[0]
        if hidden is not None and hidden <= count:
            return _Found(0) if hidden == 1 else _Found(hidden - 1, *row)
        return found
    return _Found(0)


def _go_on(
    connection: Connection, history: History, found: _Found, ready: list[Incoming], now: float
) -> Standing:
    """Append, in the conversation that was found, a fork of it, or a new one."""
    session_id, made, prompt = found.session_id, "", found.system_prompt or ""
    if not found.count:
        session_id, made = _free_id(connection, now), "new"
        new = directory.NewSession(
            session_id,
            history.source,
            history.model or None,
            title=_free_title(connection, history.title, session_id),
            origin=history.origin,
        )
        directory.create_session(connection, new, now)
    elif not found.is_tip:
        session_id, made = _free_id(connection, now), "fork"
        title = _free_title(connection, history.title, session_id)
        fork = forks.Fork(found.session_id, session_id, found.count, title)
        forks.fork_conversation(connection, fork, now)
    if history.system_prompt != prompt:
        directory.set_system_prompt(connection, session_id, history.system_prompt)
    stored = accept.accept(connection, session_id, ready, now) if ready else []
    conversation_id, generation = found.conversation_id, found.generation
    live_tokens = found.live_tokens + sum(message["_tokens"] for message in stored)
    if made:
        standing = connection.execute(sql.STANDING, (session_id,))
        conversation_id, generation, live_tokens = standing.fetchone()
    first = found.count + (made != "fork")
    rows = [
        (history.hashes[seq - 1], history.owner, conversation_id, seq, now)
        for seq in range(max(first, 1), len(history.hashes) + 1)
    ]
    connection.executemany(sql.SET_PREFIX, rows)
    return Standing(session_id, conversation_id, generation, live_tokens, len(ready), made)


def _free_id(connection: Connection, now: float) -> str:
    """Return a session id that is free, also where hundreds begin in one second."""
    while True:
        session_id = new_session_id(now)
        if connection.execute(sql.CONVERSATION_OF, (session_id,)).fetchone() is None:
            return session_id


def _free_title(connection: Connection, title: str, session_id: str) -> str | None:
    """Return the title, told apart by the end of the id where another session has it."""
    if not title:
        return None
    taken = connection.execute(sql.SESSION_BY_TITLE, (title,)).fetchone()
    return title if taken is None else f"{title} ({session_id[-6:]})"


def _standing(found: _Found, *, appended: int) -> Standing:
    return Standing(
        found.session_id, found.conversation_id, found.generation, found.live_tokens, appended
    )
