"""A long tool-using conversation with facts in it, and an upstream that plays its other side."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

from agent.base.messages import Message, text_of
from agent.testing.builders import call
from agent.testing.stub_reply import RecordedRequest, Reply
from agent.testing.summaries import GOOD_SUMMARY
from agent.testing.transcripts import transcript


def is_summary(request: RecordedRequest) -> bool:
    """Return whether a request is one of ours, for a summary: a client has a name of its own."""
    return request.headers.get("user-agent") == "hermes-continuum"


def facts_of(count: int) -> list[str]:
    """Return facts that are told one by one."""
    return [f"The seal of vault {n} is ZX-{n * 7919 % 10_007:05d}-{n:03d}." for n in range(count)]


def told(seed: int, messages: int) -> tuple[list[Message], list[str]]:
    """Return a transcript that ends with an answer, with a fact in each message of the user, and
    those facts."""
    rows = transcript(seed, messages=messages)
    while rows[-1]["role"] != "assistant" or rows[-1].get("tool_calls"):
        rows.pop()
    users = [row for row in rows if row["role"] == "user"]
    facts = facts_of(len(users))
    for row, fact in zip(users, facts, strict=True):
        row["content"] = f"{row['content']}\n{fact}"
    return rows, facts


def dense(turns: int, *, calls: int = 3, lines: int = 20) -> tuple[list[Message], list[str]]:
    """Return turns of a request, parallel calls, their results of `lines` lines and an answer, and
    the facts in them: one that the user tells and one that a tool does in each turn."""
    facts = facts_of(2 * turns)
    rows: list[Message] = []
    for turn in range(turns):
        ids = [f"call_{turn}_{place}" for place in range(calls)]
        asked = [call("read_file", {"path": f"src/{one}.py"}, call_id=one) for one in ids]
        results = [_page(turn * calls + place, lines) for place in range(calls)]
        results[1] += f"\n{facts[2 * turn + 1]}"
        rows += [
            {"role": "user", "content": f"Look into matter {turn}. {facts[2 * turn]}"},
            {"role": "assistant", "content": None, "tool_calls": asked},
            *(
                {"role": "tool", "tool_call_id": one, "content": text}
                for one, text in zip(ids, results, strict=True)
            ),
            {"role": "assistant", "content": f"Matter {turn} is settled; the files were read."},
        ]
    return rows, facts


def _page(number: int, lines: int) -> str:
    return "\n".join(
        f"{line:>3}  value_{number}_{line} = load({number * 31 + line})" for line in range(lines)
    )


class OtherSide:
    """Answers a client with the assistant's messages of a transcript, and summaries as such."""

    def __init__(self, rows: list[Message]) -> None:
        self._answers: Iterator[Message] = (row for row in rows if row["role"] == "assistant")
        self._lock = threading.Lock()
        self.summaries = 0

    def __call__(self, request: RecordedRequest) -> Reply:
        with self._lock:
            if is_summary(request):
                self.summaries += 1
                return Reply(text=GOOD_SUMMARY)
            answer = next(self._answers)
        return Reply(text=answer["content"], tool_calls=answer.get("tool_calls", ()))


def bodies_of_client(requests: list[RecordedRequest]) -> list[dict[str, Any]]:
    """Return the bodies of the client's requests that reached the upstream."""
    return [request.body for request in requests if not is_summary(request)]


def text_in(body: dict[str, Any]) -> str:
    """Return all that a request says."""
    return "\n".join(text_of(message.get("content")) for message in body["messages"])
