"""What a turn needs of the agent it runs for. `run_agent.AIAgent` fulfils it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import field
from typing import TYPE_CHECKING, Any, Protocol

from agent.base.cancel import CancelToken
from agent.base.messages import Message
from agent.base.record import dataclass
from agent.base.tokens import Calibration, UsageAnchor
from agent.compaction.host import Attempted, CompressionHost
from agent.providers.protocol import Limits, Provider, TokenUsage
from agent.sessions.records import Pin

if TYPE_CHECKING:
    from agent.telemetry import CallTrace
    from agent.tools.runner import ToolRunner
    from agent.turn.routes import Route, Routes


@dataclass
class UsageTotals:
    """What an agent has used since it was made; `cost` is None once one call had no known price."""

    calls: int = 0
    prompt: int = 0
    completion: int = 0
    cached: int = 0
    cache_write: int = 0
    cost: float | None = 0.0

    def add(self, usage: TokenUsage, cost: float | None) -> None:
        """Count one call."""
        self.calls += 1
        self.prompt += usage.prompt
        self.completion += usage.completion
        self.cached += usage.cached
        self.cache_write += usage.cache_write
        self.cost = None if cost is None or self.cost is None else self.cost + cost


@dataclass
class Turn:
    """One turn while it runs. `first_seq` is the seq of the first user row it answers,
    `used_tokens` what its newest request and answer take of the window, `waited_ms` how long it had
    to wait for a pass that was being prepared. `max_tokens` lowers the limit of its answers (0: no)
    and `temperature` is sent with its requests (None: the provider's own).
    """

    id: str
    first_seq: int
    cancel: CancelToken = field(default_factory=CancelToken)
    max_tokens: int = 0
    temperature: float | None = None
    used_tokens: int = 0
    waited_ms: int = 0
    overflow_passes: int = 0
    blocked_noted: bool = False
    waiting_noted: bool = False
    passes: list[str] = field(default_factory=list)
    usage: UsageTotals = field(default_factory=UsageTotals)


@dataclass(frozen=True)
class TurnResult:
    """A finished turn.

    `messages` are the rows the turn accepted, oldest first; `passes` the ids of the passes it
    committed; `stop_reason` is stop, length, iterations, interrupted or, when its caller runs the
    tools, tool_calls;
    `waited_ms` is how long it waited for a background pass because the window was full.
    """

    final_text: str
    messages: list[Message]
    usage: UsageTotals
    session_id: str
    passes: list[str]
    stop_reason: str
    waited_ms: int = 0


class BackgroundPasses(Protocol):
    """What a turn asks of `agent.turn.background.Background`."""

    @property
    def running(self) -> bool: ...

    def consider(self, used_tokens: int) -> None: ...

    def commit(self, turn: Turn) -> bool: ...

    def attempt(
        self, turn: Turn, *, trigger: str, needed: Callable[[], bool] | None = None
    ) -> Attempted: ...


class TurnHost(CompressionHost, Protocol):
    """The agent as the turn loop sees it."""

    @property
    def provider(self) -> Provider: ...

    @property
    def window_tokens(self) -> int: ...

    @property
    def reserve_tokens(self) -> int: ...

    @property
    def trigger_tokens(self) -> int: ...

    @property
    def routes(self) -> Routes: ...

    @property
    def takes_images(self) -> bool: ...

    @property
    def anchor(self) -> UsageAnchor | None: ...

    @property
    def excerpt_notices(self) -> set[int]: ...

    @property
    def pin_notices(self) -> set[int]: ...

    @property
    def system_prompt(self) -> str: ...

    @property
    def tool_schemas(self) -> Sequence[dict[str, Any]]: ...

    @property
    def limits(self) -> Limits: ...

    @property
    def usage(self) -> UsageTotals: ...

    @property
    def recall_offered(self) -> bool: ...

    def standing_pins(self) -> tuple[list[Pin], list[Pin]]:
        """Return the pins that every request carries, and those beyond the pin budget."""
        ...

    def tool_runner(self, turn: Turn) -> ToolRunner | None:
        """Return a runner whose tools stop with the turn; None when its caller runs them."""
        ...

    def traced_call(self) -> AbstractContextManager[CallTrace | None]:
        """Return the trace of a model call, None when calls are not traced."""
        ...

    def note_carried(self, seq: int) -> None:
        """Say that a request with every row up to `seq` is about to be sent."""
        ...

    def counted(self, estimated: int) -> int:
        """Return what the provider would count for a request of `estimated` tokens now."""
        ...

    def use_route(self, route: Route) -> None:
        """Ask another route from the next request on, or the same one with what was learned."""
        ...

    def calibrate(self, calibration: Calibration, anchor: dict[str, Any]) -> None:
        """Take the provider's newest count over."""
        ...

    def learn_window(self, tokens: int) -> None:
        """Take over a smaller window that the provider named."""
        ...

    @property
    def prepares_in_background(self) -> bool:
        """Whether passes are prepared while the conversation goes on."""
        ...

    @property
    def background(self) -> BackgroundPasses: ...
