"""The commands on pins."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from agent.base.errors import UsageError
from agent.base.settings import Settings
from agent.testing.builders import user
from agent.testing.scripted import ScriptedProvider
from agent.tui import slash
from agent.tui.chat import Chat
from hermes_state import SessionDB
from tests.tui.conftest import OpenScripted
from tests.tui.test_chat import Ear


@pytest.fixture
def command(store: SessionDB) -> Iterator[Callable[[str], list[str]]]:
    """Run a command in a conversation with one rule and return what it shows."""
    ear = Ear()
    chat = Chat(OpenScripted(ScriptedProvider(), Settings(), store), ear, store)
    chat.switch(None)
    store.create_session(chat.agent.session_id, "test")
    store.append(chat.agent.session_id, [user("Never push to main.")])

    def run(text: str) -> list[str]:
        del ear.said[:]
        assert slash.run(chat, text)
        return list(ear.said)

    yield run
    chat.close()


def test_pins_are_set_listed_and_taken_off(command: Callable[[str], list[str]]) -> None:
    [told] = command("/pin Answer in metric units.")
    number = told.split()[2].rstrip(":")
    assert told == f"set pin {number}: Answer in metric units."
    listed = "\n".join(command("/pins"))
    assert "by hand" in listed
    assert "message #1" in listed
    assert command(f"/unpin {number}") == [f"took off pin {number}: Answer in metric units."]
    assert "by hand" not in "\n".join(command("/pins"))


def test_without_pins_the_commands_that_make_some_are_named(
    command: Callable[[str], list[str]],
) -> None:
    [_heading, row] = command("/pins")
    command(f"/unpin {row.split()[0]}")
    assert command("/pins") == ["no pins: /pin TEXT sets one, rules in your messages become one"]


@pytest.mark.parametrize(
    ("text", "needed"),
    [("/pin", "needs the instruction"), ("/unpin", "needs the number"), ("/unpin x", "not 'x'")],
)
def test_what_a_command_needs_is_said(
    command: Callable[[str], list[str]], text: str, needed: str
) -> None:
    with pytest.raises(UsageError, match=needed):
        command(text)
