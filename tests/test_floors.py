"""`scripts/floors.py` fed with trees that break one rule each."""

from __future__ import annotations

from pathlib import Path

import pytest

from scripts.floors import find_problems

GOOD = {
    "agent/__init__.py": "",
    "agent/base/__init__.py": "",
    "agent/base/errors.py": "import os\n",
    "agent/base/ids.py": "from agent.base.errors import os\n",
    "agent/sessions/rows.py": "from agent.base import ids\nimport agent.base.errors\n",
    "agent/providers/wire.py": "def send():\n    import httpx2\n    return httpx2\n",
    "agent/cli/app.py": "import run_agent\nfrom agent.tui.chat import x\n",
    "agent/tui/chat.py": "import run_agent\nx = 1\n",
    "hermes_state.py": "from agent.sessions import rows\n",
    "run_agent.py": "import hermes_state\n",
    "tests/test_it.py": "def test_it():\n    import agent.cli.app\n",
}
FUNCTION = "def big({parameters}):\n{body}"

BAD = {
    "upwards": (
        {"agent/base/errors.py": "import hermes_state\n"},
        ["agent/base/errors.py:1: imports 'hermes_state' upwards: floor 0 uses floor 2"],
    ),
    "upwards inside a guard for types": (
        {
            "agent/sessions/rows.py": "from typing import TYPE_CHECKING\n"
            "if TYPE_CHECKING:\n    from agent.tui.chat import x\n"
        },
        ["agent/sessions/rows.py:3: imports 'agent.tui.chat' upwards: floor 1 uses floor 9"],
    ),
    "sideways": (
        {"agent/sessions/rows.py": "from agent.providers import wire\n"},
        ["agent/sessions/rows.py:1: imports 'agent.providers.wire' sideways: floor 1 uses floor 1"],
    ),
    "a cycle in one folder": (
        {"agent/base/errors.py": "import agent.base.ids\n"},
        ["cycle: agent.base.errors -> agent.base.ids -> agent.base.errors"],
    ),
    "an unknown module": (
        {"agent/helpers/text.py": ""},
        ["agent/helpers/text.py:1: agent.helpers.text is on no floor; add it to scripts/floors.py"],
    ),
    "a longer name of a known module": (
        {"agent/basement.py": ""},
        ["agent/basement.py:1: agent.basement is on no floor; add it to scripts/floors.py"],
    ),
    "an import inside a function": (
        {"run_agent.py": "def f():\n    from agent.base import ids\n    import json\n"},
        [
            "run_agent.py:2: 'agent.base.ids' is imported inside a function; move it to the top",
            "run_agent.py:3: 'json' is imported inside a function; move it to the top",
        ],
    ),
    "a relative import": (
        {"agent/base/ids.py": "from .errors import os\n"},
        ["agent/base/ids.py:1: relative import of '.errors.os'; write the full name"],
    ),
    "an init that exports": (
        {"agent/base/__init__.py": "from agent.base.errors import os\n"},
        ["agent/base/__init__.py:1: must stay empty; import from the module that has the name"],
    ),
    "a long file": (
        {"tests/test_it.py": "x = 1\n" * 401},
        ["tests/test_it.py:1: 401 lines; at most 400"],
    ),
    "a long function": (
        {"run_agent.py": FUNCTION.format(parameters="", body="    x = 1\n" * 60)},
        ["run_agent.py:1: big has 61 lines; at most 60"],
    ),
    "many parameters": (
        {"run_agent.py": FUNCTION.format(parameters="a, b, c, /, d, *e, f, g, h, **i", body="  0")},
        ["run_agent.py:1: big has 9 parameters; at most 8"],
    ),
    "many parameters of a method": (
        {"run_agent.py": "class A:\n  async def m(self, a, b, c, d, e, f, g, h, i): 0\n"},
        ["run_agent.py:2: m has 9 parameters; at most 8"],
    ),
}


def _plant(root: Path, files: dict[str, str]) -> None:
    for name, source in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(source, "utf-8")


@pytest.mark.parametrize(("change", "problems"), BAD.values(), ids=BAD)
def test_each_broken_rule_is_named_with_its_place(
    tmp_path: Path, change: dict[str, str], problems: list[str]
) -> None:
    _plant(tmp_path, GOOD | change)
    assert find_problems(tmp_path) == problems


def test_a_tree_that_keeps_the_rules_has_no_problem(tmp_path: Path) -> None:
    at_the_limits = "class A:\n  def m(self, a, b, c, d, e, f, g, h):\n" + "    x = 1\n" * 59
    _plant(tmp_path, GOOD | {"agent/base/clock.py": at_the_limits + "y = 1\n" * 339})
    assert find_problems(tmp_path) == []
