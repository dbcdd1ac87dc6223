"""Which extracts still matter: tasks of the newest list, questions that nobody answered, calls
that failed or got no result. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from agent.base.extract_tasks import FINISHED
from agent.base.messages import Message, is_user_text
from agent.sessions.records import StoredExtract

MOST_UNFINISHED = 8
"""Newest calls without success that are told of."""
UNFINISHED = "unfinished"
"""Kind of an extract that is made here of a call and its outcome."""
_ENDS = frozenset({"call", "outcome"})


def open_extracts(
    inputs: Sequence[Message], extracts: Sequence[StoredExtract]
) -> list[StoredExtract]:
    """Return the extracts without finished and replaced tasks and without answered questions.

    A later task list replaces an earlier one; what the user says next answers what was asked.
    Calls and outcomes give way to what they left unfinished.
    """
    newest_list = max((each.seq for each in extracts if each.kind == "task"), default=0)
    answered = max((row.get("_seq", 0) for row in inputs if is_user_text(row)), default=0)

    def is_open(each: StoredExtract) -> bool:
        if each.kind in _ENDS:
            return False
        if each.kind == "task":
            return each.seq == newest_list and each.subject not in FINISHED
        return each.kind != "question" or each.seq > answered

    unfinished = list(_unfinished(extracts))[:MOST_UNFINISHED]
    found = [*(each for each in extracts if is_open(each)), *unfinished]
    return sorted(found, key=lambda each: -each.seq) if unfinished else found


def _unfinished(extracts: Sequence[StoredExtract]) -> Iterator[StoredExtract]:
    """Yield calls that failed or got no result, newest first, until one for the same succeeds."""
    outcomes: dict[str, StoredExtract] = {}
    settled: set[str] = set()
    for each in extracts:
        if each.kind == "outcome":
            outcomes[each.subject] = each
        elif each.kind == "call":
            outcome = outcomes.pop(each.subject, None)
            if each.value in settled:
                continue
            settled.add(each.value)
            if outcome is None or outcome.value:
                told = f"{each.value} ({outcome.value if outcome else 'no result'})"
                yield (outcome or each)._replace(kind=UNFINISHED, subject="", value=told)
