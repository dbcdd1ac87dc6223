"""Importing and constructing stay light: standard library and orjson, no surface, no file."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

CONSTRUCT = """
import sys
before = set(sys.modules)
from run_agent import AIAgent
agent = AIAgent(api_key="k", base_url="http://127.0.0.1:9/v1", model="m")
for name in sorted(set(sys.modules) - before):
    print(name)
agent.close()
"""
SLOW = {"asyncio", "email", "http", "multiprocessing", "ssl", "unittest", "urllib.request", "xml"}


def test_an_agent_is_made_without_surfaces_third_parties_or_files(tmp_path: Path) -> None:
    folder = tmp_path / "empty"
    folder.mkdir()
    run = subprocess.run(
        [sys.executable, "-W", "error", "-c", CONSTRUCT],
        env={"HERMES_HOME": str(folder / "home")},
        cwd=folder,
        capture_output=True,
        text=True,
        check=True,
    )
    names = set(run.stdout.split())
    own = {"agent", "run_agent", "hermes_state"}
    foreign = {name.partition(".")[0] for name in names} - sys.stdlib_module_names - own
    parts = {part for name in names if (part := name.partition("agent.")[2].partition(".")[0])}
    assert foreign == {"orjson"}
    assert parts.isdisjoint({"cli", "tui", "server", "gateway", "testing", "settings"})
    assert names.isdisjoint(SLOW)
    assert (list(folder.iterdir()), run.stderr) == ([], "")
