"""Which extracts still matter: tasks of the newest list, questions that nobody answered. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from agent.base.extract_tasks import FINISHED
from agent.base.messages import Message, is_user_text
from agent.sessions.records import StoredExtract


def open_extracts(
    inputs: Sequence[Message], extracts: Sequence[StoredExtract]
) -> list[StoredExtract]:
    """Return the extracts without finished and replaced tasks and without answered questions.

    A later task list replaces an earlier one; what the user says next answers what was asked.
    """
    newest_list = max((each.seq for each in extracts if each.kind == "task"), default=0)
    answered = max((row.get("_seq", 0) for row in inputs if is_user_text(row)), default=0)

    def is_open(each: StoredExtract) -> bool:
        if each.kind == "task":
            return each.seq == newest_list and each.subject not in FINISHED
        return each.kind != "question" or each.seq > answered

    return [each for each in extracts if is_open(each)]
