"""D18 on disks: full, read-only, or gone in the middle, and what people are told then."""

from __future__ import annotations

import shutil
from itertools import count
from pathlib import Path

import pytest

from agent.base.errors import StoreError
from agent.testing.stub_reply import Reply
from agent.testing.stub_server import DEFAULT_MODEL
from hermes_state import SessionDB
from tests.cli.conftest import Ran
from tests.field_reports.acts import ACTS, in_one_line, open_agent, run_or_fail
from tests.field_reports.disks import Disk, LimitedFolder, open_disk
from tests.field_reports.harness import SUMMARISER, SUMMARY
from tests.field_reports.stopped import Prepared, prepare

ROOM_BYTES = 16 * 1024


@pytest.fixture
def disk(tmp_path):
    with open_disk(tmp_path / "disk") as opened:
        yield opened


@pytest.mark.parametrize("name", ACTS)
def test_d18_on_a_full_disk_the_session_is_old_or_new_and_goes_on_once_there_is_room(
    stub, tmp_path, disk, name
):
    prepared = prepare(stub, name, tmp_path)
    check_with_little_room(prepared, disk)


def test_d18_where_files_may_not_grow_the_session_is_old_or_new(stub, tmp_path):
    folder = tmp_path / "limited"
    folder.mkdir()
    limited = LimitedFolder(folder)
    try:
        check_with_little_room(prepare(stub, "summary", tmp_path), limited)
    finally:
        limited.free()


def check_with_little_room(prepared: Prepared, disk: Disk) -> None:
    """Do the act with more and more room until it is done; it goes on after each failure."""
    for number in count():
        path = disk.folder / "state.db"
        for file in disk.folder.iterdir():
            file.unlink()
        shutil.copy(prepared.path, path)
        store = SessionDB(db_path=path)
        agent = open_agent(prepared.act, prepared.stub.base_url, store)
        try:
            disk.leave(number * ROOM_BYTES)
            error = run_or_fail(prepared.act, agent)
            disk.free()
            assert in_one_line(error)
            found, _status = prepared.check_goes_on(agent)
        finally:
            disk.free()
            agent.close()
            store.close()
        if found == prepared.after:
            break
    assert number > 0


# -- what people are told -----------------------------------------------------------------------


@pytest.fixture
def settings_of(monkeypatch, stub):
    """Settings of the command line for a store at some path."""

    def settle(path: Path) -> None:
        for name, value in {
            "MODEL__BASE_URL": stub.base_url,
            "MODEL__NAME": DEFAULT_MODEL,
            "MODEL__CONTEXT_LENGTH": "8000",
            "AUXILIARY__COMPRESSION__MODEL": SUMMARISER,
            "DATABASE__URL": f"sqlite:///{path}",
        }.items():
            monkeypatch.setenv(f"HERMES_{name}", value)

    return settle


def check_told(ran: Ran, what: str) -> None:
    """Check that a command ended with the store's exit code and one line on what is wrong."""
    assert ran.code == 5
    [told] = [line for line in ran.err.splitlines() if line.startswith("hermes: ")]
    assert what in told
    assert ran.err.endswith(f"{told}\n")


def test_d18_a_full_disk_is_told_in_one_line_and_costs_nothing(
    stub, tmp_path, disk, hermes, settings_of
):
    prepared = prepare(stub, "summary", tmp_path)
    path = disk.folder / "state.db"
    shutil.copy(prepared.path, path)
    settings_of(path)

    def fill_up(_request):
        disk.leave(0)
        return Reply(text=SUMMARY)

    stub.script(fill_up, model=SUMMARISER)
    check_told(hermes("compact", "s"), "the disk is full")
    disk.free()
    stub.script([], model=SUMMARISER, then=Reply(text=SUMMARY))
    assert prepared.check_reopened(path)[0] == prepared.before


def test_d18_a_disk_that_fills_up_in_a_turn_is_told_in_one_line(
    stub, tmp_path, disk, hermes, settings_of
):
    prepared = prepare(stub, "summary", tmp_path)
    path = disk.folder / "state.db"
    shutil.copy(prepared.path, path)
    settings_of(path)

    def fill_up(_request):
        disk.leave(0)
        return Reply(text="an answer that cannot be kept")

    stub.script(fill_up, model=DEFAULT_MODEL)
    ran = hermes("chat", "--session", "s", "-q", "how are you")
    check_told(ran, "the disk is full")
    disk.free()
    store = SessionDB(db_path=path)
    assert [row["content"] for row in store.accepted_rows("s", 1, 1_000)][-1] == "how are you"
    assert store.check().problems == []
    store.close()


def test_d18_a_read_only_store_is_told_in_one_line_and_stays_as_it_is(
    stub, tmp_path, disk, hermes, settings_of
):
    prepared = prepare(stub, "summary", tmp_path)
    path = disk.folder / "state.db"
    shutil.copy(prepared.path, path)
    settings_of(path)
    disk.set_read_only(is_on=True)
    try:
        check_told(hermes("compact", "s"), "check that its folder exists and is writable")
    finally:
        disk.set_read_only(is_on=False)
    assert prepared.check_reopened(path) == (prepared.before, "")


def test_d18_a_store_that_turns_read_only_in_the_middle_leaves_the_old_session(stub, tmp_path):
    prepared = prepare(stub, "summary", tmp_path)
    store = SessionDB(db_path=prepared.path)
    agent = open_agent(prepared.act, stub.base_url, store)
    writer = store._database._writer

    def refuse_writes(_request):
        writer.execute("PRAGMA query_only = ON")
        return Reply(text=SUMMARY)

    stub.script(refuse_writes, model=SUMMARISER)
    with pytest.raises(StoreError, match="it is read-only; make the file and its folder writable"):
        agent.compress()
    writer.execute("PRAGMA query_only = OFF")
    stub.script([], model=SUMMARISER, then=Reply(text=SUMMARY))
    assert prepared.check_goes_on(agent)[0] == prepared.before
    agent.close()
    store.close()


def test_d18_a_store_that_is_moved_away_in_the_middle_is_told_and_goes_on_once_it_is_back(
    stub, tmp_path, hermes, settings_of
):
    prepared = prepare(stub, "summary", tmp_path)
    here, away = tmp_path / "here", tmp_path / "away"
    here.mkdir()
    path = here / "state.db"
    shutil.copy(prepared.path, path)
    settings_of(path)

    def move_away(_request):
        here.rename(away)
        return Reply(text=SUMMARY)

    stub.script(move_away, model=SUMMARISER)
    check_told(hermes("compact", "s"), "was moved, removed or replaced while it was open")
    assert not here.exists()
    away.rename(here)
    stub.script([], model=SUMMARISER, then=Reply(text=SUMMARY))
    assert prepared.check_reopened(path) == (prepared.before, "planned")


def test_d18_a_store_that_was_replaced_takes_no_row_that_would_be_lost(stub, tmp_path):
    prepared = prepare(stub, "summary", tmp_path)
    store = SessionDB(db_path=prepared.path)
    other = tmp_path / "undisturbed.db"
    other.replace(prepared.path)
    with pytest.raises(StoreError, match="was moved, removed or replaced while it was open"):
        store.append_message("s", "user", "where does this go?")
    store.close()
