"""What an attempt is asked, what it needs of its agent, and what it hands back."""

from __future__ import annotations

from typing import Any, Protocol

from agent.base.cancel import CancelToken
from agent.base.clock import Clock
from agent.base.events import Event
from agent.base.record import dataclass
from agent.base.settings import Settings
from agent.base.tokens import Calibration
from agent.compaction.attempt import SummaryClient
from agent.compaction.budget import Budget
from agent.compaction.fence import CompressionCommitFence
from agent.providers.protocol import Provider
from agent.sessions.live import LiveView
from agent.sessions.protocol import SessionStore
from agent.sessions.records import PassRecord, View


class CompressionHost(Protocol):
    """What an attempt needs of the agent it runs for."""

    session_id: str
    settings: Settings
    clock: Clock
    calibration: Calibration
    context_compressor: Any
    fences: list[CompressionCommitFence]

    @property
    def store(self) -> SessionStore: ...

    @property
    def provider(self) -> Provider: ...

    @property
    def live(self) -> LiveView:
        """The live view in memory."""
        ...

    def budget(self) -> Budget: ...

    def summary_client(self) -> SummaryClient: ...

    def emit(self, event: Event) -> None: ...

    def move_to(self, session_id: str) -> None:
        """Carry on in another session of the conversation, or in a fork of it."""
        ...

    def publish_pass(self, ledger: PassRecord, *, focused: bool = False) -> None:
        """Put an ended attempt on the trace; called without the lease. Never raises."""
        ...


@dataclass(frozen=True)
class AttemptRequest:
    """What is asked of one attempt.

    `force` skips the gate but for the OFF switch; `current_tokens` is what the caller believes the
    request to take and is only passed on to the engine; `preview` leaves the pass prepared until a
    person decides, `background` until a later attempt commits it; `adopt_only` commits a prepared
    pass or nothing; `micro` condenses one exchange and leaves brake and health alone. A stop of
    `cancel` stops the attempt, also one that was given before the attempt began.
    Units: `waited_ms` is how long a turn had to wait for a background pass.
    """

    trigger: str
    force: bool = False
    focus: str | None = None
    current_tokens: int | None = None
    fence: CompressionCommitFence | None = None
    cancel: CancelToken | None = None
    preview: bool = False
    background: bool = False
    adopt_only: bool = False
    micro: bool = False
    waited_ms: int = 0

    @property
    def prepares(self) -> bool:
        """Whether the attempt ends with a prepared pass."""
        return self.preview or self.background


@dataclass(frozen=True)
class Attempted:
    """How an attempt ended: its ledger row, and the new view when it committed."""

    ledger: PassRecord
    view: View | None = None

    @property
    def committed(self) -> bool:
        """Whether the view has changed."""
        return self.view is not None
