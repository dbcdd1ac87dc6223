from __future__ import annotations

import time
from dataclasses import replace
from typing import Any

import pytest

from agent.base.errors import ToolError
from agent.base.settings import ToolSettings
from agent.tools.protocol import ToolContext
from agent.tools.scan import matches_glob
from agent.tools.search import SEARCH_FILES

FILES = {
    "a.py": "import os\nvalue = 1\n",
    "src/b.py": "value = 2\r\n",
    "src/deep/c.txt": "no\nthe Value is 3",
    "node_modules/d.py": "value = 4\n",
    ".git/e.py": "value = 5\n",
    "src/.venv/f.py": "value = 6\n",
    "bin": "value\0",
}


@pytest.fixture
def tree(context: ToolContext) -> ToolContext:
    for name, text in FILES.items():
        path = context.cwd / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text.encode())
    (context.cwd / "link.py").symlink_to("../secret.py")
    (context.cwd.parent / "secret.py").write_text("value = 'secret'\n")
    return context


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ({"pattern": r"value = \d"}, ["a.py:2: value = 1", "src/b.py:1: value = 2"]),
        ({"pattern": "(?i)value", "path": "src"},
         ["src/b.py:1: value = 2", "src/deep/c.txt:2: the Value is 3"]),
        ({"pattern": "value", "glob": "src/**/*.py"}, ["src/b.py:1: value = 2"]),
        ({"pattern": "value", "path": "a.py"}, ["a.py:2: value = 1"]),
        ({"pattern": "value", "path": "src/.venv"}, ["src/.venv/f.py:1: value = 6"]),
        ({"glob": "*.py"}, ["a.py", "src/b.py"]),
        ({"glob": "./src/*"}, ["src/b.py"]),
        ({"path": "src/deep"}, ["src/deep/c.txt"]),
        ({"pattern": "", "glob": ""}, ["a.py", "bin", "src/b.py", "src/deep/c.txt"]),
        ({"pattern": "nowhere"}, ["no line matches 'nowhere' in '.' (*)"]),
        ({"glob": "*.rs", "path": "src"}, ["no file in 'src' (*.rs)"]),
        ({"glob": "*.py", "limit": 1},
         ["a.py", "[stopped at 1 results; narrow the search or raise limit]"]),
        ({"pattern": "e", "limit": 2},
         ["a.py:2: value = 1", "src/b.py:1: value = 2",
          "[stopped at 2 results; narrow the search or raise limit]"]),
    ],
)  # fmt: skip
def test_a_search_gives_paths_or_lines_in_order(
    tree: ToolContext, arguments: dict[str, Any], expected: list[str]
) -> None:
    assert SEARCH_FILES.run(arguments, tree).split("\n") == expected


def test_a_path_outside_is_shown_whole(tree: ToolContext) -> None:
    found = SEARCH_FILES.run({"pattern": "secret", "path": ".."}, tree)
    assert found == f"{tree.cwd.parent}/secret.py:1: value = 'secret'"


def test_a_long_line_is_shown_around_the_match(context: ToolContext) -> None:
    (context.cwd / "a").write_text("x" * 5_000 + "needle" + "y" * 5_000)
    found = SEARCH_FILES.run({"pattern": "needle"}, context)
    assert found == f"a:1: …{'x' * 100}needle{'y' * 194}…"


def test_names_that_are_no_utf8_do_no_harm(context: ToolContext) -> None:
    (context.cwd / "x\udce9.txt").write_text("value")
    assert SEARCH_FILES.run({"pattern": "value"}, context) == "x\udce9.txt:1: value"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"pattern": "("}, "pattern '(' is not a regular expression: "),
        ({"path": "no"}, "no folder or file 'no' to search in"),
    ],
)
def test_a_search_that_cannot_be_made_says_why(
    context: ToolContext, arguments: dict[str, Any], message: str
) -> None:
    with pytest.raises(ToolError) as raised:
        SEARCH_FILES.run(arguments, context)
    assert str(raised.value).startswith(message)


def test_a_pattern_that_would_run_for_ever_is_ended(context: ToolContext) -> None:
    """A regular expression holds the interpreter while it matches: only a child can be ended."""
    (context.cwd / "a").write_text("a" * 60 + "b")
    context = replace(context, settings=ToolSettings(timeout_seconds=0.2))
    started = time.monotonic()
    with pytest.raises(ToolError) as raised:
        SEARCH_FILES.run({"pattern": "(a+)+$"}, context)
    assert str(raised.value) == (
        "search timed out in one file; use a simpler pattern than '(a+)+$'"
    )
    assert time.monotonic() - started < 10


@pytest.mark.parametrize(
    ("path", "glob", "matches"),
    [
        ("a.py", "*.py", True),
        ("x/a.py", "*.py", True),
        ("x/a.py", "x/*.py", True),
        ("x/y/a.py", "x/*.py", False),
        ("x/y/a.py", "x/**/*.py", True),
        ("x/a.py", "x/**/*.py", True),
        ("a.py", "**/*.py", True),
        ("x/y/z", "x/**", True),
        ("y/z", "x/**", False),
        ("x", "x/*", False),
        ("a[1].py", "a[[]1].py", True),
        ("A.py", "a.py", False),
    ],
)
def test_globs_match_as_in_a_shell(path: str, glob: str, matches: bool) -> None:
    assert matches_glob(path, glob) is matches
