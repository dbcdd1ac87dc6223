"""`hermes demo`: a long conversation at a small window, so that one sees compactions happen.

The answers of the transcript are replayed; summaries and the last answer come from the embedded
model. Everything lies in a temporary store; no key and no network are needed.
"""

from __future__ import annotations

import hashlib
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import orjson
import typer

from agent.base.events import CompactionStarted, Event, TextDelta, TurnFinished
from agent.base.messages import Message
from agent.base.record import dataclass
from agent.base.settings import CompressionSettings, LocalSettings, Settings
from agent.cli.options import command_app
from agent.cli.output import print_lines, terminal_width
from agent.cli.replay import Replay, Script
from agent.providers.local import LocalModel, require_embedded
from agent.providers.protocol import Provider
from agent.sessions.records import PassRecord
from agent.tui import figures
from agent.tui.changes import undo_lines
from agent.tui.chat import Chat, Screen, find_pass
from agent.tui.lines import LineScreen, run_job
from agent.tui.render import Line, meter_text, passes_table, row_lines
from hermes_state import SessionDB
from run_agent import AIAgent

app = command_app()

SETTINGS = Settings(
    local=LocalSettings(context_length=4_096),
    compression=CompressionSettings(threshold=0.50, target_ratio=0.30, background=False),
)
"""The smallest window, compacted early and far down: short texts for a small model to read."""

MODEL_LIMIT_S = 30.0
"""Time that the model gets for one text, so that the demo is short on a busy machine too."""

ASK_AFTER_PASSES = 2
SOUGHT = "90 grams"
LIVE_QUESTION = "Thank you! In one sentence: why is a greenhouse good for a library?"
_TRANSCRIPT = Path(__file__).with_name("demo_transcript.jsonl")


class DemoScreen(LineScreen):
    """Shows the answer only of turns that the model answers; everything goes to one stream."""

    replaying = True
    pass_begins: Callable[[str], None] = staticmethod(lambda pass_id: None)
    """Called with the id of each pass before it changes anything."""

    def print_event(self, event: Event) -> None:
        """Write what one event says."""
        if isinstance(event, CompactionStarted):
            self.pass_begins(event.pass_id)
        if not (self.replaying and isinstance(event, TextDelta | TurnFinished)):
            super().print_event(event)


@app.command(epilog="Example: hermes demo")
def demo() -> None:
    """Watch a long conversation being compacted, read back what went, and undo it."""
    require_embedded(SETTINGS.local)
    raise typer.Exit(play(LocalModel(SETTINGS.local)))


def play(real: Provider) -> int:
    """Play the demo on a model and return the exit code."""
    started = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="hermes-demo-") as folder:
        store = SessionDB(db_path=Path(folder) / "state.db")
        screen = DemoScreen(
            sys.stdout,
            sys.stdout,
            partial(find_pass, store),
            live=sys.stdout.isatty(),
        )
        tale = read_tale()
        script = Script(summaries=tale.summaries, live_answer=tale.live_answer)
        replay = Replay(real, script, MODEL_LIMIT_S, lambda text: screen.show([Line(text)]))
        chat = Chat(partial(_open_agent, replay, store), screen, store)
        try:
            chat.switch(None)
            code = Demo(chat, screen, script, tale).run()
        finally:
            chat.close()
            store.close()
    print_lines([Line(f"\ndone in {figures.duration(time.monotonic() - started)}")])
    return code


def _open_agent(
    replay: Replay, store: SessionDB, session_id: str | None, screen: Screen
) -> AIAgent:
    return AIAgent(
        settings=SETTINGS,
        session_db=store,
        session_id=session_id,
        provider=replay,
        on_event=screen.event,
        skip_context_files=True,
        skip_memory=True,
        platform="demo",
    )


@dataclass(frozen=True)
class Tale:
    """The bundled conversation, and the texts that stand in for what a model does not finish."""

    pairs: list[tuple[str, str]]
    summaries: list[str]
    live_answer: str


def read_tale() -> Tale:
    """Return what the file beside this module holds."""
    texts: dict[str, list[str]] = {}
    for line in _TRANSCRIPT.read_bytes().splitlines():
        row = orjson.loads(line)
        texts.setdefault(row["role"], []).append(row["content"])
    pairs = list(zip(texts["user"], texts["assistant"], strict=True))
    return Tale(pairs, texts["summary"], texts["live_answer"][0])


class Demo:
    """The acts of the demo, in order."""

    def __init__(self, chat: Chat, screen: DemoScreen, script: Script, tale: Tale) -> None:
        self._chat = chat
        self._screen = screen
        self._script = script
        self._tale = tale
        self._width = terminal_width() or 80
        self._model_answered = False
        self._before: dict[str, list[Message]] = {}
        screen.pass_begins = self._remember_view

    def run(self) -> int:
        """Play all acts and return the exit code."""
        window = figures.count(SETTINGS.local.context_length)
        self._say(
            f"A talk of {len(self._tale.pairs)} requests about a greenhouse, in a window of",
            f"{window} tokens. Its answers are replayed from a file. Summaries, and one answer,",
            f"come from the embedded model ({self._chat.agent.provider.model}). It is small: what",
            "it writes as a summary is checked, and when it is no use a digest made without a",
            "model takes its place.",
        )
        for number, (request, answer) in enumerate(self._tale.pairs, 1):
            self._play(number, request, answer)
        if not self._model_answered:
            self._ask_model()
        self._read_back()
        self._say("", "Every attempt is in the ledger (hermes compactions list):")
        print_lines(passes_table(self._passes(), self._width))
        self._undo()
        return self._screen.exit_code

    def _play(self, number: int, request: str, answer: str) -> None:
        """Run one turn with its stored answer, and show the meter after it."""
        self._say("", self._fit(f"{number:2}  you> {request}"))
        self._script.answer = answer
        self._turn(request)
        self._say(self._fit(f"    replayed> {answer}"))
        meter = self._chat.agent.context()
        self._say(f"    context {meter_text(meter.total, meter.usable, self._width - 12)}")
        if not self._model_answered and len(self._passes()) >= ASK_AFTER_PASSES:
            self._ask_model()

    def _ask_model(self) -> None:
        self._model_answered = True
        self._say("", "Now the model itself answers:", f"    you> {LIVE_QUESTION}")
        self._screen.replaying = False
        self._turn(LIVE_QUESTION)
        self._screen.replaying = True

    def _turn(self, request: str) -> None:
        run_job(self._chat, self._screen, partial(self._chat.say, request))

    def _passes(self) -> list[PassRecord]:
        return self._chat.store.passes(self._chat.agent.session_id)

    def _read_back(self) -> None:
        """Find something that was summarised away, and compare it with what was accepted."""
        session_id = self._chat.agent.session_id
        self._say(
            "",
            f"Something that was said early: hermes recall SESSION '{SOUGHT}'",
            "(it reads the archive; nobody pretends that the model remembered)",
        )
        accepted = [text for pair in self._tale.pairs for text in pair]
        for hit in self._chat.store.search(SOUGHT, session_id=session_id, limit=1):
            print_lines(row_lines(hit.message, f"now {hit.state.value}"))
            self._say(comparison(str(hit.message["content"]), accepted))

    def _undo(self) -> None:
        """Undo the newest pass, and compare the view with what it was before that pass."""
        self._say("", "And any of them can be undone (hermes compactions undo SESSION):")
        result = self._chat.agent.undo_compaction()
        print_lines(undo_lines(result))
        before = self._before[result.ledger[-1].target_pass or ""]
        rows = self._view()
        self._say(*view_comparison(before, rows[: len(before)], len(rows) - len(before)))

    def _remember_view(self, pass_id: str) -> None:
        self._before[pass_id] = self._view()

    def _view(self) -> list[Message]:
        return self._chat.store.view(self._chat.agent.session_id).messages

    def _say(self, *texts: str) -> None:
        print_lines([Line(text) for text in texts])
        sys.stdout.flush()

    def _fit(self, text: str) -> str:
        return figures.clip(text, self._width)


def view_comparison(before: list[Message], now: list[Message], later: int) -> tuple[str, str]:
    """Return rows and digest of a view before a pass and after its undo, and the verdict."""
    digests = [_digest(orjson.dumps(view)) for view in (before, now)]
    verdict = "yes" if digests[0] == digests[1] else "NO"
    counted = [figures.counted(len(view), "row") for view in (before, now)]
    came = f"{later} more came later; the view is back: {verdict}"
    return (
        f"before the pass: {counted[0]} (sha256 {digests[0][:16]}…)",
        f"after the undo:  {counted[1]} (sha256 {digests[1][:16]}…), {came}",
    )


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def comparison(recalled: str, accepted: list[str]) -> str:
    """Return whether a recalled text is, byte for byte, one that was accepted."""
    digest = _digest(recalled.encode())
    same = digest in {_digest(text.encode()) for text in accepted}
    verdict = "yes" if same else "NO"
    return f"byte for byte what was accepted: {verdict} (sha256 {digest[:16]}…)"
