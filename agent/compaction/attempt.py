"""What passes between an attempt and its engine: the context in, the candidate out, the difference.

Read next: `context_compressor.py` (the built-in engine), `verify.py` (what a candidate must be).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import field
from typing import Any, Protocol

from agent.base.errors import HermesError
from agent.base.messages import Message, text_of
from agent.base.record import dataclass
from agent.base.redact import redact
from agent.base.tokens import estimate_message
from agent.compaction.budget import Budget, row_tokens
from agent.compaction.cooldown import BLOCKED_BY_COOLDOWN, BLOCKED_BY_MEMORY, FailedRung
from agent.compaction.fence import CompressionCommitFence
from agent.compaction.retain import NOTHING_STANDS, Standing
from agent.providers.protocol import TokenUsage
from agent.sessions.records import PassKind

MASKABLE = ("content", "tool_calls")
"""The fields that a stub may replace."""

MARKER_KEYS = ("_seen", "_from_seq")
"""What a marker carries beside its text: see `agent.base.messages`."""

_ABSENT = object()
_GIVEN = {"_ref"}
LEFT_OUT = "(Earlier messages were left out here without a summary.)"
"""What stands for rows that a plain engine dropped."""


class SummaryReply(Protocol):
    """A complete, readable answer; `cost` in US dollars, None when the price is unknown."""

    @property
    def text(self) -> str: ...

    @property
    def usage(self) -> TokenUsage | None: ...

    @property
    def cost(self) -> float | None: ...


class SummaryClient(Protocol):
    """A model that writes summaries.

    `summarise` touches the fence for every byte and ends within 250 ms of `fence.token`.
    Raises: AuxiliaryExplicitCancellation when cancelled; ProviderError; the SummaryFailure that
    an empty, cut off or declined answer is.
    """

    @property
    def window_tokens(self) -> int: ...

    @property
    def model(self) -> str: ...

    @property
    def route(self) -> str: ...

    def summarise(
        self,
        prompt_messages: Sequence[Message],
        *,
        max_tokens: int,
        fence: CompressionCommitFence,
        on_delta: Callable[[str], None] | None,
    ) -> SummaryReply: ...


def ignore_progress(_tokens_out: int) -> None:
    """The progress listener of attempts that nobody watches."""


def never_failed(_rung: FailedRung) -> FailedRung | None:
    """The memory of attempts that have none."""
    return None


def nothing_stands() -> Standing:
    """What the store knows of user rows in attempts without one."""
    return NOTHING_STANDS


class RungRemembered(HermesError):
    """The summary that is due failed before, and nothing has changed since."""

    failure_class = BLOCKED_BY_MEMORY

    def __init__(self, rung: FailedRung) -> None:
        super().__init__(
            f"a summary of rows {rung.first_seq}-{rung.last_seq} by {rung.model!r} failed before "
            f"({rung.failure_class}, pass {rung.pass_id[:8]}); /compress asks for it at once"
        )
        self.rung = rung


@dataclass
class Tally:
    """What the calls of one attempt have used so far; `cost` is None once a price was unknown.

    `rung` is the summary that was asked for, None before any was.
    """

    calls: int = 0
    chunks: int = 0
    tokens_out: int = 0
    cost: float | None = 0.0
    rung: FailedRung | None = None


@dataclass(frozen=True)
class AttemptContext:
    """What an engine may use in one attempt.

    `client` is None when no summary model is reachable by settings; `model_free` forbids its use,
    and `stand_in` is the failure class of a digest that is written therefore. `failed_before` tells
    whether a summary failed and is not to be asked for again yet.
    `standing` reads which user rows leave last.
    `on_progress` hears the estimated tokens of summary text that have arrived so far; `tally`
    counts what the model calls have used, so that a failed attempt is accounted for too.
    """

    pass_id: str
    fence: CompressionCommitFence
    budget: Budget
    client: SummaryClient | None = None
    model_free: bool = False
    on_progress: Callable[[int], None] = ignore_progress
    tally: Tally = field(default_factory=Tally)
    standing: Callable[[], Standing] = nothing_stands
    stand_in: str = BLOCKED_BY_COOLDOWN
    failed_before: Callable[[FailedRung], FailedRung | None] = never_failed


class Candidate(list[Message]):
    """A view that an engine proposes: kept messages with `_ref`, at most one new row without.

    `kind` is the highest rung that was used and `strategy` names all of them; `failure_class` says
    why the mechanical digest stood in for a summary. `cost` is None when a price is unknown.
    """

    def __init__(
        self,
        messages: Iterable[Message],
        *,
        kind: PassKind = PassKind.SUMMARY,
        strategy: tuple[str, ...] = (),
        failure_class: str = "",
    ) -> None:
        super().__init__(messages)
        self.kind = kind
        self.strategy = strategy
        self.failure_class = failure_class
        self.model = ""
        self.route = ""
        self.cost: float | None = None
        self.summary_ms = 0
        self.chunks = 0
        self.tokens_out = 0


class CandidateRefused(HermesError):
    """An engine's candidate cannot be read as a change of its input.

    `reason` is one word: reordered, duplicated, altered, masked_again or unknown_ref.
    """

    failure_class = "summary_generation_failed"

    def __init__(self, reason: str, detail: str) -> None:
        super().__init__(f"the engine's result is refused ({reason}): {detail}")
        self.reason = reason


@dataclass(frozen=True)
class Mask:
    """A kept row that is shown with other fields from now on; `tokens` is its new estimate."""

    ref: int
    stub: Mapping[str, Any]
    tokens: int


@dataclass(frozen=True)
class Changes:
    """What a candidate changes: indexes of the input, ascending.

    `kept` holds masked rows too. `new_row` stands for all covered rows; None when there are none.
    """

    kind: PassKind
    kept: tuple[int, ...]
    covered: tuple[int, ...]
    masked: tuple[Mask, ...]
    new_row: Message | None

    @property
    def nothing(self) -> bool:
        """Whether the view would stay as it is."""
        return not self.covered and not self.masked and self.new_row is None


def reconcile(inputs: Sequence[Message], candidate: Sequence[Message]) -> Changes:
    """Return what `candidate` changes of `inputs`.

    A row with `_ref` is that input; one without is matched to an equal input, from the end, since
    plain engines return copies. The rest are new, and several are joined into one in order.
    Raises: CandidateRefused when kept rows are reordered, repeated or altered beyond a mask.
    """
    refs = _resolve_refs(inputs, candidate)
    is_counted = isinstance(candidate, Candidate)
    kept = tuple(ref for ref in refs if ref is not None)
    masks = [
        mask
        for message, ref in zip(candidate, refs, strict=True)
        if ref is not None
        and (mask := _mask_of(inputs[ref], message, ref, is_counted=is_counted)) is not None
    ]
    new = [message for message, ref in zip(candidate, refs, strict=True) if ref is None]
    standing = set(kept)
    covered = tuple(ref for ref in range(len(inputs)) if ref not in standing)
    if not new and not covered:
        return Changes(PassKind.MASK, kept, (), tuple(masks), None)
    kind = candidate.kind if isinstance(candidate, Candidate) else PassKind.SUMMARY
    return Changes(kind, kept, covered, tuple(masks), _join_new(new, kind))


def _resolve_refs(inputs: Sequence[Message], candidate: Sequence[Message]) -> list[int | None]:
    """Return for each candidate row the index of the input it is, or None for a new row."""
    refs: list[int | None] = [None] * len(candidate)
    following = len(inputs)
    places = _places_by_value(inputs, candidate)
    for position in range(len(candidate) - 1, -1, -1):
        message = candidate[position]
        if "_ref" in message:
            ref = message["_ref"]
            if not isinstance(ref, int) or not 0 <= ref < len(inputs):
                raise CandidateRefused("unknown_ref", f"no row {ref!r} of {len(inputs)}")
            if ref >= following:
                reason = "duplicated" if ref == following else "reordered"
                raise CandidateRefused(reason, f"row {ref} stands before row {following}")
        else:
            matching = places.get(_value_key(message))
            if matching is None:
                continue
            while matching and matching[-1] >= following:
                matching.pop()
            if not matching:
                raise CandidateRefused(
                    "duplicated", f"result row {position} repeats an input row out of its order"
                )
            ref = matching.pop()
        refs[position] = following = ref
    return refs


def _places_by_value(
    inputs: Sequence[Message], candidate: Sequence[Message]
) -> dict[str, list[int]]:
    """Return the indexes of equal inputs by value; none for the built-in engine, which has refs."""
    if isinstance(candidate, Candidate):
        return {}
    places: dict[str, list[int]] = {}
    for index, message in enumerate(inputs):
        places.setdefault(_value_key(message), []).append(index)
    return places


def _value_key(message: Message) -> str:
    visible = {key: value for key, value in message.items() if not key.startswith("_")}
    return repr(sorted(visible.items()))


def _mask_of(original: Message, message: Message, ref: int, *, is_counted: bool) -> Mask | None:
    """Return how `message` masks the input it is, or None when it shows the same; with `is_counted`
    a masked row brings its own estimate."""
    if original.items() <= message.items() and message.keys() - original.keys() <= _GIVEN:
        return None
    changed = _changed_fields(original, message)
    if not changed:
        return None
    if not changed <= set(MASKABLE):
        raise CandidateRefused("altered", f"row {ref} differs in more than {MASKABLE}")
    if "_row_id" not in original:
        raise CandidateRefused("altered", f"row {ref} is not stored yet and cannot be masked")
    if original.get("_stub"):
        raise CandidateRefused("masked_again", f"row {ref} is masked by an earlier pass")
    stub = {key: message.get(key) for key in MASKABLE if key in changed}
    counted_anew = is_counted and message.get("_tokens") != original.get("_tokens")
    return Mask(ref, stub, row_tokens(message) if counted_anew else estimate_message(message))


def _changed_fields(original: Message, message: Message) -> set[str]:
    """Return the names of the visible fields in which two messages differ."""
    differing = {
        name
        for name, value in message.items()
        if (before := original.get(name, _ABSENT)) is not value and before != value
    }
    differing |= original.keys() - message.keys()
    return {name for name in differing if not name.startswith("_")}


def _join_new(rows: Sequence[Message], kind: PassKind) -> Message:
    """Return the one row that a pass makes, from the new rows of a candidate in order.

    It is redacted here, since an installed engine need not do it.
    """
    texts = [text for row in rows if (text := text_of(row.get("content")).strip())]
    content = redact("\n\n".join(texts)) if rows else LEFT_OUT
    role = "assistant" if kind is PassKind.MICRO else "user"
    kept = {key: row[key] for row in rows for key in MARKER_KEYS if key in row}
    joined: Message = {"role": role, "content": content, "_kind": kind.value, **kept}
    joined["_tokens"] = estimate_message(joined)
    return joined
