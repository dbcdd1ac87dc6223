"""A terminal in memory: keys go in through a pipe, what is drawn is kept and can be waited for."""

from __future__ import annotations

import io
import re
import threading
from collections.abc import Callable, Iterator
from functools import partial

import pytest
from prompt_toolkit.data_structures import Size
from prompt_toolkit.input import PipeInput, create_pipe_input
from prompt_toolkit.output.vt100 import Vt100_Output

from agent.base.settings import Settings
from agent.providers.protocol import Provider
from agent.testing.scripted import ScriptedProvider
from agent.tui.chat import Chat, Screen, find_pass
from agent.tui.interactive import Terminal
from hermes_state import SessionDB
from run_agent import AIAgent

_PIECE = re.compile(r"\x1b\[([0-9;?]*)([a-zA-Z])|\x1b\][^\x07]*\x07|(.)", re.DOTALL)
WAIT_S = 10.0


def squeezed(text: str) -> str:
    """Return a text without its blanks."""
    return "".join(text.split())


class Sheet:
    """What a terminal that never scrolls shows, read row by row: a redraw sends only those
    characters of a row that have changed."""

    def __init__(self) -> None:
        self._rows: list[list[str]] = [[]]
        self._row = self._column = 0

    def draw(self, text: str) -> list[str]:
        """Take what is sent to a terminal; return each row in which something was drawn, whole."""
        drawn: set[int] = set()
        for piece in _PIECE.finditer(text):
            given, order, character = piece.groups()
            if order is not None:
                self._move(order, int(given) if given.isdecimal() else 1)
            elif character == "\r":
                self._column = 0
            elif character == "\n":
                self._row += 1
            elif character is not None:
                self._put(character)
                drawn.add(self._row)
            self._rows += [[] for _ in range(len(self._rows), self._row + 1)]
        return ["".join(self._rows[row]) for row in sorted(drawn) if row < len(self._rows)]

    def _move(self, order: str, count: int) -> None:
        row = self._rows[self._row]
        if order in "AB":
            self._row = max(0, self._row + (count if order == "B" else -count))
        elif order in "CD":
            self._column = max(0, self._column + (count if order == "C" else -count))
        elif order in "JK":
            del row[self._column :]
            if order == "J":
                del self._rows[self._row + 1 :]

    def _put(self, character: str) -> None:
        row = self._rows[self._row]
        row += [" "] * (self._column + 1 - len(row))
        row[self._column] = character
        self._column += 1


class Paper(io.StringIO):
    """Keeps what is written; `wait_for` blocks until a text was drawn after the last one found."""

    def __init__(self) -> None:
        super().__init__()
        self._changed = threading.Condition()
        self._sheet = Sheet()
        self._drawn = ""
        self._seen = 0

    def write(self, text: str) -> int:
        with self._changed:
            count = super().write(text)
            self._drawn += squeezed("".join(self._sheet.draw(text)))
            self._changed.notify_all()
        return count

    def wait_for(self, text: str) -> None:
        """Raises: TimeoutError with what was drawn instead."""
        wanted = squeezed(text)

        def found() -> bool:
            at = self._drawn.find(wanted, self._seen)
            if at >= 0:
                self._seen = at + len(wanted)
            return at >= 0

        with self._changed:
            if not self._changed.wait_for(found, WAIT_S):
                raise TimeoutError(f"{text!r} was not drawn; {self._drawn[-2000:]!r}")


class Desk:
    """A person at an interactive session. Leaving the test ends the session."""

    def __init__(
        self, keys: PipeInput, paper: Paper, size: Size, open_agent: OpenScripted, store: SessionDB
    ) -> None:
        self.paper = paper
        self.store = store
        self.codes: list[int] = []
        self._keys = keys
        output = Vt100_Output(paper, lambda: size, term="xterm", enable_cpr=False)
        screen = Terminal(partial(find_pass, store), keys, output)
        self.chat = Chat(open_agent, screen, store)
        self.chat.switch(None)
        self._thread = threading.Thread(
            target=lambda: self.codes.append(screen.run(self.chat)), name="desk"
        )
        self._thread.start()

    def type(self, text: str) -> None:
        """Press keys."""
        self._keys.send_text(text)

    def send(self, text: str) -> None:
        """Type a line and press Enter."""
        self.type(f"{text}\r")

    def see(self, *texts: str) -> None:
        """Wait until each text is drawn, in this order."""
        for text in texts:
            self.paper.wait_for(text)

    def leave(self, keys: str = "\x04") -> int:
        """Press keys that leave (Ctrl-D) and return the exit code."""
        self.type(keys)
        self._thread.join(WAIT_S)
        return self.codes[0]

    def users(self) -> list[str]:
        """Return the stored user messages, in order."""
        rows = self.store.history(self.chat.agent.session_id)
        return [row.message["content"] for row in rows if row.message["role"] == "user"]

    def end(self) -> None:
        """End the session whatever state it is in."""
        while self._thread.is_alive():
            self.type("\x03")
            self._thread.join(0.05)


class OpenScripted:
    """Makes agents on one scripted provider."""

    def __init__(self, provider: Provider, settings: Settings, store: SessionDB) -> None:
        self.provider = provider
        self.settings = settings
        self._store = store

    def __call__(self, session_id: str | None, screen: Screen) -> AIAgent:
        return AIAgent(
            settings=self.settings,
            provider=self.provider,
            session_db=self._store,
            session_id=session_id,
            on_event=screen.event,
            confirm=screen.confirm,
            skip_context_files=True,
            skip_memory=True,
        )


Seat = Callable[..., Desk]


@pytest.fixture
def sit(store: SessionDB) -> Iterator[Seat]:
    """Open an interactive session on a scripted provider: `sit(provider, columns=70)`."""
    desks: list[Desk] = []
    with create_pipe_input() as keys:

        def start(
            provider: ScriptedProvider,
            *,
            settings: Settings | None = None,
            columns: int = 70,
            rows: int = 24,
        ) -> Desk:
            opener = OpenScripted(provider, settings or Settings(), store)
            desk = Desk(keys, Paper(), Size(rows=rows, columns=columns), opener, store)
            desks.append(desk)
            return desk

        yield start
        for desk in desks:
            desk.end()
