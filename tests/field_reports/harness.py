"""An agent against the stub server, with a summary model of its own, and what tests read of it."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any

from agent.base.events import CompactionFinished, Event, Notice, ignore_event
from agent.base.messages import Message, text_of, wire_message
from agent.base.settings import (
    AuxiliaryCompressionSettings,
    AuxiliarySettings,
    CompressionSettings,
    ModelSettings,
    Settings,
    ToolSettings,
)
from agent.sessions.records import PassRecord, PassStatus
from agent.testing.builders import assistant, user
from agent.testing.stub_reply import RecordedRequest
from agent.testing.stub_server import DEFAULT_MODEL, StubModelServer
from agent.testing.summaries import GOOD_SUMMARY
from hermes_state import SessionDB
from run_agent import AIAgent

SUMMARISER = "stub-summary"
SUMMARY_OPENING = "[Summary of the earlier conversation."
SUMMARY = GOOD_SUMMARY

_WORDS = (
    "the river carried a stone past an old mill while seven boats lay at a pier and the wind "
    "turned over pages of some paper that a clerk had left on a bench beside two loaves of bread "
    "under an apple tree where grey birds sat and sang about rain in spring or snow in winter"
).split()
"""Plain narration: nothing in it asks for anything."""


def settings_for(
    endpoint: str,
    *,
    window_tokens: int,
    output_tokens: int = 0,
    compression: CompressionSettings | None = None,
    background: bool = False,
    **summary_model: Any,
) -> Settings:
    """Return settings of the stub's two models; `summary_model` fields win over the defaults.

    Passes run where a turn waits for them, unless `background` lets them be prepared before.
    """
    auxiliary = AuxiliaryCompressionSettings(**{"model": SUMMARISER, **summary_model})
    return Settings(
        model=ModelSettings(
            name=DEFAULT_MODEL,
            base_url=endpoint,
            api_key="stub-key",
            context_length=window_tokens,
            max_output_tokens=output_tokens,
        ),
        compression=replace(compression or CompressionSettings(), background=background),
        auxiliary=AuxiliarySettings(auxiliary),
        tools=ToolSettings(approval="off"),
    )


class Bench:
    """One session: its agent, the events it sent, and what is compared before and after."""

    def __init__(
        self,
        stub: StubModelServer,
        store: SessionDB,
        settings: Settings,
        *,
        session_id: str = "s",
        **options: Any,
    ) -> None:
        self.stub = stub
        self.store = store
        self.session_id = session_id
        self.events: list[Event] = []
        self.listener: Callable[[Event], None] = ignore_event
        options = {"builtin_tools": False, "skip_memory": True} | options
        self.agent = AIAgent(
            session_db=store,
            session_id=session_id,
            settings=settings,
            skip_context_files=True,
            on_event=self._hear,
            **options,
        )
        store.create_session(session_id, "test")

    def _hear(self, event: Event) -> None:
        self.events.append(event)
        self.listener(event)

    @property
    def compressor(self) -> Any:
        """The engine, to set by hand what a test fixes."""
        return self.agent.context_compressor

    # -- what the store holds ---------------------------------------------------------------
    def fill(self, messages: Iterable[Message]) -> list[Message]:
        """Accept messages without any turn."""
        return self.store.append(self.session_id, list(messages))

    def fill_to(self, tokens: int, *, each: int = 150) -> None:
        """Accept small talk until the view is estimated to take `tokens`."""
        number = 0
        while self.store.view(self.session_id).tokens < tokens:
            number += 1
            self.fill(small_talk(2, tokens=each, topic=f"talk {tokens} {number}"))

    @property
    def rows(self) -> list[Message]:
        """Every accepted message as it can be read back."""
        head = self.store.head(self.session_id)
        accepted = self.store.accepted_rows(self.session_id, 1, head.watermark)
        return [wire_message(row) for row in accepted]

    @property
    def view(self) -> list[Message]:
        """The live view, with our own keys."""
        return self.store.view(self.session_id).messages

    @property
    def state(self) -> dict[str, Any]:
        """Everything that a pass without a commit must leave as it is."""
        return {
            "rows": self.rows,
            "view": self.view,
            "head": self.store.head(self.session_id),
            "sessions": [record.id for record in self.store.sessions()],
            "holder": self.store.get_compression_lock_holder(self.session_id),
        }

    @property
    def cooldown(self) -> dict[str, Any] | None:
        return self.store.get_compression_failure_cooldown(self.session_id)

    @property
    def passes(self) -> list[PassRecord]:
        """Attempts that began, oldest first."""
        unstarted = (PassStatus.SKIPPED, PassStatus.BLOCKED)
        return [row for row in self.store.passes(self.session_id) if row.status not in unstarted]

    @property
    def committed(self) -> list[PassRecord]:
        return [row for row in self.passes if row.status is PassStatus.COMMITTED]

    # -- what was sent ----------------------------------------------------------------------
    @property
    def main_requests(self) -> list[RecordedRequest]:
        return self.stub.requests_for(DEFAULT_MODEL)

    @property
    def summary_requests(self) -> list[RecordedRequest]:
        return self.stub.requests_for(SUMMARISER)

    @property
    def refusals(self) -> list[str]:
        """What strict mode said about requests that it refused."""
        return [request.refusal for request in self.stub.requests if request.refusal]

    # -- what was told ----------------------------------------------------------------------
    @property
    def notices(self) -> list[str]:
        return [event.text for event in self.events if isinstance(event, Notice)]

    @property
    def endings(self) -> list[tuple[str, str]]:
        """Status and failure class of each pass as the events told them."""
        told = [event for event in self.events if isinstance(event, CompactionFinished)]
        return [(event.status, event.failure_class) for event in told]


def texts(messages: Iterable[Message]) -> list[str]:
    """Return the text of each message."""
    return [text_of(message.get("content")) for message in messages]


def body_text(request: RecordedRequest) -> str:
    """Return all text of a request."""
    return "\n".join(texts(request.messages))


def words(tokens: int, topic: str = "part") -> str:
    """Return prose of about `tokens` by the strict counter; another topic gives other sentences."""
    chance = random.Random(topic)
    sentences = [f"About the {topic}."]
    chars = len(sentences[0])
    while chars < tokens * 4:
        sentences.append(" ".join(chance.choices(_WORDS, k=12)).capitalize() + ".")
        chars += len(sentences[-1]) + 1
    return " ".join(sentences)


def small_talk(turns: int, *, tokens: int = 100, topic: str = "part") -> list[Message]:
    """Return `turns` requests with answers of about `tokens` each."""
    messages = []
    for number in range(1, turns + 1):
        messages.append(user(f"request {number}: " + words(tokens, f"{topic} {number}")))
        messages.append(assistant(f"answer {number}: " + words(tokens, f"result {number}")))
    return messages


def roles(messages: Sequence[Message]) -> list[str]:
    """Return the roles in order."""
    return [str(message["role"]) for message in messages]
