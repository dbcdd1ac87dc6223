"""What an agent tells the outside: passes, turns, model calls and tools, without their content.

One payload goes to the Relay trace, to OpenTelemetry and to the log `hermes.compaction` as a line
of JSON. Everything here fails open: a fault is counted, and the turn or pass goes on.
Payloads: `agent/pass_events.py`. Sinks: `agent/relay_compaction.py`, `agent/otel.py`.
"""

from __future__ import annotations

import json
import logging
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from agent.base.errors import HermesError
from agent.base.events import Event, ToolFinished, ToolStarted
from agent.base.faults import FAULTS, Faults, merge_faults, read_faults
from agent.base.paths import hermes_home
from agent.base.record import dataclass
from agent.base.settings import TelemetrySettings
from agent.compaction_events import Payload, event_name
from agent.otel import OtelPipeline, close_pipeline, open_pipeline
from agent.pass_events import PassContext, is_published, payload_of_pass, provider_name
from agent.providers.protocol import ModelReply
from agent.relay_compaction import emit_compaction_mark
from agent.relay_runtime import (
    ConversationLease,
    RelaySessionCoordinator,
    RelayTurnContext,
    current_profile_key,
)
from agent.sessions.records import PassRecord

if TYPE_CHECKING:
    from opentelemetry.trace import Span

T = TypeVar("T")

_AGENT_NAME = "hermes"
_EXTRAS = {
    "relay": ("nemo_relay", "nemo-relay"),
    "otel": ("opentelemetry.exporter.otlp.proto.http", "opentelemetry-exporter-otlp-proto-http"),
}
"""Extra to the module and the distribution that it brings."""
_log = logging.getLogger("hermes.compaction")


def availability() -> list[str]:
    """Return what `hermes doctor` says: one line on the extras, one on each channel that failed."""
    from importlib.metadata import version

    states = []
    missing = []
    for extra, (module, distribution) in _EXTRAS.items():
        if _is_installed(module):
            states.append(f"{extra}: {distribution} {version(distribution)}")
        else:
            states.append(f"{extra}: not installed")
            missing.append(extra)
    if missing:
        states.append(f"to trace, pip install 'hermes-continuum[{','.join(missing)}]'")
    lines = ["; ".join(states)]
    for channel, fault in failures().items():
        at = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(fault.last_at))
        lines.append(f"{channel} failed {fault.count} times, last at {at}: {fault.last_error}")
    return lines


def failures() -> Faults:
    """Return the faults of telemetry by channel, of this home's processes and of this one."""
    return merge_faults(read_faults(_faults_file()), FAULTS.unsaved())


def _is_installed(module: str) -> bool:
    from importlib.util import find_spec

    try:
        return find_spec(module) is not None
    except ImportError:
        return False


def _faults_file() -> Path:
    return hermes_home() / "logs" / "telemetry.json"


@dataclass
class TurnTrace:
    """How a traced turn ended: the runner of the turn says the stop reason."""

    stop_reason: str = ""


@dataclass
class CallTrace:
    """What a traced model call gave: its caller leaves the reply here."""

    reply: ModelReply | None = None


class Telemetry:
    """The telemetry of one agent. Construction opens nothing.

    Concurrency: one turn at a time; `publish_pass` and `observe` from any thread.
    """

    def __init__(self, settings: TelemetrySettings, *, platform: str = "") -> None:
        self._settings = settings
        self._platform = platform
        self._coordinator = RelaySessionCoordinator()
        self._lease: ConversationLease | None = None
        self._turn: RelayTurnContext | None = None
        self._pipeline: OtelPipeline | None = None
        self._wants_otel = settings.otel
        self._opening = threading.Lock()
        self._session_id = ""
        self._span: Span | None = None
        self._tools: dict[str, Span] = {}

    # -- passes -------------------------------------------------------------------------------
    def publish_pass(
        self,
        ledger: PassRecord,
        context: PassContext | None = None,
        *,
        turn_session_id: str | None = None,
    ) -> None:
        """Publish a pass that has ended, once; call it after the lease was released.

        `turn_session_id` is the session in which the agent's turn began. Passes that are open,
        imported or folded into an earlier row are left out.
        """
        if not is_published(ledger):
            return
        payload = _try("payload", payload_of_pass, ledger, context or PassContext())
        if payload is None:
            return
        if self._settings.relay and self._turn is None:
            _try("relay", self._lease_for, ledger.session_id)
        name = event_name(payload)
        _try(
            "relay",
            emit_compaction_mark,
            ledger.session_id,
            name,
            payload,
            turn_session_id=turn_session_id,
        )
        _try("otel", self._trace_pass, ledger, payload)
        _try("log", _log_pass, name, ledger, payload)

    def _trace_pass(self, ledger: PassRecord, payload: Payload) -> None:
        pipeline = self._otel()
        if pipeline is None:
            return
        facts = {f"hermes.compaction.{key}": value for key, value in payload.items()}
        facts["hermes.compaction.cost"] = ledger.cost
        facts["gen_ai.conversation.id"] = ledger.session_id
        span = pipeline.start_span(
            "hermes.compaction", _known(facts), parent=self._span, started_at=ledger.created_at
        )
        failed = payload["outcome"] == "failed"
        error = payload["failure_class"] if failed else ""
        pipeline.end_span(span, {}, error=error, ended_at=ledger.finished_at)
        pipeline.count_attempt(
            {key: payload[key] for key in ("kind", "outcome", "failure_class")},
            reclaimed_tokens=payload["tokens_reclaimed"],
            duration_ms=payload["duration_ms"],
            cost=ledger.cost,
        )

    # -- turns --------------------------------------------------------------------------------
    @contextmanager
    def turn(self, session_id: str, turn_id: str, *, task_id: str = "") -> Iterator[TurnTrace]:
        """Trace one turn of a session; what leaves the block as an error is its outcome."""
        trace = TurnTrace()
        _try("relay", self._begin_relay_turn, session_id, turn_id, task_id)
        self._session_id = session_id
        self._span = _try("otel", self._start_turn_span, turn_id)
        error = ""
        try:
            yield trace
        except BaseException as raised:
            error = _error_class(raised)
            raise
        finally:
            turn, self._turn = self._turn, None
            if turn is not None:
                outcome = error or trace.stop_reason
                _try("relay", self._coordinator.end_turn, turn, outcome=outcome)
            facts = {"hermes.turn.stop_reason": trace.stop_reason or None}
            span, self._span = self._span, None
            _try("otel", self._end_span, span, facts, error)
            FAULTS.save(_faults_file())

    def _begin_relay_turn(self, session_id: str, turn_id: str, task_id: str) -> None:
        if self._settings.relay:
            lease = self._lease_for(session_id)
            self._turn = self._coordinator.begin_turn(lease, turn_id=turn_id, task_id=task_id)

    def _lease_for(self, session_id: str) -> ConversationLease:
        """Return the lease on a session, taken before that on an earlier one is given back."""
        held = self._lease
        if held is not None and held.session_id == session_id:
            return held
        self._lease = self._coordinator.acquire_conversation(
            profile_key=current_profile_key(),
            session_id=session_id,
            platform=self._platform,
            parent_session_id=held.session_id if held is not None else "",
        )
        if held is not None:
            self._coordinator.release_conversation(held)
        return self._lease

    def _start_turn_span(self, turn_id: str) -> Span | None:
        facts = {
            "gen_ai.operation.name": "invoke_agent",
            "gen_ai.agent.name": _AGENT_NAME,
            "hermes.turn.id": turn_id,
            "hermes.platform": self._platform or None,
        }
        return self._start_span(f"invoke_agent {_AGENT_NAME}", facts)

    # -- model calls and tools ----------------------------------------------------------------
    @contextmanager
    def model_call(self, model: str, route: str, *, max_tokens: int) -> Iterator[CallTrace]:
        """Trace one model call of the current turn."""
        trace = CallTrace()
        turn = self._turn
        handle = None
        if turn is not None:
            handle = _try("relay", self._coordinator.begin_call, turn, model=model)
        facts = {
            "gen_ai.operation.name": "chat",
            "gen_ai.provider.name": provider_name(route),
            "gen_ai.request.model": model,
            "gen_ai.request.max_tokens": max_tokens,
        }
        span = _try("otel", self._start_span, f"chat {model}", facts, is_call=True)
        error = ""
        try:
            yield trace
        except BaseException as raised:
            error = _error_class(raised)
            raise
        finally:
            reply = trace.reply
            if turn is not None:
                outcome = error or (reply.finish_reason if reply else None) or "incomplete"
                _try("relay", self._coordinator.end_call, turn, handle, outcome=outcome)
            _try("otel", self._end_span, span, _reply_facts(reply), error)

    def observe(self, event: Event) -> None:
        """Trace tool calls by the events that tell of them; others are ignored."""
        if isinstance(event, ToolStarted):
            _try("otel", self._start_tool, event)
        elif isinstance(event, ToolFinished):
            span = self._tools.pop(event.call_id, None)
            error = "" if event.ok else "tool_error"
            _try("otel", self._end_span, span, {"hermes.tool.bytes": event.bytes}, error)

    def _start_tool(self, event: ToolStarted) -> None:
        facts = {
            "gen_ai.operation.name": "execute_tool",
            "gen_ai.tool.name": event.name,
            "gen_ai.tool.type": "function",
            "gen_ai.tool.call.id": event.call_id,
        }
        span = self._start_span(f"execute_tool {event.name}", facts)
        if span is not None:
            self._tools[event.call_id] = span

    # -- spans --------------------------------------------------------------------------------
    def _otel(self) -> OtelPipeline | None:
        """Return the pipeline, opened at first use; it is tried once."""
        with self._opening:
            if self._wants_otel:
                self._wants_otel = False
                self._pipeline = open_pipeline(self._settings.otel_endpoint)
            return self._pipeline

    def _start_span(
        self, name: str, facts: dict[str, Any], *, is_call: bool = False
    ) -> Span | None:
        pipeline = self._otel()
        if pipeline is None:
            return None
        known = _known({"gen_ai.conversation.id": self._session_id, **facts})
        return pipeline.start_span(name, known, parent=self._span, is_call=is_call)

    def _end_span(self, span: Span | None, facts: dict[str, Any], error: str) -> None:
        if span is not None and self._pipeline is not None:
            self._pipeline.end_span(span, _known(facts), error=error)

    def close(self) -> None:
        """Close the session's scope and send what is left, in seconds; later calls do nothing."""
        lease, self._lease = self._lease, None
        if lease is not None:
            _try("relay", self._coordinator.release_conversation, lease)
        pipeline, self._pipeline = self._pipeline, None
        self._wants_otel = False
        if pipeline is not None:
            _try("otel", close_pipeline, pipeline)
        FAULTS.save(_faults_file())


def _try(channel: str, call: Callable[..., T], *arguments: Any, **named: Any) -> T | None:
    """Return what `call` returns; a fault is counted for the channel, and gives None."""
    try:
        return call(*arguments, **named)
    except Exception as error:
        FAULTS.note(channel, error)
        return None


def _known(facts: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in facts.items() if value is not None}


def _log_pass(name: str, ledger: PassRecord, payload: Payload) -> None:
    if _log.isEnabledFor(logging.INFO):
        _log.info("%s", json.dumps({"event": name, **payload, "cost": ledger.cost}))


def _error_class(error: BaseException) -> str:
    return error.failure_class if isinstance(error, HermesError) else type(error).__name__


def _reply_facts(reply: ModelReply | None) -> dict[str, Any]:
    if reply is None:
        return {}
    usage = reply.usage
    return {
        "gen_ai.response.model": reply.model or None,
        "gen_ai.response.id": reply.request_id or None,
        "gen_ai.response.finish_reasons": [reply.finish_reason] if reply.finish_reason else None,
        "gen_ai.usage.input_tokens": usage.prompt if usage else None,
        "gen_ai.usage.output_tokens": usage.completion if usage else None,
        "gen_ai.usage.cache_read.input_tokens": usage.cached if usage else None,
        "gen_ai.usage.cache_creation.input_tokens": usage.cache_write if usage else None,
        "gen_ai.usage.reasoning.output_tokens": usage.reasoning if usage else None,
    }
