"""The wheel carries all that runs, and runs without the repository beside it."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
DATA = {".md", ".jsonl", ".typed", ".txt"}
pytestmark = pytest.mark.timeout(120)  # pip builds in an interpreter of its own


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    options = ["--no-deps", "--no-build-isolation", "--disable-pip-version-check", "-q"]
    command = [sys.executable, "-m", "pip", "wheel", *options, "-w", str(folder), str(ROOT)]
    subprocess.run(command, check=True)
    return next(folder.glob("*.whl"))


def test_the_wheel_holds_every_module_and_its_data_and_nothing_else(wheel: Path) -> None:
    names = {name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name}
    sources = [path for path in (ROOT / "agent").rglob("*") if path.suffix in {".py", *DATA}]
    expected = {str(path.relative_to(ROOT)) for path in sources}
    assert names == expected | {"run_agent.py", "hermes_state.py"}
    assert "agent/py.typed" in names
    assert any(name.startswith("agent/compaction/prompts/") for name in names)


def test_the_unpacked_wheel_runs_away_from_the_repository(wheel: Path, tmp_path: Path) -> None:
    zipfile.ZipFile(wheel).extractall(tmp_path / "installed")
    packages = [path for path in sys.path if path.endswith("site-packages")]
    code = (
        "import agent, sys\n"
        "assert agent.__path__[0].startswith(sys.argv.pop(1)), agent.__path__\n"
        "from agent.cli.app import main\n"
        "main()\n"
    )
    run = subprocess.run(
        [sys.executable, "-S", "-c", code, str(tmp_path / "installed"), "--version"],
        cwd=tmp_path,
        env={
            **os.environ,
            "PYTHONPATH": os.pathsep.join([str(tmp_path / "installed"), *packages]),
        },
        capture_output=True,
        text=True,
        check=False,
    )
    assert (run.returncode, run.stderr) == (0, "")
    assert run.stdout.startswith("hermes ")
