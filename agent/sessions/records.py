"""Values that the store takes and gives. Frozen; JSON fields are plain dicts.

Read next: `protocol.py`, which says what each operation promises.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field
from enum import StrEnum
from typing import Any, NamedTuple

from agent.base.messages import Message
from agent.base.record import dataclass


class PassStatus(StrEnum):
    PLANNED = "planned"
    PREPARED = "prepared"
    COMMITTED = "committed"
    ABORTED = "aborted"
    FAILED = "failed"
    SUPERSEDED = "superseded"
    SKIPPED = "skipped"
    BLOCKED = "blocked"
    UNDONE = "undone"


class PassKind(StrEnum):
    SUMMARY = "summary"
    MECHANICAL = "mechanical"
    MASK = "mask"
    MICRO = "micro"
    REWIND = "rewind"
    UNDO = "undo"
    IMPORT = "import"
    PROVIDER_NATIVE = "provider_native"


CONTEXT_EDITING = "context_editing"
"""Strategy of a pass in which the provider left tool results or thinking out of what it read."""


class RowState(StrEnum):
    """Where a row stands: in the view, shown as a stub, covered, or hidden by a rewind."""

    LIVE = "live"
    MASKED = "masked"
    COMPACTED = "compacted"
    HIDDEN = "hidden"


@dataclass(frozen=True)
class SessionRecord:
    id: str
    conversation_id: int
    source: str
    model: str | None
    system_prompt: str | None
    parent_session_id: str | None
    title: str | None
    started_at: float
    ended_at: float | None
    end_reason: str | None
    cwd: str | None
    last_active_at: float
    message_count: int
    """Accepted rows of the conversation, whatever their state."""
    pass_count: int
    """Compactions of the conversation that are in force: committed, no rewind and no undo."""
    model_config: Mapping[str, Any] = field(default_factory=dict)
    origin: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Head:
    """Two numbers that tell whether a view in memory is still current."""

    generation: int
    watermark: int
    """Highest seq of the conversation; 0 when it is empty."""


@dataclass(frozen=True)
class View:
    """The live view: messages by `_seq`, masked ones shown as their stub."""

    conversation_id: int
    generation: int
    watermark: int
    messages: list[Message]
    tokens: int
    """Sum of the `_tokens` of the messages."""

    @property
    def head(self) -> Head:
        return Head(self.generation, self.watermark)


@dataclass(frozen=True)
class HistoryRow:
    """One place of a conversation, covered and hidden ones too."""

    message: Message
    state: RowState
    compacted_by: str | None
    """Pass id."""
    made_by: str | None
    """Pass id; None for an accepted row."""


@dataclass(frozen=True)
class SearchHit:
    session_id: str
    title: str | None
    state: RowState
    message: Message
    snippet: str
    """One line around the first match, at most 200 characters."""


@dataclass(frozen=True)
class Lease:
    conversation_id: int
    session_id: str
    holder: str
    token: int
    acquired_at: float
    expires_at: float


@dataclass(frozen=True)
class Guards:
    """What an outcome writes about the future, in the outcome's own transaction.

    `cooldown_until` merges with the stored deadline: the longer wins, the newest error stays.
    `clear_cooldown` empties it first. `health` replaces the stored record when not None. `noted`
    is added to the receipt of the newest committed pass: what showed of it later.
    """

    clear_cooldown: bool = False
    cooldown_until: float | None = None
    cooldown_error: str = ""
    failure_class: str = ""
    health: Mapping[str, Any] | None = None
    noted: Mapping[str, Any] = field(default_factory=dict)


NO_GUARDS = Guards()
"""An outcome that says nothing about the future."""


@dataclass(frozen=True)
class PassOpening:
    """A new ledger row, status `planned`."""

    pass_id: str
    session_id: str
    kind: PassKind
    trigger: str
    watermark: int
    lease_token: int
    tokens_before: int | None = None
    messages_before: int | None = None
    model: str = ""
    route: str = ""


@dataclass(frozen=True)
class NativePass:
    """What an answer with a compaction of the provider's tells the ledger.

    `generation` is that of the view that its request was made of. Units: estimated tokens.
    """

    generation: int
    tokens_before: int | None
    tokens_after: int | None
    messages_before: int
    messages_after: int
    model: str
    route: str
    trigger: str = "provider"
    strategy: str = "provider"
    receipt: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class NewRow:
    """A row that a pass makes; it takes the seq of the last place it covers."""

    message: Message
    kind: PassKind
    """SUMMARY, MECHANICAL or MICRO: also the row's kind."""


@dataclass(frozen=True)
class MaskedPlace:
    row_id: int
    stub: Mapping[str, Any]
    """The fields it replaces: content, tool_calls."""
    tokens: int
    """Estimate of the row as shown with the stub."""


@dataclass(frozen=True)
class PassCommit:
    """The whole effect of a pass.

    `cover` and `mask` name stored rows by `_row_id`; `pending` are messages accepted by this
    very commit, in order, after every stored row; `cover_pending` are indexes into `pending`
    that are covered at once. `seen_masks` maps each covered row that is masked to the pass that
    masked it (None entries are left out). `new_row` is None for a mask pass. `seen` is the view it
    was planned on: while it stands, it is compared with instead of reading the view again.
    """

    pass_id: str
    lease: Lease
    kind: PassKind
    strategy: str
    watermark: int
    cover: tuple[int, ...] = ()
    mask: tuple[MaskedPlace, ...] = ()
    pending: tuple[Message, ...] = ()
    cover_pending: tuple[int, ...] = ()
    seen_masks: Mapping[int, str] = field(default_factory=dict)
    new_row: NewRow | None = None
    guards: Guards = field(default_factory=Guards)
    receipt: Mapping[str, Any] = field(default_factory=dict)
    tokens_after: int | None = None
    messages_after: int | None = None
    cost: float | None = None
    durations: Mapping[str, int] = field(default_factory=dict)
    """Milliseconds by step: plan, summary, verify, commit, total (what is known)."""
    failure_class: str = ""
    """Why a mechanical pass stood in for a summary; empty otherwise."""
    child_session_id: str = ""
    """The session that carries the conversation on from this commit; empty stays in place."""
    seen: View | None = None


@dataclass(frozen=True)
class PassClosing:
    """How an attempt ended without a commit."""

    pass_id: str
    status: PassStatus
    failure_class: str
    detail: str = ""
    guards: Guards = field(default_factory=Guards)
    cost: float | None = None
    durations: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class PassRecord:
    """One ledger row."""

    id: str
    conversation_id: int
    session_id: str
    generation: int
    status: PassStatus
    kind: PassKind
    trigger: str
    strategy: str
    failure_class: str
    detail: str
    count: int
    watermark: int
    plan: Mapping[str, Any]
    lease_token: int | None
    tokens_before: int | None
    tokens_after: int | None
    messages_before: int | None
    messages_after: int | None
    model: str
    route: str
    cost: float | None
    durations: Mapping[str, int]
    receipt: Mapping[str, Any]
    target_pass: str | None
    child_session_id: str | None
    created_at: float
    finished_at: float | None


class StoredExtract(NamedTuple):
    """One thing that an accepted row says, as `agent.base.extract` found it.

    A named tuple, because a plan reads thousands.
    """

    row_id: int
    seq: int
    role: str
    kind: str
    subject: str
    value: str


@dataclass(frozen=True)
class Pin:
    """A standing instruction. `source_seq` is the row it was found in, None when set by hand.

    `doubt` is what the user said of it later, in row `doubt_seq`, which may take it back; empty for
    nothing.
    """

    id: int
    text: str
    source_seq: int | None
    created_at: float
    doubt_seq: int | None = None
    doubt: str = ""


@dataclass(frozen=True)
class UndoResult:
    """What an undo or a rewind did: its ledger rows, oldest first, and the view after it."""

    ledger: tuple[PassRecord, ...]
    view: View


@dataclass(frozen=True)
class PassChanges:
    """What one pass did to the view, as the store shows it now; rows are whole, oldest first."""

    record: PassRecord
    left: Sequence[Message]
    """Rows that it covers or hides."""
    masked: Sequence[tuple[Message, Message]]
    """Rows that it masks: as they were accepted, and as they are shown since."""
    made: Sequence[Message]
    """Rows that it made; hidden again once it was undone."""


@dataclass(frozen=True)
class Imported:
    """What was taken in of a file. A file that breaks is taken up to there."""

    session: SessionRecord
    rows: int
    """Rows of the file that were read, those that passes made too."""
    rows_announced: int
    """Rows that the file says it holds."""
    broken_line: int | None = None
    """The line that cannot be read or believed, from 1; None for a sound file."""
    broken_why: str = ""


@dataclass(frozen=True)
class CheckReport:
    """What `hermes doctor` finds in a store: one line a broken law, empty when sound."""

    problems: Sequence[str]
    conversations: int
    rows: int
    passes: int
