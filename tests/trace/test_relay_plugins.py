"""Relay's plugin file, the way in which people set up its exporters, with the real library."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from agent import relay_runtime
from agent.base.held import HeldOpen
from agent.base.settings import TelemetrySettings
from agent.relay_runtime import RelayHostRegistry, RelayRuntime
from agent.telemetry import Telemetry
from tests.trace.ledger import ledger_row


@pytest.fixture
def plugin_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A plugin file in the environment, whose exporter writes `plugin.jsonl`."""
    plugins = tmp_path / "plugins.toml"
    plugins.write_text(
        f"""
        version = 1
        [[components]]
        kind = "observability"
        [components.config]
        version = 4
        [components.config.atof]
        enabled = true
        [[components.config.atof.sinks]]
        type = "file"
        output_directory = "{tmp_path}"
        filename = "plugin.jsonl"
        """,
        "utf-8",
    )
    monkeypatch.setenv(relay_runtime.PLUGINS_VARIABLE, str(plugins))


def names_in(path: Path) -> list[str]:
    return [json.loads(line)["name"] for line in path.read_text("utf-8").splitlines()]


@pytest.mark.usefixtures("plugin_file")
def test_the_plugin_file_of_the_environment_gets_every_event(
    registry: RelayHostRegistry, tmp_path: Path
) -> None:
    traced = Telemetry(TelemetrySettings(relay=True))
    traced.publish_pass(ledger_row())
    traced.close()
    host = registry.for_profile()
    assert isinstance(host, RelayRuntime)
    host.shutdown()

    names = names_in(tmp_path / "plugin.jsonl")
    assert names == ["hermes.session", "compaction", "hermes.session"]


_LEAVES_WITHOUT_CLOSING = """
from agent.base.settings import TelemetrySettings
from agent.telemetry import Telemetry
traced = Telemetry(TelemetrySettings(relay=True))
with traced.turn("s1", "t1"):
    pass
"""


@pytest.mark.usefixtures("plugin_file")
def test_a_process_that_just_leaves_still_writes_the_end_of_its_session(tmp_path: Path) -> None:
    subprocess.run([sys.executable, "-c", _LEAVES_WITHOUT_CLOSING], check=True, timeout=15)

    assert names_in(tmp_path / "plugin.jsonl") == [
        "hermes.session",
        "hermes.turn",
        "hermes.turn",
        "hermes.session",
    ]


def test_who_wakes_the_loop_that_holds_the_plugins_does_not_let_others_run_meanwhile() -> None:
    """A native thread that has to take the interpreter's lock again may find the process gone."""
    ran: list[str] = []
    go_on, interval_s = threading.Lock(), sys.getswitchinterval()

    def other() -> None:
        with go_on:
            ran.append("another thread")

    def wake(loop: asyncio.AbstractEventLoop, closed: asyncio.Future[None]) -> None:
        go_on.release()
        until = time.monotonic() + 0.05
        while time.monotonic() < until:  # the other thread comes to wait for the lock
            pass
        loop.call_soon_threadsafe(closed.set_result, None)
        ran.append("the one that woke")

    class Resource:
        async def close(self) -> None:
            loop = asyncio.get_running_loop()
            closed = loop.create_future()
            threading.Thread(target=wake, args=(loop, closed)).start()
            await closed

    async def open_resource() -> Resource:
        return Resource()

    go_on.acquire()
    sys.setswitchinterval(60)  # only who gives up the lock lets others run
    try:
        waiting = threading.Thread(target=other)
        waiting.start()
        held = HeldOpen(open_resource, "held-test")
        held.wait_open(10)
        held.close(10)
        waiting.join(10)
    finally:
        sys.setswitchinterval(interval_s)
    assert ran == ["the one that woke", "another thread"]
