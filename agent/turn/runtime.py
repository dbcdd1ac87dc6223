"""The state of one agent and what a turn and a pass ask of it; its public half: `run_agent.py`."""

from __future__ import annotations

import dataclasses
import threading
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

from agent.base.cancel import CancelToken
from agent.base.events import Event, Notice, ignore_event
from agent.base.ids import new_session_id
from agent.base.later import later
from agent.base.messages import Message, is_user_text
from agent.base.paths import default_database, memory_file
from agent.base.settings import Settings
from agent.base.tokens import Calibration, UsageAnchor, estimate_text, estimate_tools
from agent.compaction.budget import Budget, budget_for
from agent.compaction.context_compressor import ContextCompressor
from agent.compaction.engine import open_engine
from agent.compaction.fence import CompressionCommitFence
from agent.compaction.pins import choose_pins
from agent.providers.protocol import Limits, Provider
from agent.sessions.live import LiveView
from agent.sessions.protocol import SessionStore
from agent.sessions.records import PassRecord, Pin
from agent.tools.protocol import Tool, ToolContext
from agent.turn.background import Background
from agent.turn.host import Turn, UsageTotals
from agent.turn.options import AgentOptions
from agent.turn.prompt import fresh_prompt
from agent.turn.reader import StoredRows
from hermes_state import SessionDB

if TYPE_CHECKING:
    from agent import pass_events, telemetry
    from agent.telemetry import CallTrace, Telemetry, TurnTrace
    from agent.tools import registry, runner
    from agent.turn import routes
    from agent.turn.routes import Route, Routes
    from agent.turn.summaries import Summarisers
else:
    pass_events, telemetry = later("agent", "pass_events", "telemetry")
    registry, runner = later("agent.tools", "registry", "runner")
    [routes] = later("agent.turn", "routes")


class AgentRuntime:
    """One agent's state, as `agent.turn.host.TurnHost` describes it.

    Concurrency: changed only under `_turn_lock`, but for what `submit` and `interrupt` touch.
    """

    def __init__(self, settings: Settings, options: AgentOptions) -> None:
        self.settings = settings
        self.options = options
        self.clock = options.clock
        self.session_id = options.session_id or new_session_id(self.clock.now())
        self.cwd = options.cwd or Path.cwd()
        self.calibration = Calibration()
        self._anchor: UsageAnchor | None = None
        self.usage = UsageTotals()
        self.fences: list[CompressionCommitFence] = []
        self.excerpt_notices: set[int] = set()
        self.pin_notices: set[int] = set()
        self.compression_in_place = settings.compression.in_place
        self._compression_feasibility_checked = False
        self._cached_system_prompt: str | None = None
        self._store = options.session_db
        self._live: LiveView | None = None
        self._sink = options.on_event or ignore_event
        self._opened: str | None = None
        self._carried_seq = 0
        self._overhead: tuple[str, int] | None = None
        self._tool_state: dict[str, Any] = {}
        self._turn: Turn | None = None
        self._manual_stop = CancelToken()
        self._telemetry: Telemetry | None = None
        self._inflight_turn_id: str | None = None
        self._inflight_turn_started_at: float | None = None
        self._inflight_turn_session_id: str | None = None
        self._turn_lock = threading.RLock()
        self.background = Background(self)
        self._given = options.provider
        self._routes: Routes | None = None
        self._tools: dict[str, Tool] | None = None
        self.context_compressor: Any = open_engine(settings.context.engine, settings.compression)
        if isinstance(self.context_compressor, ContextCompressor) and self._store is not None:
            self.context_compressor.bind(self._store, self.session_id)

    @property
    def store(self) -> SessionStore:
        """The session store; the default one is opened at first use."""
        if self._store is None:
            self._store = SessionDB(db_path=default_database())
        return self._store

    @property
    def live(self) -> LiveView:
        """The live view in memory."""
        if self._live is None or self._live.session_id != self.session_id:
            self._live = LiveView(self.store, self.session_id)
        return self._live

    @property
    def system_prompt(self) -> str:
        """The prompt of this session, built at its first turn and kept with it."""
        if self._cached_system_prompt is None:
            self._cached_system_prompt = self._stored_prompt()
        return self._cached_system_prompt

    @property
    def tool_schemas(self) -> Sequence[dict[str, Any]]:
        """Schemas of the tools that requests offer; empty for a model without tool support."""
        return [tool.schema() for tool in self.tools.values()]

    @property
    def recall_offered(self) -> bool:
        """Whether requests offer the recall tool."""
        return "recall" in self.tools

    @property
    def routes(self) -> Routes:
        """The model's route and those it falls back on; opened at first use."""
        if self._routes is None:
            self._routes = routes.Routes(self, self._given)
        return self._routes

    @property
    def provider(self) -> Provider:
        """The route that is asked now; opened at first use, still without any network."""
        return self.routes.current.provider

    @property
    def window_tokens(self) -> int:
        """The window of the model that is asked now, as far as it is known."""
        return self.routes.current.window_tokens

    @property
    def reserve_tokens(self) -> int:
        """Tokens kept free for the answer."""
        return self.routes.current.reserve_tokens

    @property
    def takes_images(self) -> bool:
        """Whether requests carry images; else a label stands for each."""
        return self.routes.current.takes_images

    @property
    def trigger_tokens(self) -> int:
        """Real tokens of a request from which on a pass is due."""
        engine = self.context_compressor
        if isinstance(engine, ContextCompressor):
            return engine.threshold_tokens
        return self.calibration.apply(self.budget().trigger_tokens)

    @property
    def overhead_tokens(self) -> int:
        """Estimated tokens of system prompt and tool schemas."""
        prompt = self.system_prompt
        if self._overhead is None or self._overhead[0] is not prompt:
            tokens = estimate_text(prompt) + estimate_tools(self.tool_schemas)
            self._overhead = (prompt, tokens)
        return self._overhead[1]

    @property
    def limits(self) -> Limits:
        """The limits of one model call."""
        model = self.settings.model
        return Limits(
            connect_s=model.connect_timeout_seconds,
            first_byte_s=model.first_token_timeout_seconds,
            idle_s=model.idle_timeout_seconds,
            total_s=model.total_timeout_seconds,
        )

    def budget(self) -> Budget:
        """Return the shares of the window, in estimated tokens."""
        return budget_for(
            self.window_tokens,
            self.reserve_tokens,
            self.overhead_tokens,
            ratio=self.calibration.ratio,
            threshold=self.settings.compression.threshold,
            target_ratio=self.settings.compression.target_ratio,
        )

    def standing_pins(self) -> tuple[list[Pin], list[Pin]]:
        """Return the pins that every request carries, and those beyond the pin budget."""
        if not self.settings.context.pins:
            return [], []
        return choose_pins(self.store.pins(self.session_id), self.budget().pin_tokens)

    def emit(self, event: Event) -> None:
        """Hand an event to the sink with session, turn and time filled in."""
        if self.options.quiet_mode and isinstance(event, Notice) and event.level == "info":
            return
        if self._traces_turns:
            self.telemetry.observe(event)
        turn = self._turn
        self._sink(
            dataclasses.replace(
                event,
                session_id=self.session_id,
                turn_id=turn.id if turn is not None else "",
                at=self.clock.now(),
            )
        )

    # -- the trace ----------------------------------------------------------------------------
    @property
    def telemetry(self) -> Telemetry:
        """Where passes, turns and calls are published; opened at first use."""
        if self._telemetry is None:
            self._telemetry = telemetry.Telemetry(
                self.settings.telemetry, platform=self.options.platform
            )
        return self._telemetry

    @property
    def _traces_turns(self) -> bool:
        return self.settings.telemetry.relay or self.settings.telemetry.otel

    def traced_turn(self, turn: Turn) -> AbstractContextManager[TurnTrace | None]:
        """Return the trace of a turn, None when turns are not traced."""
        if not self._traces_turns:
            return nullcontext()
        return self.telemetry.turn(self.session_id, turn.id)

    def traced_call(self) -> AbstractContextManager[CallTrace | None]:
        """Return the trace of a model call, None when calls are not traced."""
        if not self._traces_turns:
            return nullcontext()
        return self.telemetry.model_call(
            self.provider.model, self.provider.route, max_tokens=self.reserve_tokens
        )

    def publish_pass(self, ledger: PassRecord, *, focused: bool = False) -> None:
        """Put an ended attempt on the trace; called without the lease. Never raises."""
        context = pass_events.PassContext(
            context_limit_tokens=self.window_tokens,
            threshold_tokens=self.trigger_tokens,
            tail_tokens=self.budget().tail_tokens,
            has_focus_topic=focused,
        )
        turn_session_id = self._inflight_turn_session_id
        self.telemetry.publish_pass(ledger, context, turn_session_id=turn_session_id)
        for text in self.summary_client().take_notices():
            self.emit(Notice(level="warning", text=text))

    @property
    def prepares_in_background(self) -> bool:
        """Whether passes are prepared while the conversation goes on."""
        if not self.settings.compression.background or not self.settings.compression.enabled:
            return False
        return self.settings.local.background or not self.routes.summarises_in_one_slot

    def summary_client(self) -> Summarisers:
        """Return the client of the summary model and of those that stand in for it."""
        return self.routes.summarisers()

    def tool_runner(self, turn: Turn) -> runner.ToolRunner | None:
        """Return a runner whose tools stop with the turn; None when its caller runs them."""
        context = ToolContext(
            cwd=self.cwd,
            settings=self.settings.tools,
            cancel=turn.cancel,
            rows=StoredRows(self.store, self.session_id),
            memory_path=None if self.options.skip_memory else memory_file(),
            state=self._tool_state,
        )
        return runner.ToolRunner(self.tools, context, self.options.confirm, self.emit)

    def note_carried(self, seq: int) -> None:
        """Take note of the newest row that a request carries."""
        self._carried_seq = max(self._carried_seq, seq)

    @property
    def anchor(self) -> UsageAnchor | None:
        """The provider's last count, None once a pass, an undo or a rewind changed the view."""
        anchor = self._anchor
        stands = anchor is not None and anchor.generation == self.live.head.generation
        return anchor if stands else None

    def counted(self, estimated: int) -> int:
        """Return what the provider would count for a request of `estimated` tokens now: its count
        of the last one and the estimate of what has come since, while nothing else has changed."""
        anchor = self.anchor
        if anchor is None:
            return self.calibration.apply(estimated)
        is_edited = self.settings.compression.anthropic_context_editing != "off"
        kept_out = 0 if is_edited else anchor.cleared
        return anchor.count(estimated, self.calibration) + kept_out

    def calibrate(self, calibration: Calibration, anchor: Mapping[str, Any]) -> None:
        """Take the provider's newest count over and keep it with the conversation."""
        self.calibration = calibration
        self._anchor = UsageAnchor.from_dict(anchor)
        self.store.set_usage_anchor(self.session_id, {**anchor, "model": self.provider.model})

    def learn_window(self, tokens: int) -> None:
        """Take over a smaller window that the provider named."""
        self.routes.current.learn("overflow", window_tokens=tokens)
        self._bind_compressor()

    def use_route(self, route: Route) -> None:
        """Ask another route from the next request on, or the same one with what was learned."""
        chain = self.routes
        if route is not chain.current:
            chain.current.calibration = self.calibration
            self.calibration, self._anchor = route.calibration, None
            chain.current = route
            self._tools = self._overhead = None
        self._bind_compressor()

    # -- the session --------------------------------------------------------------------------
    def _open_session(self) -> None:
        """Make sure that the session exists, and take over what the store knows of it."""
        if self._opened == self.session_id:
            return
        self.store.create_session(
            self.session_id,
            self.options.platform,
            model=self.provider.model,
            cwd=str(self.cwd),
        )
        self.session_id = self._opened = self.store.find_session(self.session_id).id
        self._live = None
        self._carried_seq = self.store.head(self.session_id).watermark
        anchor = self.store.usage_anchor(self.session_id)
        if anchor.get("model", self.provider.model) == self.provider.model:
            self.calibration = Calibration.from_dict(anchor)
            self._anchor = UsageAnchor.from_dict(anchor)
        self._bind_compressor()

    def move_to(self, session_id: str) -> None:
        """Carry on in another session of the conversation, or in a whole fork of it."""
        self.session_id = self._opened = session_id
        self._anchor = None
        if self._live is not None:
            self._live.session_id = session_id
        self._bind_compressor()

    def _pending_rows(self) -> list[Message]:
        rows = self.store.rows_after(self.session_id, self._carried_seq)
        return [row for row in rows if is_user_text(row)]

    def _stored_prompt(self) -> str:
        self._open_session()
        kept = self.store.session(self.session_id).system_prompt
        if kept is not None:
            return kept
        prompt = fresh_prompt(
            self.options,
            self.cwd,
            tools_offered=bool(self.tools),
            window_tokens=self.window_tokens,
        )
        self.store.set_system_prompt(self.session_id, prompt)
        return prompt

    # -- the model ----------------------------------------------------------------------------
    @property
    def tools(self) -> Mapping[str, Tool]:
        """The tools that requests offer, by name; none for a model without tool support."""
        if self._tools is None:
            self._tools = self._offered_tools() if self.provider.supports_tools else {}
        return self._tools

    def _offered_tools(self) -> dict[str, Tool]:
        offered: dict[str, Tool] = {}
        if self.options.builtin_tools:
            offered = registry.builtin_tools(
                recall=self.settings.context.recall, memory=not self.options.skip_memory
            )
        return registry.add_tools(offered, self.options.tools or ())

    def _named(self, name: str) -> Settings:
        """Return the settings with another model of the same endpoint."""
        return routes.switched(self.settings, name)

    def _use_model(self, settings: Settings) -> None:
        """Take over settings that name another model."""
        self._close_providers()
        self.settings = settings
        self._given = self._routes = self._tools = self._overhead = None

    def _close_providers(self) -> None:
        if self._routes is not None:
            self._routes.close()

    def _bind_compressor(self) -> None:
        engine = self.context_compressor
        if isinstance(engine, ContextCompressor):
            engine.update_window(self.window_tokens, self.reserve_tokens)
            engine.bind(self.store, self.session_id)
