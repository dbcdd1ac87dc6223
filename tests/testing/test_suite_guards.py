"""The guards of `tests/conftest.py`, seen from a suite that breaks them."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SUITE = """
import os, socket, threading, urllib.request
from pathlib import Path
import pytest

def test_swallows_a_refused_connection():
    try:
        urllib.request.urlopen("http://example.org/")
    except OSError:
        pass

@pytest.fixture
def late():
    yield
    try:
        socket.create_connection(("192.0.2.1", 80))
    except OSError:
        pass

def test_connects_in_teardown(late):
    pass

def test_leaves_a_thread():
    threading.Thread(target=threading.Event().wait, name="forgotten", daemon=True).start()

def test_lets_a_thread_end_late():
    threading.Timer(0.05, lambda: None).start()

def test_has_a_home_of_its_own(tmp_path):
    assert Path.home() == tmp_path / "home"
    assert os.environ["HERMES_HOME"] == str(tmp_path / "home" / ".hermes")
    assert not {"OPENAI_API_KEY", "HTTPS_PROXY", "HERMES_MODEL"} & set(os.environ)
    assert os.environ["PATH"] == ""

@pytest.mark.node
def test_needs_node():
    raise AssertionError("never runs")

@pytest.mark.soak
def test_takes_long():
    raise AssertionError("never runs")
"""


def _run(folder: Path, *options: str, **variables: str) -> tuple[int, str]:
    conftest = (ROOT / "tests" / "conftest.py").read_text("utf-8").replace("_S = 10.0", "_S = 3.0")
    (folder / "conftest.py").write_text(conftest, "utf-8")
    (folder / "test_suite.py").write_text(SUITE, "utf-8")
    environment = {
        "PATH": "",
        "PYTHONPATH": str(ROOT),
        "OPENAI_API_KEY": "k",
        "HTTPS_PROXY": "http://192.0.2.1",
        "HERMES_MODEL": "m",
        **variables,
    }
    command = [sys.executable, "-m", "pytest", "-q", "-rA", "--strict-markers", *options]
    done = subprocess.run(
        [*command, "-p", "no:cacheprovider", f"--basetemp={folder / 'tmp'}", "test_suite.py"],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    return done.returncode, done.stdout


def test_a_suite_that_breaks_the_rules_fails_by_name(tmp_path: Path) -> None:
    code, output = _run(tmp_path)
    outcomes = set(re.findall(r"^(\w+) test_suite\.py::(\w+)", output, re.MULTILINE))
    assert code == 1
    assert outcomes == {
        ("FAILED", "test_swallows_a_refused_connection"),
        ("PASSED", "test_connects_in_teardown"),
        ("ERROR", "test_connects_in_teardown"),
        ("PASSED", "test_leaves_a_thread"),
        ("ERROR", "test_leaves_a_thread"),
        ("PASSED", "test_lets_a_thread_end_late"),
        ("PASSED", "test_has_a_home_of_its_own"),
    }
    assert "the test tried to leave this machine: look-up of 'example.org'" in output
    assert "the test tried to leave this machine: look-up of '192.0.2.1'" in output
    assert "threads left running:\nforgotten\n" in output
    assert (
        "left out: node (1 tests; needs node in PATH and what `make oracles` installs for it), "
        "soak (1 tests; needs HERMES_SOAK=1)"
    ) in output


@pytest.mark.parametrize(
    ("variables", "code"), [({}, 0), ({"HERMES_REQUIRE_MARKS": "1"}, 1)], ids=["lenient", "require"]
)
def test_a_mark_without_its_need_fails_the_run_only_when_marks_are_required(
    tmp_path: Path, variables: dict[str, str], code: int
) -> None:
    assert _run(tmp_path, "-k", "node or takes_long", **variables)[0] == code


def test_soak_alone_is_a_choice_and_no_need(tmp_path: Path) -> None:
    assert _run(tmp_path, "-k", "takes_long", HERMES_REQUIRE_MARKS="1")[0] == 0


def test_outside_keys_are_hidden_here_too() -> None:
    assert not [name for name in os.environ if name.endswith("_API_KEY")]
