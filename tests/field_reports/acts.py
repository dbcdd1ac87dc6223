"""Every way to change a view, as something to do to a store that holds what it needs.

`ACTS` maps a name to an act: what the store holds before, and what is done. Used by tests that stop
an act half way, and by the processes that they kill.
"""

from __future__ import annotations

import io
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from agent.base.errors import StoreError
from agent.base.messages import Message
from agent.base.settings import CompressionSettings
from agent.compaction.host import AttemptRequest
from agent.conversation_compression import run_attempt
from agent.sessions.records import NewRow, PassKind
from agent.testing.builders import assistant, call, result, user
from hermes_state import SessionDB
from run_agent import AIAgent
from tests.field_reports.harness import SUMMARY, settings_for, small_talk, words
from tests.sessions.steps import run_pass

WINDOW = 8_000
FULL = 5_500
SHORT = "no"
"""A summary that is refused, so that a digest stands in."""

NOTE = "The first part was read and told in full; nothing of it is open."


@dataclass(frozen=True)
class Act:
    """`fill` makes the store of an agent ready, `run` is what is stopped half way and done again.

    `session` is the one that the agent works on; the one that is looked at is `s`.
    """

    run: Callable[[AIAgent], object]
    fill: Callable[[AIAgent], object]
    summary: str = SUMMARY
    compression: CompressionSettings = field(default_factory=CompressionSettings)
    session: str = "s"


def open_agent(act: Act, base_url: str, store: SessionDB) -> AIAgent:
    """Return an agent that has loaded its session."""
    agent = AIAgent(
        session_db=store,
        session_id=act.session,
        settings=settings_for(
            base_url,
            window_tokens=WINDOW,
            compression=act.compression,
            background=act.compression.background,
        ),
        builtin_tools=False,
        skip_memory=True,
        skip_context_files=True,
    )
    agent.context()
    if act.compression.micro_compact:
        agent.context_compressor.tail_token_budget = 0
    return agent


def run_or_fail(act: Act, agent: AIAgent) -> StoreError | None:
    """Do an act; return the store's error when it fails."""
    try:
        act.run(agent)
    except StoreError as error:
        return error
    return None


def in_one_line(error: StoreError | None) -> bool:
    """Return whether an error, if there is one, is a line for people with the store's exit code."""
    return error is None or (error.exit_code == 5 and "\n" not in str(error))


# -- what a store holds before ------------------------------------------------------------------


def fill_with_talk(agent: AIAgent) -> None:
    number = 0
    while agent.store.view("s").tokens < FULL:
        number += 1
        agent.store.append("s", small_talk(2, tokens=150, topic=f"talk {number}"))


def fill_with_results(agent: AIAgent) -> None:
    rows: list[Message] = [user("look at every part")]
    for number in range(18):
        looked = call("look", {"part": number}, call_id=f"c{number}")
        rows += [assistant(None, looked), result(looked, words(280, f"part {number}"))]
    agent.store.append("s", [*rows, assistant("seen"), user("go on then"), assistant("yes")])


def fill_with_passes(agent: AIAgent) -> None:
    """Leave two passes, the second on the first."""
    for _ in range(2):
        fill_with_talk(agent)
        assert agent.compress().status == "committed"


# -- what is done -------------------------------------------------------------------------------


def condense(agent: AIAgent) -> None:
    run_attempt(agent, [], AttemptRequest(trigger="between_turns", micro=True))


def prepare_and_commit(agent: AIAgent) -> None:
    """Prepare a pass beside the conversation, and commit it as a turn does when it begins.

    A small request in between lets one that failed be prepared again.
    """
    agent.background.consider(0)
    agent.background.consider(agent.trigger_tokens)
    job = agent.background._job
    if job is not None:
        job.thread.join()
    agent.background.commit(agent._new_turn(1))


def undo_the_first(agent: AIAgent) -> None:
    agent.undo_compaction(agent.store.passes("s")[0].id)


def rewind_across(agent: AIAgent) -> None:
    """Take back what begins in the middle of what a pass covers."""
    agent.store.rewind("s", 6)


@cache
def exported_conversation() -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        store = SessionDB(db_path=Path(folder) / "origin.db")
        store.create_session("s", "test")
        rows = store.append("s", small_talk(12, tokens=60))
        run_pass(
            store,
            "s",
            cover=tuple(row["_row_id"] for row in rows[:8]),
            new_row=NewRow(user(SUMMARY), PassKind.SUMMARY),
        )
        store.rewind("s", 22)
        out = io.BytesIO()
        store.export_session("s", out)
        store.close()
    return out.getvalue()


def take_in(agent: AIAgent) -> None:
    agent.store.import_session(io.BytesIO(exported_conversation()))


def leave_alone(_agent: AIAgent) -> None:
    """Leave the store as it is."""


ACTS = {
    "summary": Act(AIAgent.compress, fill_with_talk),
    "mask": Act(AIAgent.compress, fill_with_results),
    "mechanical": Act(AIAgent.compress, fill_with_talk, summary=SHORT),
    "micro": Act(
        condense,
        fill_with_talk,
        summary=NOTE,
        compression=CompressionSettings(micro_compact=True),
    ),
    "rotation": Act(
        AIAgent.compress, fill_with_talk, compression=CompressionSettings(in_place=False)
    ),
    "background": Act(
        prepare_and_commit, fill_with_talk, compression=CompressionSettings(background=True)
    ),
    "undo": Act(undo_the_first, fill_with_passes),
    "rewind": Act(rewind_across, fill_with_passes),
    "import": Act(take_in, leave_alone, session="other"),
}
