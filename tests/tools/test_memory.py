from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from agent.base.errors import ToolError
from agent.tools.memory import LIMIT_BYTES, MEMORY
from agent.tools.protocol import ToolContext


@pytest.fixture
def memory(context: ToolContext, tmp_path: Path) -> ToolContext:
    return replace(context, memory_path=tmp_path / "notes" / "memory.md")


def _path(context: ToolContext) -> Path:
    assert context.memory_path is not None
    return context.memory_path


def _fails(context: ToolContext, **arguments: str) -> str:
    with pytest.raises(ToolError) as raised:
        MEMORY.run(arguments, context)
    return str(raised.value)


def test_lines_are_added_replaced_and_removed(memory: ToolContext) -> None:
    def text_after(**arguments: str) -> str:
        MEMORY.run(arguments, memory)
        return _path(memory).read_text()

    assert text_after(action="add", line=" likes tea ") == "likes tea\n"
    assert text_after(action="add", line="port 5432") == "likes tea\nport 5432\n"
    assert text_after(action="add", line="likes tea") == "likes tea\nport 5432\n"
    assert text_after(action="replace", old="5432", line="port 5433") == "likes tea\nport 5433\n"
    assert text_after(action="remove", old="likes tea") == "port 5433\n"
    assert text_after(action="remove", old="port") == ""


def test_the_answer_says_how_full_the_file_is(memory: ToolContext) -> None:
    assert MEMORY.run({"action": "add", "line": "é"}, memory) == (
        "memory has 1 lines, 3 of 32768 bytes; new sessions begin with it"
    )


def test_what_a_person_wrote_there_stays_as_it_is(memory: ToolContext) -> None:
    _path(memory).parent.mkdir()
    _path(memory).write_text("# Mine\n\n- a\u2028b\n  - c", newline="")
    MEMORY.run({"action": "add", "line": "d"}, memory)
    assert _path(memory).read_text() == "# Mine\n\n- a\u2028b\n  - c\nd\n"


def test_a_file_that_is_a_link_stays_one(memory: ToolContext, tmp_path: Path) -> None:
    _path(memory).parent.mkdir()
    (tmp_path / "dotfiles.md").write_text("a\n")
    _path(memory).symlink_to("../dotfiles.md")
    MEMORY.run({"action": "add", "line": "b"}, memory)
    assert _path(memory).is_symlink()
    assert (tmp_path / "dotfiles.md").read_text() == "a\nb\n"


def test_a_full_memory_takes_no_more_but_lets_lines_go(memory: ToolContext) -> None:
    _path(memory).parent.mkdir()
    _path(memory).write_text("x" * LIMIT_BYTES + "\nshort\n")
    assert _fails(memory, action="add", line="y") == (
        "memory would have 32777 bytes; the limit is 32768: shorten or remove a line first"
    )
    MEMORY.run({"action": "replace", "old": "short", "line": "s"}, memory)
    assert _path(memory).read_text() == "x" * LIMIT_BYTES + "\ns\n"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"action": "add"}, "line '' is not one line of text"),
        ({"action": "add", "line": "a\nb"}, r"line 'a\nb' is not one line of text"),
        ({"action": "remove"}, "remove needs old, the line or a part of it"),
        ({"action": "remove", "old": "z"}, "old 'z' is in 0 lines of memory; give the whole line"),
        ({"action": "remove", "old": "a"}, "old 'a' is in 2 lines of memory; give the whole line"),
        ({"action": "replace", "old": "ab", "line": ""}, "line '' is not one line of text"),
    ],
)
def test_a_change_that_cannot_be_made_changes_nothing(
    memory: ToolContext, arguments: dict[str, str], message: str
) -> None:
    _path(memory).parent.mkdir()
    _path(memory).write_text("ab\nac\n")
    assert _fails(memory, **arguments) == message
    assert _path(memory).read_text() == "ab\nac\n"


def test_a_session_without_memory_says_so(context: ToolContext) -> None:
    assert _fails(context, action="add", line="x") == (
        "this session keeps no memory file; nothing was kept"
    )


def test_a_change_is_described_for_people() -> None:
    assert [
        MEMORY.describe({"action": "add", "line": "x"}),
        MEMORY.describe({"action": "remove", "old": "y"}),
    ] == ["add memory: x", "remove memory: y"]
