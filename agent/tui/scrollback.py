"""Text that scrolls away above the running screen, printed in order whichever thread sends it."""

from __future__ import annotations

import contextlib
import contextvars
import threading

from prompt_toolkit.application import Application
from prompt_toolkit.application.run_in_terminal import in_terminal
from prompt_toolkit.formatted_text import StyleAndTextTuples
from prompt_toolkit.output import ColorDepth, Output
from prompt_toolkit.renderer import print_formatted_text

from agent.tui.layout import STYLE


class Scrollback:
    """Collects text and prints it while the screen steps aside.

    Concurrency: `put` from any thread; `started` and `flush` from the screen's own.
    """

    def __init__(self, output: Output) -> None:
        self._output = output
        self._waiting: list[StyleAndTextTuples] = []
        self._lock = threading.Lock()
        self._app: Application[int] | None = None
        self._context = contextvars.copy_context()

    def started(self, app: Application[int]) -> None:
        """Take note that the screen runs; called in its context."""
        self._context = contextvars.copy_context()
        self._app = app
        self.flush()

    def put(self, text: StyleAndTextTuples) -> None:
        """Print `text` soon; without a running screen at the next `flush`."""
        with self._lock:
            self._waiting.append(text)
        loop = self._app.loop if self._app is not None else None
        if loop is not None:
            with contextlib.suppress(RuntimeError):
                loop.call_soon_threadsafe(self._schedule, context=self._context)

    def flush(self) -> None:
        """Print everything that waits, now."""
        with self._lock:
            waiting, self._waiting = self._waiting, []
        depth = ColorDepth.from_env() or self._output.get_default_color_depth()
        for text in waiting:
            print_formatted_text(self._output, [*text, ("", "\n")], STYLE, color_depth=depth)
        self._output.flush()

    def _schedule(self) -> None:
        if self._app is not None and self._app.is_running:
            self._app.create_background_task(self._drain())

    async def _drain(self) -> None:
        if self._waiting:
            async with in_terminal():
                self.flush()
