"""The interactive screen's widgets and keys; what they show and do is given by callbacks."""

from __future__ import annotations

from collections.abc import Callable

from prompt_toolkit.application import Application
from prompt_toolkit.auto_suggest import AutoSuggest, Suggestion
from prompt_toolkit.buffer import Buffer
from prompt_toolkit.document import Document
from prompt_toolkit.filters import Condition
from prompt_toolkit.formatted_text import StyleAndTextTuples
from prompt_toolkit.history import InMemoryHistory
from prompt_toolkit.input import Input
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from prompt_toolkit.layout import (
    BufferControl,
    ConditionalContainer,
    Dimension,
    FormattedTextControl,
    HSplit,
    Layout,
    VSplit,
    Window,
)
from prompt_toolkit.layout.processors import AppendAutoSuggestion
from prompt_toolkit.output import ColorDepth, Output
from prompt_toolkit.styles import Style

from agent.base.record import dataclass

PROMPT = "› "
INPUT_LINES = 8
STYLE = Style.from_dict(
    {
        "dim": "ansibrightblack",
        "good": "ansigreen",
        "warn": "ansiyellow",
        "bad": "ansired",
        "prompt": "bold",
        "question": "ansiyellow bold",
        "auto-suggestion": "ansibrightblack",
        "toolbar": "reverse",
    }
)


@dataclass(frozen=True)
class Callbacks:
    """What the screen asks for and tells. All run on the screen's own thread."""

    accept: Callable[[str], None]
    interrupt: Callable[[], None]
    """Ctrl-C, unless it only cleared what was typed."""
    leave: Callable[[], None]
    """Ctrl-D on an empty line."""
    busy: Callable[[], bool]
    above: Callable[[], StyleAndTextTuples]
    """What stands above the input; empty hides it."""
    toolbar: Callable[[], str]


class CommandSuggest(AutoSuggest):
    """Completes the name of a command that begins with what is typed; Tab or → takes it."""

    def __init__(self, names: list[str]) -> None:
        self._names = names

    def get_suggestion(self, buffer: Buffer, document: Document) -> Suggestion | None:
        typed = document.text
        if len(typed) > 1 and typed.startswith("/"):
            for name in self._names:
                if name.startswith(typed[1:]) and name != typed[1:]:
                    return Suggestion(name[len(typed) - 1 :])
        return None


def build_application(
    callbacks: Callbacks, command_names: list[str], terminal: Input, output: Output
) -> Application[int]:
    """Return the screen, not yet running; its result is the exit code."""

    def accept(buffer: Buffer) -> bool:
        callbacks.accept(buffer.text)
        return False

    field = Buffer(
        accept_handler=accept,
        multiline=True,
        history=InMemoryHistory(),
        auto_suggest=CommandSuggest(command_names),
    )
    above = ConditionalContainer(
        Window(FormattedTextControl(callbacks.above), dont_extend_height=True),
        filter=Condition(lambda: bool(callbacks.above())),
    )
    prompt = Window(FormattedTextControl([("class:prompt", PROMPT)]), width=len(PROMPT))
    entry = Window(
        BufferControl(field, input_processors=[AppendAutoSuggestion()]),
        wrap_lines=True,
        dont_extend_height=True,
        height=Dimension(min=1, max=INPUT_LINES),
    )
    toolbar = Window(
        FormattedTextControl(callbacks.toolbar), height=1, style="class:toolbar", wrap_lines=False
    )
    return Application(
        layout=Layout(HSplit([above, VSplit([prompt, entry]), toolbar]), focused_element=entry),
        key_bindings=_keys(callbacks, field),
        style=STYLE,
        color_depth=ColorDepth.from_env(),
        erase_when_done=True,
        refresh_interval=0.5,
        min_redraw_interval=0.03,
        input=terminal,
        output=output,
    )


def _keys(callbacks: Callbacks, field: Buffer) -> KeyBindings:
    keys = KeyBindings()

    @keys.add("enter")
    def _(_event: KeyPressEvent) -> None:
        field.validate_and_handle()

    @keys.add("escape", "enter")
    def _(_event: KeyPressEvent) -> None:
        field.insert_text("\n")

    @keys.add("tab")
    def _(_event: KeyPressEvent) -> None:
        if field.suggestion:
            field.insert_text(field.suggestion.text)

    @keys.add("c-c")
    @keys.add("<sigint>")
    def _(_event: KeyPressEvent) -> None:
        if field.text and not callbacks.busy():
            field.reset()
        else:
            callbacks.interrupt()

    @keys.add("c-d", filter=Condition(lambda: not field.text))
    def _(_event: KeyPressEvent) -> None:
        callbacks.leave()

    return keys
