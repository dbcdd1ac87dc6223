"""Micro passes: which rows of a view give way to a short marker after a turn. Pure.

A marker stands where the last row of its exchange stood, so a reply stays beside its question.
Markers that have become too many are rolled up into one. User rows are never covered.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from agent.base.messages import Message, is_user_text
from agent.base.record import dataclass
from agent.compaction.budget import Budget, shown_sizes, total_tokens
from agent.compaction.cut import group_rows, is_summary, standing_rows, tail_start
from agent.sessions.records import PassKind, PassRecord, PassStatus

MIN_TOKENS = 120
"""An exchange of less is left as it is: a marker would save next to nothing."""
MARKER_SHARE = 0.25
MARKER_MIN_TOKENS = 60
MARKER_MAX_TOKENS = 400
ROLL_UP_SHARE = 0.5
"""Part of their budget that rolled up markers may take."""


@dataclass(frozen=True)
class MicroCut:
    """Indexes of the view, ascending: what one marker stands for, and what its writer reads.

    Units: `max_tokens` of the marker.
    """

    covered: tuple[int, ...]
    read: tuple[int, ...]
    max_tokens: int
    strategy: str


def micro_cuts(messages: list[Message], budget: Budget, roll_up_tokens: int) -> Iterator[MicroCut]:
    """Yield what may be condensed next: all markers once they exceed `roll_up_tokens`, then
    finished exchanges outside the tail, oldest first."""
    first = 1 + max((i for i, row in enumerate(messages) if is_summary(row)), default=-1)
    markers = tuple(i for i in range(first, len(messages)) if is_marker(messages[i]))
    if len(markers) > 1 and total_tokens([messages[i] for i in markers]) > roll_up_tokens:
        yield MicroCut(markers, markers, int(roll_up_tokens * ROLL_UP_SHARE), "roll_up")
    groups = group_rows(messages)
    end = tail_start(shown_sizes(messages, budget), groups, budget.tail_tokens)
    standing = standing_rows(messages, groups)
    for users, replies in _exchanges(messages, groups, first):
        tokens = total_tokens([messages[i] for i in replies])
        if replies[-1] >= end or standing.intersection(replies):
            return
        if tokens >= MIN_TOKENS and not all(is_marker(messages[i]) for i in replies):
            wanted = min(max(int(tokens * MARKER_SHARE), MARKER_MIN_TOKENS), MARKER_MAX_TOKENS)
            yield MicroCut(tuple(replies), tuple(sorted((*users, *replies))), wanted, "micro")


def undone_rows(ledger: Iterable[PassRecord]) -> set[str]:
    """Return what each micro pass that was undone had covered, as seqs: a person wanted to see
    those rows, so the same ones are not condensed again."""
    return {
        record.receipt["covered"]
        for record in ledger
        if record.kind is PassKind.MICRO and record.status is PassStatus.UNDONE
    }


def is_marker(message: Message) -> bool:
    """Return whether a micro pass made this row."""
    return message.get("_kind") == "micro"


def marker_fields(covered: list[Message]) -> Message:
    """Return what a marker takes over from the rows it stands for: it is the assistant's, it
    answers what the last of them answered, and it knows where the first of them stood."""
    fields: Message = {"role": "assistant"}
    first = covered[0]
    if "_seq" in first:
        fields["_from_seq"] = first.get("_from_seq", first["_seq"])
    seen = [row["_seen"] for row in covered if "_seen" in row]
    if seen:
        fields["_seen"] = seen[-1]
    return fields


def _exchanges(
    messages: list[Message], groups: list[int], first: int
) -> Iterator[tuple[list[int], list[int]]]:
    """Yield (user rows, replies) of each exchange that a later user row closes.

    A user row that came between a call and its result closes nothing.
    """
    ends = {group: index for index, group in enumerate(groups)}
    users: list[int] = []
    replies: list[int] = []
    reach = first
    for index in range(first, len(messages)):
        message = messages[index]
        if message.get("role") in ("assistant", "tool"):
            replies.append(index)
            reach = max(reach, ends[groups[index]])
        elif is_user_text(message):
            if replies and index > reach:
                yield users, replies
                users, replies = [], []
            users.append(index)
