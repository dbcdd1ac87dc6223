"""One request of a client: stored, made to fit, forwarded, and its answer stored.

Runs in a thread of its own. Read next: `proxy_host.py` (what is forwarded), `proxy_passage.py`.
"""

from __future__ import annotations

import logging

import orjson

from agent.base.cancel import CancelToken
from agent.base.errors import (
    CallCancelled,
    ContextOverflow,
    ProviderError,
    StoreError,
    UnknownPass,
    UnknownSession,
)
from agent.base.messages import Message
from agent.base.record import dataclass
from agent.providers.protocol import TokenUsage
from agent.providers.text import load_json
from agent.server.faults import Answer, answer_of, refused
from agent.server.proxy_bodies import Reading
from agent.server.proxy_chain import Sent, Unreadable, owner_digest, read_request
from agent.server.proxy_conversations import Conversations
from agent.server.proxy_host import Moved, Prepared, ProxyHost, compose
from agent.server.proxy_outlet import Outlet, Sign, Whole
from agent.server.proxy_passage import Answered, Asked, Passage, TooLarge, Upstream, encode_body
from agent.server.proxy_recall import Rounds
from agent.sessions.prefixes import Expected, Standing
from agent.turn.reader import StoredRows

_MOVES = 4
_JSON = (b"content-type", b"application/json")
_log = logging.getLogger(__name__)


@dataclass
class _Kept:
    """What is known once the answer is stored."""

    standing: Standing | None = None
    usage: TokenUsage | None = None


class Exchange:
    """Serves one request; `run` is called once, in a thread.

    `cancel` is set when the client leaves or the server stops: the call to the upstream is closed
    at once, and what has arrived of an answer is kept.
    """

    def __init__(
        self,
        asked: Asked,
        conversations: Conversations,
        upstream: Upstream,
        outlet: Outlet,
        cancel: CancelToken,
    ) -> None:
        self._asked = asked
        self._conversations = conversations
        self._upstream = upstream
        self._outlet = outlet
        self._cancel = cancel
        self._reading: Reading | None = None
        self._expected: Expected | None = None
        self._standing: Standing | None = None
        self._kept = _Kept()
        self._is_waiting = False

    def run(self) -> None:
        """Answer the client."""
        follow = None
        try:
            if self._asked.body is None:
                self._serve_listing()
            else:
                follow = self._serve(self._read(self._asked.body))
        except Unreadable as error:
            self._fail(refused(str(error)).answer)
        except RecursionError:
            self._fail(refused("the body is nested too deep").answer)
        except Exception as error:
            self._fail(answer_of(error))
        finally:
            self._outlet.put(Sign.END)
        if follow is not None:
            try:
                self._follow(*follow)
            except Exception as error:
                _log.warning("after a reply: %s", answer_of(error).message)

    def _fail(self, answer: Answer) -> None:
        headers = [
            (name.lower().encode(), value.encode()) for name, value in answer.headers.items()
        ]
        body = orjson.dumps(answer.body())
        self._outlet.put(Whole(answer.status, [_JSON, *headers], body, answer.body()))

    # -- the steps -----------------------------------------------------------------------------
    def _serve_listing(self) -> None:
        """Pass a list of models on, and take the windows out of it."""
        body = self._passage(None).forward_whole(None)
        try:
            self._conversations.learn_listing(load_json(body))
        except ValueError:
            return

    def _read(self, raw: bytes) -> Sent:
        """Return what the client sent. Raises: Unreadable."""
        conversations, key = self._conversations, self._asked.credentials
        try:
            reading = conversations.bodies.read(raw, owner_digest(key))
        except ValueError as error:
            raise Unreadable(f"the body is no JSON: {error}") from None
        sent = read_request(reading.body, key, conversations.chains, before=reading.before)
        self._outlet.streams = bool(sent.body.get("stream"))
        self._reading = reading
        return sent

    def _serve(self, sent: Sent) -> tuple[Sent, Prepared] | None:
        """Serve a request; return what `_follow` takes when an answer was stored."""
        if not sent.rows or not sent.model:
            self._passage(None).forward_whole(self._asked.body)
            return None
        host, prepared = self._plan(sent)
        try:
            answered = self._forward(sent, host, prepared)
        except (CallCancelled, ProviderError):
            self._accepted(sent)
            raise
        standing = self._accepted(sent)
        if self._expected and self._expected.standing.conversation_id != standing.conversation_id:
            host = None  # another request took the conversation on meanwhile
        tries = self._conversations.settings.compression.max_attempts
        while isinstance(answered, TooLarge):
            if not prepared.estimated:
                prepared = _as_stored(sent, standing)
            smaller = None
            if tries > 0:
                host = host or self._conversations.host(standing)
                try:
                    smaller = self._shrink(sent, host, prepared, answered.error)
                except Moved:
                    host, smaller = self._prepare(sent, host)
            if smaller is None:
                for item in answered.items:
                    self._outlet.put(item)
                return None
            tries -= 1
            prepared = smaller
            answered = self._forward(sent, host, prepared)
        if self._kept.standing is None:
            return None
        if not prepared.estimated:
            prepared = _as_stored(sent, standing)
        self._kept.usage = answered.reader.usage if answered.reader is not None else None
        return sent, prepared

    def _plan(self, sent: Sent) -> tuple[ProxyHost | None, Prepared]:
        """Return what to send, and the conversation's host where a pass is near.

        A request that goes on as it came is stored while the upstream works, any other at once.
        """
        expected = self._conversations.expect(sent)
        if expected is not None:
            host, prepared = self._as_it_came(sent, expected.standing)
            if prepared is not None:
                self._expected = expected
                return host, prepared
        self._standing = self._conversations.accept(sent, expected)
        host, prepared = self._as_it_came(sent, self._standing)
        if host is None or prepared is not None:
            return host, prepared or Prepared(None, 0)
        return self._prepare(sent, host)

    def _as_it_came(
        self, sent: Sent, standing: Standing
    ) -> tuple[ProxyHost | None, Prepared | None]:
        """Return a conversation's host, None while it is far from any pass, and how its request
        goes on that needs nothing done."""
        host = self._conversations.host_if_near(sent, standing, len(self._asked.body or b""))
        if host is None:
            return None, Prepared(None, 0)
        model = self._conversations.model_settings(sent, self._asked.key)
        return host, host.as_it_came(sent, model, standing)

    def _accepted(self, sent: Sent) -> Standing:
        """Return where a request stands; it is stored when that has not been done yet."""
        if self._standing is None:
            self._standing = self._conversations.accept(sent, self._expected)
        return self._standing

    def _wait(self) -> None:
        """Say that the client has to wait."""
        self._is_waiting = True
        self._outlet.put(Sign.WAITING)

    def _prepare(self, sent: Sent, host: ProxyHost) -> tuple[ProxyHost, Prepared]:
        """Return what to send, and the conversation's host: a fork when it moved meanwhile, another
        conversation when it was deleted."""
        for _ in range(_MOVES):
            try:
                with host.held(self._cancel, self._wait):
                    host.take(sent, self._conversations.model_settings(sent, self._asked.key))
                    prepared = host.prepare(sent, self._cancel, self._wait)
            except (Moved, UnknownPass, UnknownSession):
                host = self._conversations.host(self._conversations.accept(sent))
            else:
                if self._is_waiting:
                    self._outlet.put(Sign.READY)
                return host, prepared
        raise StoreError(f"the conversation went on {_MOVES} times meanwhile; send it again")

    def _shrink(
        self, sent: Sent, host: ProxyHost, refused: Prepared, error: ContextOverflow
    ) -> Prepared | None:
        """Return what to send in place of what the upstream refused as too large, None when
        nothing can be left out."""
        conversations = self._conversations
        if error.limit_tokens is not None:
            conversations.lower_window(sent.model, error.limit_tokens)
        self._wait()
        with host.held(self._cancel, self._wait):
            host.take(sent, conversations.model_settings(sent, self._asked.key))
            smaller = host.shrink(sent, self._cancel, refused, error)
        self._outlet.put(Sign.READY)
        return smaller

    def _follow(self, sent: Sent, prepared: Prepared) -> None:
        """After the reply: keep the upstream's count, and have a pass prepared when it is near."""
        if self._reading is not None:
            self._conversations.bodies.keep(self._reading, sent.owner, sent)
        self._conversations.ask_window(sent.model, self._asked.key)
        standing, size = self._kept.standing, len(self._asked.body or b"")
        host = standing and self._conversations.host_if_near(sent, standing, size)
        if host:
            with host.held(CancelToken(), self._wait):
                host.take(sent, self._conversations.model_settings(sent, self._asked.key))
                host.follow(prepared, self._kept.usage)

    def _forward(
        self, sent: Sent, host: ProxyHost | None, prepared: Prepared
    ) -> Answered | TooLarge:
        """Send a request and pass its answer on, unless it was refused as too large."""
        passage, streams = self._passage(sent), bool(sent.body.get("stream"))
        if prepared.messages is None:
            return passage.forward(self._asked.body, streams=streams)
        offers = host is not None and host.offers_recall
        messages = compose(sent, prepared)
        if host is not None and offers:
            rows = StoredRows(self._conversations.store, host.session_id)
            room_tokens = host.budget().usable_tokens - prepared.estimated
            rounds = Rounds(sent.body, messages, rows, room_tokens)
            return passage.forward_rounds(rounds, streams=streams)
        body = encode_body({**sent.body, "messages": messages})
        return passage.forward(body, streams=streams)

    def _passage(self, sent: Sent | None) -> Passage:
        def keep(message: Message, is_complete: bool) -> None:
            """Store an answer. When that fails the client has it all the same, and sends it."""
            if sent is None:
                return
            try:
                self._kept.standing = self._conversations.accept_answer(
                    sent, message, tip_only=not is_complete
                )
            except (StoreError, RecursionError) as error:
                _log.warning("an answer was not stored: %s", error)

        def store() -> None:
            if sent is not None:
                self._accepted(sent)

        return Passage(
            self._asked,
            self._upstream,
            self._outlet,
            self._cancel,
            keep=keep,
            on_sent=store,
            model="" if sent is None else sent.model,
        )


def _as_stored(sent: Sent, standing: Standing) -> Prepared:
    """Return what a request was sent with whose tokens nobody had to know before."""
    estimated = standing.live_tokens + sent.overhead_tokens
    return Prepared(None, estimated, standing.generation)
