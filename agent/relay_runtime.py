"""Scopes on a NeMo Relay trace: one for each session, below it one for each turn.

Every call into Relay is bounded, and the first that hangs ends the use of that host: a trace must
never hold a turn. Without the library a `NoopRelayRuntime` stands in. Marks of passes:
`agent/relay_compaction.py`. Spec: https://github.com/NVIDIA/NeMo-Relay.
"""

from __future__ import annotations

import atexit
import contextvars
import importlib
import os
import threading
from collections.abc import Callable
from typing import Any, TypeVar

from agent.base.bounded import BoundedCalls, Breaker, GivenUp
from agent.base.faults import FAULTS
from agent.base.held import HeldOpen
from agent.base.paths import hermes_home
from agent.base.record import dataclass

T = TypeVar("T")

SESSION_SCOPE = "hermes.session"
TURN_SCOPE = "hermes.turn"
CALL_SCOPE = "hermes.logical_llm_call"
SCHEMA_KEY = "hermes.relay.schema_version"
SCHEMA_VERSION = "hermes.relay.runtime.v1"
RUNTIME_INSTANCE_KEY = "hermes.relay.runtime_instance"
SCOPE_OP_TIMEOUT = 10.0
"""Seconds for one call into Relay; read at each call."""
EXIT_TIMEOUT = 2.0
"""Seconds for each step of a shutdown."""
PLUGINS_VARIABLE = "HERMES_NEMO_RELAY_PLUGINS_TOML"
"""Environment variable that names Relay's plugin file, where its exporters are set up."""

_MOST_ORPHANS = 32
_calls = BoundedCalls(8, "hermes-relay")
_lock = threading.Lock()
"""Guards the leases and the instrumented turn of every session; held for moments only."""
_turn: contextvars.ContextVar[RelayTurnContext | None] = contextvars.ContextVar(
    "hermes_relay_turn", default=None
)


def current_profile_key() -> str:
    """Return what tells profiles apart: the resolved path of the home folder."""
    return str(hermes_home().resolve())


def _quietly(call: Callable[..., T], *arguments: Any, **named: Any) -> T | None:
    """Return what `call` returns; a fault of Relay is counted, and gives None."""
    try:
        return call(*arguments, **named)
    except GivenUp:
        return None
    except Exception as error:
        FAULTS.note("relay", error)
        return None


# -- hosts ----------------------------------------------------------------------------------------
@dataclass(eq=False)
class RelaySession:
    """One session scope. `turn` is its one instrumented turn, `leases` how many hold it open.

    `context` holds Relay's scope stack: it is entered once, to make the stack, and copied then.
    """

    session_id: str
    handle: Any
    context: contextvars.Context
    closing: bool = False
    leases: int = 0
    turn: RelayTurnContext | None = None


class RelayRuntime:
    """Relay for one profile. `relay` is the library's module; None imports it.

    After the first call that hangs (`stalled`) nothing is called any more.
    Raises: ImportError when the library is not installed.
    """

    def __init__(self, relay: Any = None, *, profile_key: str | None = None) -> None:
        self.relay = importlib.import_module("nemo_relay") if relay is None else relay
        self.profile_key = profile_key or current_profile_key()
        self.runtime_id = os.urandom(16).hex()
        self._breaker = Breaker(_calls, "Relay scope operation")
        self._sessions: dict[str, RelaySession] = {}
        self._plugins: HeldOpen | None = None
        self._opening = threading.Lock()
        atexit.register(self.shutdown)

    @property
    def stalled(self) -> bool:
        """Whether a call hung."""
        return self._breaker.broken

    def metadata(self, **more: str) -> dict[str, str]:
        """Return what every scope and mark of this host carries, and what is given of `more`."""
        own = {SCHEMA_KEY: SCHEMA_VERSION, RUNTIME_INSTANCE_KEY: self.runtime_id}
        return own | {f"hermes.{key}": value for key, value in more.items() if value}

    def start_plugins(self) -> None:
        """Load the plugins that the environment names, once. Raises: what Relay raises."""
        path = os.environ.get(PLUGINS_VARIABLE, "")
        with self._opening:
            if not path or self._plugins is not None:
                return
            self._plugins = HeldOpen(
                lambda: self.relay.plugin.initialize({"version": 1}, path), "hermes-relay-plugins"
            )
            self._plugins.wait_open(SCOPE_OP_TIMEOUT)

    def ensure_session(self, session_id: str, **facts: str) -> RelaySession:
        """Return the open session, opened with `facts` in its metadata. Raises: as `push`."""
        with self._opening:
            session = self.get_session(session_id)
            if session is None:
                session = self._sessions[session_id] = self._open(session_id, **facts)
            return session

    def _open(self, session_id: str, **facts: str) -> RelaySession:
        context = contextvars.Context()
        metadata = self.metadata(session_id=session_id, **facts)

        def push() -> Any:
            self.relay.get_scope_stack()
            agent = self.relay.ScopeType.Agent
            return self.relay.scope.push(SESSION_SCOPE, agent, metadata=metadata)

        handle = self._breaker.run(lambda: context.run(push), limit_s=SCOPE_OP_TIMEOUT)
        return RelaySession(session_id, handle, context)

    def get_session(self, session_id: str) -> RelaySession | None:
        """Return an open session; None when there is none or it is being closed."""
        session = self._sessions.get(session_id)
        return None if session is None or session.closing else session

    def run_in_session(
        self,
        session: RelaySession,
        call: Callable[..., T],
        *arguments: Any,
        timeout: float | None = None,
        **named: Any,
    ) -> T:
        """Call with the caller's context and the session's stack, and return what it returns.

        Units: `timeout` in seconds; None calls in this thread, without a limit.
        Raises: TimeoutError when it passes, after which the host is not used any more.
        """
        context = contextvars.copy_context()

        def on_stack() -> T:
            for variable, value in session.context.items():
                variable.set(value)
            self.relay.get_scope_stack()
            return call(*arguments, **named)

        if timeout is None:
            return context.run(on_stack)
        return self._breaker.run(lambda: context.run(on_stack), limit_s=timeout)

    def push(self, session: RelaySession, name: str, **metadata: str) -> Any:
        """Open a scope on the session's stack and return its handle.

        Raises: TimeoutError when Relay hangs; what Relay raises.
        """
        return self.run_in_session(
            session,
            self.relay.scope.push,
            name,
            self.relay.ScopeType.Function,
            metadata=self.metadata(**metadata),
            timeout=SCOPE_OP_TIMEOUT,
        )

    def pop(self, session: RelaySession, handle: Any, outcome: str, limit_s: float) -> None:
        """Close a scope, and before it those that were left open above. Raises: as `push`."""
        self.run_in_session(session, self._drain, session, handle, outcome, timeout=limit_s)

    def _drain(self, session: RelaySession, handle: Any, outcome: str) -> None:
        scope = self.relay.scope
        for _ in range(_MOST_ORPHANS):
            try:
                scope.pop(handle, output={"outcome": outcome})
                return
            except RuntimeError:
                top = scope.get_handle()
                if top.uuid in (handle.uuid, session.handle.uuid):
                    raise
                scope.pop(top)
        raise RuntimeError(f"over {_MOST_ORPHANS} scopes were left open above {handle.name!r}")

    def close_session(self, session_id: str, limit_s: float | None = None) -> None:
        """Close a session's scope; one that is not open is left alone. Faults are counted."""
        session = self._sessions.pop(session_id, None)
        if session is not None:
            session.closing = True
            _quietly(self.pop, session, session.handle, "closed", limit_s or SCOPE_OP_TIMEOUT)

    def shutdown(self) -> None:
        """Close every session and the plugins, within seconds; later calls do nothing."""
        atexit.unregister(self.shutdown)
        for session_id in list(self._sessions):
            self.close_session(session_id, EXIT_TIMEOUT)
        plugins, self._plugins = self._plugins, None
        if plugins is not None:
            plugins.close(EXIT_TIMEOUT)


@dataclass(eq=False)
class NoopRelayRuntime:
    """Stands in where Relay is not installed or does not start: no session is ever opened."""

    profile_key: str


Host = RelayRuntime | NoopRelayRuntime


class RelayHostRegistry:
    """One host for each profile, made when it is first asked for."""

    def __init__(self) -> None:
        self._hosts: dict[str, Host] = {}
        self._making = threading.Lock()

    def for_profile(self, profile_key: str | None = None, *, create: bool = True) -> Host | None:
        """Return the host of a profile (default: the current one); None when there is none."""
        key = profile_key or current_profile_key()
        if create:
            with self._making:
                if key not in self._hosts:
                    host = _quietly(RelayRuntime, profile_key=key)
                    self._hosts[key] = host or NoopRelayRuntime(key)
        return self._hosts.get(key)


HOST_REGISTRY = RelayHostRegistry()
"""The hosts of this process; looked up at each use."""


# -- conversations and turns ----------------------------------------------------------------------
@dataclass(eq=False)
class ConversationLease:
    """The right to open turns in a session; its scope stays open while one lease is held.

    `session` is None where there is no Relay.
    """

    profile_key: str
    session_id: str
    platform: str
    parent_session_id: str = ""
    host: Host | None = None
    session: RelaySession | None = None
    released: bool = False

    def live_runtime(self) -> RelayRuntime | None:
        """Return the host while the lease is held and its session is the open one."""
        if self.released or self.session is None or not isinstance(self.host, RelayRuntime):
            return None
        return self.host if self.host.get_session(self.session_id) is self.session else None


@dataclass(eq=False)
class RelayTurnContext:
    """One turn. `relay_enabled` is false when its session has an instrumented turn already.

    `handle` is None when the scope could not be opened; marks then go to the session's.
    """

    lease: ConversationLease
    turn_id: str
    task_id: str
    handle: Any = None
    relay_enabled: bool = False
    closed: bool = False
    previous: RelayTurnContext | None = None


def current_turn() -> RelayTurnContext | None:
    """Return the turn that this context runs in, instrumented or not."""
    return _turn.get()


def active_turn(session_id: str | None = None) -> RelayTurnContext | None:
    """Return the current turn if it is instrumented, open, of this profile and of that session."""
    turn = _turn.get()
    if turn is None or not turn.relay_enabled or turn.closed:
        return None
    lease = turn.lease
    wanted = session_id in (None, lease.session_id) and lease.profile_key == current_profile_key()
    return turn if wanted and lease.live_runtime() is not None else None


def relay_instrumentation_enabled() -> bool:
    """Return whether this context may record: no turn, or one that is instrumented and open."""
    turn = _turn.get()
    return turn is None or (turn.relay_enabled and not turn.closed)


class RelaySessionCoordinator:
    """Opens and closes scopes; faults are only counted. `registry` None is `HOST_REGISTRY`."""

    def __init__(self, registry: Any = None) -> None:
        self._registry = registry

    def acquire_conversation(
        self, *, profile_key: str, session_id: str, platform: str, parent_session_id: str = ""
    ) -> ConversationLease:
        """Return a lease on a session, whose scope is open from now on."""
        lease = ConversationLease(profile_key, session_id, platform, parent_session_id)
        lease.host = (self._registry or HOST_REGISTRY).for_profile(profile_key)
        if isinstance(lease.host, RelayRuntime):
            _quietly(self._prepare_session, lease.host, lease)
            lease.session = _quietly(
                lease.host.ensure_session,
                session_id,
                platform=platform,
                parent_session_id=parent_session_id,
            )
        if lease.session is not None:
            with _lock:
                lease.session.leases += 1
        return lease

    def _prepare_session(self, host: RelayRuntime, _lease: ConversationLease) -> None:
        """Make ready what has to hear of the session's scope."""
        host.start_plugins()

    def release_conversation(self, lease: ConversationLease) -> None:
        """Give a lease back; the session's scope is closed with its last one."""
        host, session = lease.live_runtime(), lease.session
        lease.released = True
        if host is None or session is None:
            return
        with _lock:
            session.leases -= 1
            last = session.leases == 0
        if last:
            host.close_session(session.session_id)

    def begin_turn(
        self, lease: ConversationLease, *, turn_id: str, task_id: str
    ) -> RelayTurnContext:
        """Open a turn and make it the current one of this context.

        At most one turn of a session is instrumented; others run beside it unrecorded.
        """
        turn = RelayTurnContext(lease, turn_id, task_id, previous=_turn.get())
        host, session = lease.live_runtime(), lease.session
        if host is not None and session is not None:
            with _lock:
                if session.turn is None:
                    session.turn, turn.relay_enabled = turn, True
            if turn.relay_enabled:
                turn.handle = _quietly(
                    host.push, session, TURN_SCOPE, turn_id=turn_id, task_id=task_id
                )
        _turn.set(turn)
        return turn

    def end_turn(self, turn: RelayTurnContext, *, outcome: str) -> None:
        """Close a turn and make the one around it current again; a closed one is left alone."""
        if turn.closed:
            return
        if turn.handle is not None:
            self.end_call(turn, turn.handle, outcome=outcome)
        turn.closed = True
        if turn.relay_enabled and turn.lease.session is not None:
            turn.lease.session.turn = None
        around = turn.previous
        while around is not None and around.closed:
            around = around.previous
        if _turn.get() is turn:
            _turn.set(around)

    def begin_call(self, turn: RelayTurnContext, *, model: str) -> Any:
        """Open the scope of one model call in a turn and return its handle, or None."""
        host, session = turn.lease.live_runtime(), turn.lease.session
        if host is None or session is None or not turn.relay_enabled or turn.closed:
            return None
        return _quietly(host.push, session, CALL_SCOPE, model=model)

    def end_call(self, turn: RelayTurnContext, handle: Any, *, outcome: str) -> None:
        """Close the scope of a model call; None is no scope."""
        host, session = turn.lease.live_runtime(), turn.lease.session
        if handle is not None and host is not None and session is not None:
            _quietly(host.pop, session, handle, outcome, SCOPE_OP_TIMEOUT)
