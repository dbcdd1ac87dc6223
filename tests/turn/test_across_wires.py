"""One conversation goes on across wires, models and restarts, and no strict server refuses it."""

from __future__ import annotations

import itertools
import tempfile
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from agent.base.errors import UndoRefused
from agent.base.messages import Message
from agent.base.record import dataclass
from agent.base.settings import (
    AuxiliaryCompressionSettings,
    AuxiliarySettings,
    CompressionSettings,
    LocalSettings,
    ModelSettings,
    RouteSettings,
    Settings,
)
from agent.testing.builders import assistant, call, image, result, user
from agent.testing.stub_reply import RecordedRequest, Reply
from agent.testing.stub_server import StubModelServer
from agent.testing.summaries import GOOD_SUMMARY
from hermes_state import SessionDB
from run_agent import AIAgent, TurnResult
from tests.providers.wires import WIRES

WINDOW = 12_000
SECRET = "the harbour code is 7791-KESTREL"
MODES = [case.mode for case in WIRES.values()]
LINES = "a line of the file that is read\n"


class Talk:
    """A conversation whose every step is done by an agent of its own, as after a restart.

    The model reads the file again and again, one to three times at once, and reasons.
    """

    def __init__(self, stub: StubModelServer, store: SessionDB, folder: Path) -> None:
        self.stub = stub
        self.store = store
        self.folder = folder
        self.is_down: set[str] = set()
        self.passes = 0
        self._numbers = itertools.count()
        (folder / "a.txt").write_text(LINES * 60)
        stub.script(self._answer, window_tokens=WINDOW)

    def _answer(self, request: RecordedRequest) -> Reply:
        if request.model in self.is_down:
            return Reply(status=401, error="no such key")
        if b"<material>" in request.raw:
            return Reply(text=GOOD_SUMMARY)
        number = next(self._numbers)
        calls = [
            call("read_file", {"path": "a.txt"}, call_id=f"c{number}" if place else "again")
            for place in range(number % 4)
        ]
        return Reply(
            text=f"answer {number}" if number % 2 or not calls else None,
            reasoning=f"why {number}",
            reasoning_key="reasoning_details",
            tool_calls=calls,
        )

    @contextmanager
    def agent(self, mode: str, **given: Any) -> Iterator[AIAgent]:
        keywords = {
            "base_url": self.stub.base_url,
            "model": "m0",
            "api_mode": mode,
            "context_length": WINDOW,
            "session_db": self.store,
            "session_id": "s",
            "cwd": self.folder,
            "skip_memory": True,
            **given,
        }
        agent = AIAgent(**keywords)
        try:
            yield agent
        finally:
            agent.close()

    def say(self, agent: AIAgent, text: str) -> TurnResult:
        turn = agent.run_conversation(text)
        assert turn.stop_reason == "stop"
        self.passes += len(turn.passes)
        return turn

    def append(self, *rows: Message) -> None:
        self.store.append("s", rows)

    def require_whole(self) -> None:
        """Require that nothing was refused, that the secret is still said and the store sound.

        What a compaction of the provider's says of it only the provider knows.
        """
        assert [request.refusal for request in self.stub.requests if request.refusal] == []
        last = self.stub.requests[-1].raw.decode()
        assert SECRET in last or '{"type":"compaction"' in last
        assert self.store.check().problems == []


@dataclass(frozen=True)
class Step:
    """What happens next: which wire and model speak, and what comes before they do."""

    mode: str
    model: str = "m0"
    before: str = "nothing"
    is_native: bool = False
    thinks: bool = False
    """Whether the Anthropic wire asks for thinking."""
    else_to: str = ""
    """The wire that answers since the model is down; empty when it is not."""


BEFORE = ("nothing", "image", "cut off", "late", "compact", "undo", "switch")
STEPS = st.builds(
    Step,
    mode=st.sampled_from(MODES),
    model=st.sampled_from(["m0", "m1"]),
    before=st.sampled_from(BEFORE),
    is_native=st.booleans(),
    thinks=st.booleans(),
    else_to=st.sampled_from(["", "", *MODES]),
)


def settings_of(step: Step) -> Settings:
    return Settings(
        model=ModelSettings(
            thinking_tokens=1_024 if step.thinks else 0,
            max_output_tokens=2_048 if step.thinks else 0,
            fallbacks=(RouteSettings("m9", api_mode=step.else_to, context_length=WINDOW),)
            if step.else_to
            else (),
        ),
        compression=CompressionSettings(
            background=False,
            codex_responses_native=step.is_native,
            codex_responses_compact_threshold=5_000,
            anthropic_context_editing="all" if step.is_native else "off",
        ),
    )


def prepare(talk: Talk, agent: AIAgent, step: Step) -> None:
    """Do what comes before a step's own message."""
    made = [call("read_file", {"path": "a.txt"}, call_id=name) for name in ("again", "x|y z")]
    if step.before == "image":
        shown = [{"type": "text", "text": "found"}, image()]
        seen: list[Any] = ["look", image(), image("https://host/a.png")]
        rows = [user(seen), assistant(None, *made)]
        talk.append(*rows, result(made[0], "one"), {**result(made[1], ""), "content": shown})
    elif step.before == "cut off":
        talk.append(user("begin"), assistant("I look.", *made), result(made[1], LINES * 60))
    elif step.before == "late":
        agent.submit("one more thing")
    elif step.before == "compact":
        agent.compress()
    elif step.before == "switch":
        agent.switch_model("m1" if step.model == "m0" else "m0")
    elif step.before == "undo":
        ledger = talk.store.passes("s")
        done = [record.id for record in ledger if record.status == "committed"]
        with suppress(UndoRefused):
            agent.undo_compaction(done[-1] if done else None)


@pytest.mark.timeout(600)
@settings(max_examples=max(3, settings().max_examples // 30))
@given(st.lists(STEPS, min_size=3, max_size=6))
@example([Step(MODES[n % 2], before=name, is_native=True) for n, name in enumerate(BEFORE)])
@example([Step(MODES[2], before=before, is_native=True, thinks=True) for before in BEFORE])
@example([Step(mode, before="image", else_to=MODES[n - 1]) for n, mode in enumerate(MODES)])
@example([Step(MODES[0], is_native=True, else_to=mode) for mode in (*MODES[1:], *MODES)])
def test_any_sequence_of_wires_models_and_passes_is_carried_on(steps: list[Step]) -> None:
    with (
        tempfile.TemporaryDirectory() as folder,
        StubModelServer() as stub,
        closing(SessionDB(Path(folder) / "state.db")) as store,
    ):
        talk = Talk(stub, store, Path(folder))
        with talk.agent("chat_completions") as agent:
            talk.say(agent, f"Remember: {SECRET}.")
        for number, step in enumerate(steps):
            with talk.agent(step.mode, model=step.model, settings=settings_of(step)) as agent:
                prepare(talk, agent, step)
                talk.is_down = {"m0", "m1"} if step.else_to else set()
                talk.say(agent, f"go on with step {number}")
                talk.is_down = set()
            talk.require_whole()


def test_every_wire_carries_on_what_another_began(
    stub: StubModelServer, store: SessionDB, tmp_path: Path
) -> None:
    talk = Talk(stub, store, tmp_path)
    for turn in range(14):
        with talk.agent(MODES[turn % len(MODES)], model=f"m{turn % 2}") as agent:
            talk.say(agent, f"go on with step {turn}" if turn else f"Remember: {SECRET}.")
    talk.require_whole()
    assert talk.passes


@pytest.mark.parametrize("mode", MODES)
def test_a_switch_after_which_nothing_was_said_is_taken_up_by_the_next_process(
    stub: StubModelServer, store: SessionDB, tmp_path: Path, mode: str
) -> None:
    talk = Talk(stub, store, tmp_path)
    with talk.agent(mode) as agent:
        talk.say(agent, f"Remember: {SECRET}.")
        agent.switch_model("m1")
    with talk.agent(mode, model="m1") as agent:
        talk.say(agent, "go on")
    talk.require_whole()


@pytest.mark.embedded
@pytest.mark.timeout(120)
def test_the_embedded_model_carries_on_what_the_wires_began_and_they_after_it(
    stub: StubModelServer, store: SessionDB, tmp_path: Path
) -> None:
    talk = Talk(stub, store, tmp_path)
    summaries = AuxiliaryCompressionSettings(model="m0", base_url=stub.base_url)
    embedded = Settings(
        model=ModelSettings(api_mode="local", max_output_tokens=16),
        local=LocalSettings(context_length=4_096),
        auxiliary=AuxiliarySettings(compression=summaries),
        compression=CompressionSettings(background=False),
    )
    for turn, mode in enumerate((*MODES, "local", MODES[1])):
        given = {"base_url": "", "model": "", "context_length": 0, "settings": embedded}
        with talk.agent(mode, **(given if mode == "local" else {})) as agent:
            prepare(talk, agent, Step(mode, before="image" if turn else "nothing"))
            said = f"go on with step {turn}" if turn else f"Remember: {SECRET}."
            stopped = agent.run_conversation(said).stop_reason
            assert stopped in (("stop", "length") if mode == "local" else ("stop",))
    talk.require_whole()
    models = [row.get("_model") for row in store.view("s").messages]
    assert "SmolLM2-135M-Instruct" in models
