"""`hermes config`, `hermes doctor` and `hermes local`."""

from __future__ import annotations

import json
import sqlite3

import pytest

from agent.base.paths import config_file, default_database
from agent.base.settings import LocalSettings
from agent.cli import doctor as doctor_module
from agent.providers.local import require_embedded
from agent.sessions.records import PassKind, PassOpening, PassStatus
from agent.settings import key_names
from agent.testing.stub_server import StubModelServer
from hermes_state import SessionDB
from tests.cli.conftest import Hermes, Ran


def test_a_setting_is_written_and_read(hermes: Hermes) -> None:
    assert hermes("config", "path") == Ran(0, f"{config_file()}\n", "")
    assert hermes("config", "set", "model.context_length", "8192").out == (
        "model.context_length: 8192\n"
    )
    assert hermes("config", "get", "model.context_length") == Ran(0, "8192\n", "")
    assert json.loads(hermes("config", "get", "model.context_length", "--json").out) == 8192


def test_every_setting_is_shown_and_no_key_is_whole(hermes: Hermes) -> None:
    secret = "sk-" + "abcdefgh" * 4
    hermes("config", "set", "model.api_key", secret)
    shown = hermes("config", "show")
    assert [line.split(":")[0] for line in shown.out.splitlines()] == key_names()
    assert "model.api_key: ***efgh\n" in shown.out
    assert json.loads(hermes("config", "show", "--json").out)["model.api_key"] == "***efgh"
    assert secret not in shown.out


def test_a_written_setting_that_the_environment_overrides_is_told(
    hermes: Hermes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HERMES_TOOLS__APPROVAL", "off")
    assert hermes("config", "set", "tools.approval", "auto") == Ran(
        0,
        "tools.approval: auto\n",
        "hermes: the environment wins: tools.approval stays off until it is unset\n",
    )


def test_the_doctor_finds_nothing_wrong(hermes: Hermes, endpoint: StubModelServer) -> None:
    ran = hermes("doctor")
    assert (ran.code, ran.err) == (0, "")
    assert ran.out.splitlines()[1:5] == [
        f"ok    settings     {config_file()} is not there: defaults",
        f"ok    store        {default_database()}: sound, 0 conversations, 0 rows, 0 compactions",
        f"ok    model        stub-model at {endpoint.base_url}: reachable",
        "ok    window       128,000 tokens",
    ]
    report = json.loads(hermes("doctor", "--json").out)
    assert report["ok"] is True


def test_the_doctor_names_a_model_that_the_endpoint_does_not_have(
    hermes: Hermes, endpoint: StubModelServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HERMES_MODEL__NAME", "missing")
    ran = hermes("doctor")
    assert ran.code == 3
    assert f"missing at {endpoint.base_url}: the endpoint answers but lists stub-model" in ran.out


def test_the_doctor_goes_on_after_wrong_settings(
    hermes: Hermes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HERMES_TOOLS__APPROVAL", "maybe")
    report = json.loads(hermes("doctor", "--json").out)
    names = [check["name"] for check in report["checks"]]
    assert (report["ok"], names[:3]) == (False, ["settings", "store", "model"])


def test_a_broken_law_is_named_and_ends_with_5(hermes: Hermes, endpoint: StubModelServer) -> None:
    store = SessionDB(db_path=default_database())
    store.create_session("s-1", "cli")
    store.append_message("s-1", "user", "a word")
    store.close()
    connection = sqlite3.connect(default_database())
    with connection:
        connection.execute("UPDATE conversations SET watermark = 7")
    connection.close()
    ran = hermes("doctor")
    assert ran.code == 5
    assert "FAIL  store        conversation 1 keeps watermark 7, it is 1" in ran.out


def test_repair_closes_a_compaction_whose_process_died(
    hermes: Hermes, endpoint: StubModelServer
) -> None:
    store = SessionDB(db_path=default_database())
    store.create_session("s-1", "cli")
    store.append_message("s-1", "user", "a word")
    lease = store.acquire_lease("s-1")
    assert lease is not None
    store.open_pass(PassOpening("p-1", "s-1", PassKind.SUMMARY, "manual", 1, lease.token))
    with store._database.write() as connection:
        connection.execute("UPDATE compression_locks SET holder = ''")
    assert hermes("doctor").code == 5
    ran = hermes("doctor", "--repair")
    assert (ran.code, store.pass_record("p-1").status) == (0, PassStatus.ABORTED)
    assert "ok    repair       1 row indexed, 1 dead compaction closed" in ran.out
    store.close()


@pytest.mark.embedded
def test_the_embedded_model_is_found_and_not_fetched_again(hermes: Hermes) -> None:
    path = require_embedded(LocalSettings())
    assert hermes("local", "install") == Ran(0, f"the embedded model is ready: {path}\n", "")
    assert f"ok    model        embedded: {path.name}" in hermes("doctor").out


def test_a_model_file_that_is_not_there_is_named(hermes: Hermes) -> None:
    hermes("config", "set", "local.model_path", "/nowhere/model.gguf")
    ran = hermes("doctor")
    assert ran.code == 3
    assert "/nowhere/model.gguf" in ran.out
    assert set(doctor_module.EXTRAS) == {"local"}
