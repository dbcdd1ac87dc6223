"""`.ci/run` with stand-ins for make and pytest: what it runs, and when it refuses."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PYTHON = """#!/bin/sh
for file; do :; done
echo "ran $(basename "$file")" >> {log}
exec grep -q passes "$file"
"""
MAKE = """#!/bin/sh
echo "make $1 marks=$HERMES_REQUIRE_MARKS" >> {log}
[ "$1" != "$FAILING_TARGET" ]
"""


class Clone:
    """A folder with our CI script, a seed folder and programs that write down what they do."""

    def __init__(self, folder: Path) -> None:
        self.root = folder / "clone"
        self.seeds = folder / "shared" / "seeds"
        self.log = folder / "log"
        (self.root / ".ci").mkdir(parents=True)
        self.seeds.mkdir(parents=True)
        shutil.copy(ROOT / ".ci" / "run", self.root / ".ci" / "run")
        self._program(self.root / ".venv" / "bin" / "python", PYTHON)
        self._program(folder / "bin" / "make", MAKE)
        self._program(folder / "bin" / "npm", "#!/bin/sh\n")
        self.path = f"{folder / 'bin'}:{os.environ['PATH']}"

    def _program(self, path: Path, text: str) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text.format(log=self.log), "utf-8")
        path.chmod(0o755)

    def run(
        self, seeds: dict[str, str], pending: str | None, **variables: str
    ) -> tuple[int, str, str]:
        for name, text in seeds.items():
            (self.seeds / name).write_text(text, "utf-8")
        if pending is not None:
            (self.root / ".ci" / "seeds-pending").write_text(pending, "utf-8")
        done = subprocess.run(
            ["bash", str(self.root / ".ci" / "run")],
            env={"PATH": self.path, **variables},
            cwd="/",
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )
        ran = self.log.read_text("utf-8") if self.log.exists() else ""
        return done.returncode, ran, done.stdout + done.stderr


@pytest.fixture
def clone(tmp_path: Path) -> Clone:
    return Clone(tmp_path)


MADE = "make oracles marks=1\nmake test marks=1\nmake soak marks=1\n"


def test_every_seed_file_is_run_and_pending_ones_may_fail(clone: Clone) -> None:
    seeds = {"test_a.py": "passes", "test_b.py": "fails", "test_c.py": "passes", "notes.md": ""}
    code, ran, said = clone.run(seeds, "test_b.py 3")
    assert (code, ran) == (0, MADE + "ran test_b.py\nran test_a.py\nran test_c.py\n")
    assert said == "pending, as it should be: test_b.py (issue 3)\n"


@pytest.mark.parametrize("pending", ["", None], ids=["an empty list", "no list"])
def test_without_pending_files_all_must_pass(clone: Clone, pending: str | None) -> None:
    code, ran, _said = clone.run({"test_a.py": "passes", "test_b.py": "fails"}, pending)
    assert (code, ran) == (1, MADE + "ran test_a.py\nran test_b.py\n")


def test_a_pending_file_that_passes_fails_the_run(clone: Clone) -> None:
    code, _ran, said = clone.run({"test_a.py": "passes"}, "test_a.py 2\n")
    assert code == 1
    assert said == (
        ".ci/run: 'test_a.py' passes; take its line out of .ci/seeds-pending (issue 2)\n"
    )


def test_a_pending_file_that_is_not_there_fails_the_run(clone: Clone) -> None:
    code, _ran, said = clone.run({"test_a.py": "passes"}, "test_z.py 2\n")
    assert code == 1
    assert "names 'test_z.py', which is not in" in said


@pytest.mark.parametrize(("target", "ran"), [("oracles", 1), ("test", 2), ("soak", 3)])
def test_a_failing_suite_ends_the_run(clone: Clone, target: str, ran: int) -> None:
    code, log, _said = clone.run({"test_a.py": "passes"}, "", FAILING_TARGET=target)
    assert (code, len(log.splitlines())) == (1, ran)


def test_a_missing_seed_folder_is_told_before_anything_runs(clone: Clone) -> None:
    code, ran, said = clone.run({}, "", HERMES_SEEDS="/nowhere")
    assert (code, ran) == (1, "")
    assert said == ".ci/run: no folder of seed files at '/nowhere'; set HERMES_SEEDS\n"
