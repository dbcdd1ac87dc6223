"""Which rows a pass covers and which it keeps. Pure; works on indexes of the view.

A tool call and its results are one group and stay on one side. The newest real user message is
never covered, and neither is the last assistant row with its results while what then stays can be
sent.
"""

from __future__ import annotations

from collections.abc import Mapping

from agent.base.headings import heading_above
from agent.base.messages import Message, call_ids, is_user_text, last_user_index, text_of
from agent.base.record import dataclass
from agent.base.tokens import estimate_text
from agent.compaction.budget import Budget, row_tokens, shown_sizes, shown_tokens
from agent.compaction.retain import NOTHING_STANDS, Rank, Standing, user_ranks

UserRanks = Mapping[int, tuple[int, float]]
"""Where each user row of the view stands in the order in which they are kept."""

_SUMMARY_KINDS = frozenset({"summary", "mechanical"})


@dataclass(frozen=True)
class Cut:
    """Indexes of the view, ascending; together they are all of it."""

    kept: tuple[int, ...]
    covered: tuple[int, ...]


def group_rows(messages: list[Message]) -> list[int]:
    """Return for each row the index of the first row of its group.

    An assistant row and the results of its calls are one group, wherever the results stand before
    the next use of the same call id; every other row is a group of its own.
    """
    groups = list(range(len(messages)))
    caller: dict[str, int] = {}
    for index, message in enumerate(messages):
        if message.get("role") == "tool":
            groups[index] = caller.get(str(message.get("tool_call_id", "")), index)
        elif message.get("tool_calls"):
            caller.update(dict.fromkeys(call_ids(message), index))
    return groups


def tail_start(sizes: list[int], groups: list[int], tail_tokens: int) -> int:
    """Return the first index of the longest tail within `tail_tokens` that splits no group."""
    start = lowest = len(sizes)
    used = 0
    for index in range(len(sizes) - 1, -1, -1):
        used += sizes[index]
        if used > tail_tokens:
            break
        lowest = min(lowest, groups[index])
        if lowest >= index:
            start = index
    return start


def standing_rows(messages: list[Message], groups: list[int]) -> set[int]:
    """Return what stays while it fits: the newest request, the last assistant row, its results."""
    standing = _newest_request(messages)
    for index in range(len(messages) - 1, -1, -1):
        if messages[index].get("role") == "assistant":
            standing.update(at for at in range(index, len(messages)) if groups[at] == index)
            break
    return standing


def _newest_request(messages: list[Message]) -> set[int]:
    newest = last_user_index(messages)
    return set() if newest is None else {newest}


def plan_cut(messages: list[Message], budget: Budget, standing: Standing = NOTHING_STANDS) -> Cut:
    """Return the cut that brings the view to the budget's target, or as near as a cut can.

    At least one row is covered when any may be, for which the tail shrinks; a view of nothing but
    summaries and standing rows gives a cut that covers nothing. Earlier summaries are covered
    with whatever else is. `standing` says which user rows leave last.
    What does not fit the window loses them too, and in the end the last assistant row: an answer
    of another model's window must not end the conversation.
    """
    groups = group_rows(messages)
    sizes = shown_sizes(messages, budget)
    tail_tokens = min(budget.tail_tokens, sum(sizes) - 1)
    ranks = user_ranks(messages, standing, budget.user_tokens)
    while True:
        start = tail_start(sizes, groups, tail_tokens)
        cut = _cut_at(messages, groups, budget, start, ranks)
        tokens = _tokens_after(messages, cut, budget)
        if _claims(messages, cut) and tokens <= budget.target_tokens:
            return cut
        if tail_tokens <= 0:
            break
        tail_tokens //= 2
    if not _claims(messages, cut) or not budget.fits(_tokens_after(messages, cut, budget)):
        cut = _complete(messages, standing_rows(messages, groups))
    if not budget.fits(_tokens_after(messages, cut, budget)):
        cut = _complete(messages, _newest_request(messages))
    return cut if _claims(messages, cut) else Cut(tuple(range(len(messages))), ())


def _cut_at(
    messages: list[Message],
    groups: list[int],
    budget: Budget,
    start: int,
    ranks: UserRanks,
) -> Cut:
    """Return the cut whose tail begins at `start`."""
    kept = {index for index in range(start, len(messages)) if not is_summary(messages[index])}
    kept |= standing_rows(messages, groups)
    running = _running_requests(messages)
    if sum(row_tokens(messages[index]) for index in running) <= budget.message_tokens:
        kept |= running
    users = [i for i in range(start) if i not in kept and is_user_text(messages[i])]
    kept |= _keep_users(messages, users, budget.user_tokens, ranks)
    return _complete(messages, kept)


def _running_requests(messages: list[Message]) -> set[int]:
    """Return the user rows since the last finished answer; the work on them goes on."""
    running: set[int] = set()
    for index in range(len(messages) - 1, -1, -1):
        message = messages[index]
        if message.get("role") == "assistant" and not message.get("tool_calls"):
            break
        if is_user_text(message):
            running.add(index)
    return running


def _tokens_after(messages: list[Message], cut: Cut, budget: Budget) -> int:
    """Return what the view takes in a request after the cut, with what stands for the rest."""
    kept = shown_tokens([messages[index] for index in cut.kept], budget)
    made = budget.summary_tokens + budget.anchor_tokens
    return kept + (made if _claims(messages, cut) else 0)


def _claims(messages: list[Message], cut: Cut) -> bool:
    return any(not is_summary(messages[index]) for index in cut.covered)


def _keep_users(
    messages: list[Message], users: list[int], user_tokens: int, ranks: UserRanks
) -> set[int]:
    """Return the user rows that stay verbatim, in their order, none that is said again."""
    kept: set[int] = set()
    shown: set[str] = set()
    for index in sorted(users, key=ranks.__getitem__):
        if ranks[index][0] >= Rank.REPEATED:
            break
        heading = heading_above(text_of(messages[index].get("content")))
        tokens = row_tokens(messages[index])
        if heading in shown:
            tokens -= estimate_text(heading)
        if tokens <= user_tokens:
            kept.add(index)
            shown.add(heading)
            user_tokens -= tokens
    return kept


def _complete(messages: list[Message], kept: set[int]) -> Cut:
    everything = range(len(messages))
    return Cut(
        tuple(index for index in everything if index in kept),
        tuple(index for index in everything if index not in kept),
    )


def is_summary(message: Message) -> bool:
    """Return whether a pass made this row to stand for everything before it."""
    return message.get("_kind") in _SUMMARY_KINDS
