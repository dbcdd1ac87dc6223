from __future__ import annotations

import os
import re
import stat
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.base.cancel import CancelToken
from agent.base.errors import ToolError
from agent.base.settings import ToolSettings
from agent.tools.files import PATCH_FILE, READ_FILE, WRITE_FILE
from agent.tools.protocol import Tool, ToolContext


def _fails(tool: Tool, context: ToolContext, **arguments: object) -> str:
    with pytest.raises(ToolError) as raised:
        tool.run(arguments, context)
    return str(raised.value)


# -- read_file ------------------------------------------------------------------------------
def test_lines_come_with_their_numbers(context: ToolContext) -> None:
    (context.cwd / "a.txt").write_bytes("eins\r\n\nzwei \u2028 drei\nend".encode())
    assert READ_FILE.run({"path": "a.txt"}, context) == (
        "     1\teins\n     2\t\n     3\tzwei \u2028 drei\n     4\tend"
    )


def test_a_result_names_the_call_that_reads_on(context: ToolContext) -> None:
    (context.cwd / "a.txt").write_text("".join(f"line {n}\n" for n in range(1, 8)))
    read = READ_FILE.run({"path": "a.txt", "offset": 3, "limit": 2}, context)
    assert read == (
        "     3\tline 3\n     4\tline 4\n[more lines follow: read_file(path='a.txt', offset=5)]"
    )
    rest = READ_FILE.run({"path": "a.txt", "offset": 5, "limit": 3}, context)
    assert rest == "     5\tline 5\n     6\tline 6\n     7\tline 7"


def test_a_large_file_is_read_in_results_that_stay_small(context: ToolContext) -> None:
    lines = [f"{n} {'x' * 90}" for n in range(5_000)]
    (context.cwd / "log").write_text("\n".join(lines))
    seen: list[str] = []
    offset, calls = 1, 0
    while offset:
        result = READ_FILE.run({"path": "log", "offset": offset}, context)
        assert len(result) < 64 * 1024
        shown = result.split("\n")
        more = re.fullmatch(r"\[more .*offset=(\d+)\)\]", shown[-1])
        offset = int(more[1]) if more else 0
        seen += [line.split("\t", 1)[1] for line in (shown[:-1] if more else shown)]
        calls += 1
    assert (seen, calls) == (lines, 9)


def test_a_very_long_line_is_cut_and_says_so(context: ToolContext) -> None:
    (context.cwd / "min.js").write_text("x" * 10_000 + "\r\nnext\n")
    assert READ_FILE.run({"path": "min.js"}, context) == (
        f"     1\t{'x' * 4_000} [6000 more characters in this line]\n     2\tnext"
    )


def test_bytes_that_are_no_utf8_are_shown_replaced(context: ToolContext) -> None:
    (context.cwd / "latin").write_bytes(b"x\xe9\n")
    assert READ_FILE.run({"path": "latin"}, context) == "     1\tx\ufffd"


def test_what_cannot_be_read_says_why(context: ToolContext) -> None:
    (context.cwd / "bin").write_bytes(b"\x7fELF\0\0")
    (context.cwd / "empty").touch()
    (context.cwd / "two").write_text("1\n2\n")
    os.mkfifo(context.cwd / "pipe")
    assert _fails(READ_FILE, context, path="bin") == "'bin' is a binary file of 6 bytes, not text"
    assert _fails(READ_FILE, context, path="no") == "no file 'no'; find it with search_files"
    assert _fails(READ_FILE, context, path=".") == (
        "'.' is a folder; list it with search_files(path='.')"
    )
    assert _fails(READ_FILE, context, path="pipe") == (
        "'pipe' is a device, pipe or socket, not a file"
    )
    assert _fails(READ_FILE, context, path="two", offset=3) == (
        "'two' has fewer than 3 lines; read it from offset=1"
    )
    assert READ_FILE.run({"path": "empty"}, context) == "['empty' is empty]"


# -- write_file -----------------------------------------------------------------------------
def test_a_new_file_is_written_with_its_folders(context: ToolContext) -> None:
    assert WRITE_FILE.run({"path": "a/b/c.txt", "content": "ü\n"}, context) == (
        "made a/b/c.txt: 3 bytes"
    )
    assert (context.cwd / "a/b/c.txt").read_bytes() == "ü\n".encode()


def test_a_file_that_is_replaced_keeps_its_mode_and_its_link(context: ToolContext) -> None:
    target = context.cwd / "run.sh"
    target.write_text("old")
    target.chmod(0o751)
    (context.cwd / "link").symlink_to("run.sh")
    assert WRITE_FILE.run({"path": "link", "content": "new!"}, context) == (
        "replaced run.sh (3 bytes before): 4 bytes"
    )
    assert target.read_text() == "new!"
    assert stat.S_IMODE(target.stat().st_mode) == 0o751
    assert (context.cwd / "link").is_symlink()
    assert sorted(path.name for path in context.cwd.iterdir()) == ["link", "run.sh"]


def test_a_write_that_fails_leaves_the_old_file_and_nothing_else(context: ToolContext) -> None:
    (context.cwd / "a").write_text("old")
    with pytest.raises(UnicodeEncodeError):
        WRITE_FILE.run({"path": "a", "content": "\ud800"}, context)
    assert _fails(WRITE_FILE, context, path=".", content="x") == (
        "'.' is not a regular file; choose another path"
    )
    assert [(path.name, path.read_text()) for path in context.cwd.iterdir()] == [("a", "old")]


# -- patch_file -----------------------------------------------------------------------------
def test_a_patch_replaces_one_place_and_shows_the_difference(context: ToolContext) -> None:
    path = context.cwd / "a.py"
    path.write_text("".join(f"line {n}\n" for n in range(1, 13)))
    path.chmod(0o600)
    result = PATCH_FILE.run({"path": "a.py", "old": "line 6\n", "new": "six\nmore\n"}, context)
    assert result == (
        "patched a.py\n@@ -3,8 +3,9 @@\n line 3\n line 4\n line 5\n-line 6\n+six\n+more\n"
        " line 7\n line 8\n line 9\n line 10"
    )
    assert path.read_text() == (
        "".join(f"line {n}\n" for n in range(1, 6))
        + "six\nmore\n"
        + "".join(f"line {n}\n" for n in range(7, 13))
    )
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_a_patch_that_is_not_unique_says_how_often_and_where(context: ToolContext) -> None:
    (context.cwd / "a").write_text("x = 1\ny\n  x = 1\naaa\n")
    assert _fails(PATCH_FILE, context, path="a", old="x = 1", new="2") == (
        "old was found 2 times in 'a' (lines 1, 3); add lines around it until it is unique"
    )
    assert _fails(PATCH_FILE, context, path="a", old="aa", new="b") == (
        "old was found 2 times in 'a' (lines 4, 4); add lines around it until it is unique"
    )
    assert _fails(PATCH_FILE, context, path="a", old="z", new="b") == (
        "old was found 0 times in 'a'; read the file again and copy the text exactly, "
        "white space too"
    )
    assert _fails(PATCH_FILE, context, path="a", old="\tx = 1\n\ty", new="b") == (
        "old was found 0 times in 'a'; its first line stands at line 1, but not all of it as given"
    )
    assert (context.cwd / "a").read_text() == "x = 1\ny\n  x = 1\naaa\n"


def test_a_patch_that_cannot_be_made_says_why(context: ToolContext) -> None:
    (context.cwd / "a").write_text("x")
    (context.cwd / "latin").write_bytes(b"x\xe9")
    assert _fails(PATCH_FILE, context, path="a", old="", new="b") == (
        "old is empty; give the text to replace, or use write_file"
    )
    assert _fails(PATCH_FILE, context, path="a", old="x", new="x") == (
        "old and new are the same text; nothing to change"
    )
    assert _fails(PATCH_FILE, context, path="latin", old="x", new="b") == (
        "'latin' is not UTF-8 text (unexpected end of data at 1)"
    )
    assert (context.cwd / "latin").read_bytes() == b"x\xe9"


def test_line_ends_of_a_file_are_kept(context: ToolContext) -> None:
    path = context.cwd / "dos.txt"
    path.write_bytes(b"\xef\xbb\xbfone\r\ntwo\r\nthree\r\n")
    result = PATCH_FILE.run({"path": "dos.txt", "old": "one\ntwo", "new": "1\n2\n2b"}, context)
    assert path.read_bytes() == b"\xef\xbb\xbf1\r\n2\r\n2b\r\nthree\r\n"
    assert result == (
        "patched dos.txt\n@@ -1,4 +1,5 @@\n-\ufeffone\n-two\n+\ufeff1\n+2\n+2b\n three\n "
    )


def test_a_patch_of_many_lines_is_told_in_one(context: ToolContext) -> None:
    (context.cwd / "a").write_text("x\n")
    new = "".join(f"{n}\n" for n in range(500))
    assert PATCH_FILE.run({"path": "a", "old": "x\n", "new": new}, context) == (
        "patched a: 2 lines became 501 from line 1 on"
    )


@given(
    parts=st.tuples(*[st.text(st.sampled_from("ab \n\t.ü漢"), max_size=12)] * 3),
    new=st.text(st.sampled_from("ab \nü"), max_size=12),
)
def test_a_patch_changes_exactly_the_given_text(
    tmp_path_factory: pytest.TempPathFactory, parts: tuple[str, str, str], new: str
) -> None:
    before, old, after = parts
    path = tmp_path_factory.getbasetemp() / "patched"
    whole = before + old + after
    path.write_bytes(whole.encode())
    context = ToolContext(path.parent, ToolSettings(), CancelToken())
    unique = old != "" and old != new and whole.find(old) == whole.rfind(old)
    try:
        PATCH_FILE.run({"path": "patched", "old": old, "new": new}, context)
    except ToolError:
        assert not unique
        assert path.read_bytes() == whole.encode()
    else:
        assert unique
        assert path.read_bytes() == (before + new + after).encode()


def test_a_stopped_call_reads_no_further(context: ToolContext) -> None:
    (context.cwd / "a").write_text("x\n" * 10)
    context.cancel.cancel()
    assert _fails(READ_FILE, context, path="a", offset=5) == "stopped while reading"


@pytest.mark.parametrize(
    ("tool", "arguments", "described"),
    [
        (READ_FILE, {"path": "a"}, "read a"),
        (WRITE_FILE, {"path": "a", "content": "xy"}, "write 2 characters to a"),
        (PATCH_FILE, {"path": "a", "old": "x\n", "new": "y"}, r"in a replace 'x\n' by 'y'"),
    ],
    ids=["read", "write", "patch"],
)
def test_a_call_is_described_for_people(
    tool: Tool, arguments: dict[str, str], described: str
) -> None:
    assert (tool.describe(arguments), tool.paths(arguments)) == (described, ["a"])


def test_a_path_is_taken_relative_to_the_working_folder(
    context: ToolContext, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    (context.cwd / "a").write_text("here\n")
    assert READ_FILE.run({"path": "./b/../a"}, context) == "     1\there"
