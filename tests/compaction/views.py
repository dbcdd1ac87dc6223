"""Views for the tests of compaction: stored messages, and strategies that make them."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from agent.base.messages import Message, call_ids
from agent.base.tokens import estimate_message
from agent.compaction.attempt import AttemptContext, SummaryClient
from agent.compaction.budget import Budget, budget_for
from agent.compaction.fence import CompressionCommitFence
from agent.testing.builders import assistant, call, result, user


def stored(messages: list[Message], *, first_seq: int = 1) -> list[Message]:
    """Return the messages as a store hands them out: numbered, counted, with `_ref`."""
    return [
        {
            **message,
            "_row_id": 1_000 + number,
            "_seq": first_seq + number,
            "_tokens": message.get("_tokens") or estimate_message(message),
            "_ref": number,
        }
        for number, message in enumerate(messages)
    ]


def summary_row(text: str = "## Done\nEarlier work.", kind: str = "summary") -> Message:
    return {"role": "user", "content": text, "_kind": kind}


def attempt(
    client: SummaryClient | None, budget: Budget | None = None, **fields: Any
) -> AttemptContext:
    fence = fields.pop("fence", None) or CompressionCommitFence()
    return AttemptContext("p1", fence, budget or budget_for(16_000, 2_000, 500), client, **fields)


def call_sides(messages: list[Message], kept: set[int]) -> list[tuple[set[bool], str]]:
    """Return for each call that has a result whether its rows are kept: one side if whole."""
    caller: dict[str, int] = {}
    sides: list[tuple[set[bool], str]] = []
    for index, message in enumerate(messages):
        caller.update(dict.fromkeys(call_ids(message), index))
        call_id = str(message.get("tool_call_id", ""))
        if message["role"] == "tool" and call_id in caller:
            sides.append(({caller[call_id] in kept, index in kept}, call_id))
    return sides


_texts = st.sampled_from(["ok", "yes", "please fix port 5433", "why?", "word " * 40, "long " * 900])


@st.composite
def views(draw: st.DrawFn, max_turns: int = 7) -> list[Message]:
    """Draw stored views: tool rounds, reused call ids, late users, lost results, summaries."""
    rows: list[Message] = []
    for _ in range(draw(st.integers(0, max_turns))):
        rows.append(draw(st.sampled_from([user(draw(_texts)), user("   "), summary_row()])))
        for _ in range(draw(st.integers(0, 3))):
            names = draw(st.lists(st.sampled_from(["c1", "c2", "c3"]), min_size=1, unique=True))
            rows.append(
                assistant(None, *(call("read_file", {"path": n}, call_id=n) for n in names))
            )
            answers = [result(name, draw(_texts)) for name in names]
            if draw(st.booleans()):
                answers.insert(draw(st.integers(0, len(answers))), user(draw(_texts)))
            rows.extend(answers[: draw(st.integers(0, len(answers)))])
        if draw(st.booleans()):
            rows.append(assistant(draw(_texts)))
    return stored(rows)
