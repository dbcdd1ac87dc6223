"""What only SQLite can get wrong: files, locks, disks, versions, query plans."""

from __future__ import annotations

import os
import sqlite3
import stat
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from agent.base.errors import SchemaTooNew, StoreError, UsageError
from agent.sessions import schema
from agent.sessions import statements as sql
from agent.testing.clock import FakeClock
from hermes_state import SessionDB
from tests.sessions.steps import SESSION, begin, cover, talk

needs_root = pytest.mark.skipif(
    os.geteuid() != 0 or sys.platform != "linux", reason="mounting needs root on Linux"
)


def _raw(path: Path) -> sqlite3.Connection:
    return sqlite3.connect(path, isolation_level=None)


# -- opening ------------------------------------------------------------------------------------


def test_a_store_is_created_with_its_folder_for_its_owner_only(tmp_path: Path) -> None:
    store = SessionDB(tmp_path / "new" / "folder" / "state.db")
    store.close()
    assert stat.S_IMODE(store.path.stat().st_mode) == 0o600


def test_without_a_path_the_store_lies_in_the_home_folder(tmp_path: Path) -> None:
    store = SessionDB()
    store.close()
    assert store.path == tmp_path / "home" / ".hermes" / "state.db"


@pytest.mark.parametrize("prefix", ["", "sqlite:///"], ids=["plain", "sqlite"])
def test_a_url_may_name_the_file(tmp_path: Path, prefix: str) -> None:
    store = SessionDB(url=f"{prefix}{tmp_path / 'named.db'}")
    store.close()
    assert store.path == tmp_path / "named.db"


@pytest.mark.parametrize(
    ("path", "url"),
    [
        (None, "postgresql://localhost/x"),
        (None, "sqlite://"),
        ("a.db", "sqlite:///b.db"),
        (":memory:", None),
    ],
)
def test_what_is_not_supported_is_refused_in_one_line(path: str | None, url: str | None) -> None:
    with pytest.raises(UsageError) as caught:
        SessionDB(path, url=url)
    assert repr(url or path) in str(caught.value) or ":memory:" == path
    assert "\n" not in str(caught.value)


def test_a_file_that_is_no_database_is_refused_and_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "notes.txt"
    path.write_text("these are my notes\n" * 100)
    with pytest.raises(StoreError, match=r"notes\.txt.*not a store"):
        SessionDB(path)
    assert path.read_text() == "these are my notes\n" * 100


@pytest.mark.parametrize("column", ["version", "number"])
def test_a_database_of_another_program_is_refused_and_left_alone(
    tmp_path: Path, column: str
) -> None:
    path = tmp_path / "other.db"
    other = _raw(path)
    other.execute(f"CREATE TABLE schema_version ({column} INTEGER)")
    other.execute("INSERT INTO schema_version VALUES (22)")
    other.close()
    before = path.read_bytes()
    with pytest.raises(StoreError, match="another program"):
        SessionDB(path)
    assert path.read_bytes() == before


def test_a_store_of_a_newer_version_is_refused(tmp_path: Path) -> None:
    store = SessionDB(tmp_path / "state.db")
    store.close()
    with _raw(store.path) as other:
        other.execute("INSERT INTO schema_version VALUES (99, 0)")
    other.close()
    with pytest.raises(SchemaTooNew, match=f"schema 99.*up to {schema.VERSION}"):
        SessionDB(store.path)


def test_a_folder_in_place_of_the_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="cannot open store"):
        SessionDB(tmp_path)


# -- migrations ---------------------------------------------------------------------------------


def _add_migration(monkeypatch: pytest.MonkeyPatch, *statements: str) -> None:
    monkeypatch.setattr(schema, "MIGRATIONS", (*schema.MIGRATIONS, statements))
    monkeypatch.setattr(schema, "VERSION", schema.VERSION + 1)


def test_an_older_store_is_migrated_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = SessionDB(tmp_path / "state.db")
    rows = begin(store, 2)
    store.close()
    _add_migration(monkeypatch, "CREATE TABLE later (x INTEGER)", "INSERT INTO later VALUES (1)")
    for _round in range(2):
        migrated = SessionDB(store.path)
        assert migrated.view(SESSION).messages == rows
        migrated.close()
    other = _raw(store.path)
    assert other.execute("SELECT count(*) FROM later").fetchall() == [(1,)]
    versions = other.execute("SELECT version FROM schema_version ORDER BY version").fetchall()
    assert versions == [(number + 1,) for number in range(schema.VERSION)]
    other.close()


def test_a_migration_that_fails_leaves_the_older_store(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = SessionDB(tmp_path / "state.db")
    rows = begin(store, 2)
    store.close()
    with monkeypatch.context() as patched:
        _add_migration(patched, "CREATE TABLE later (x INTEGER)", "INSERT INTO nowhere VALUES (1)")
        with pytest.raises(StoreError, match="nowhere"):
            SessionDB(store.path)
    again = SessionDB(store.path)
    assert again.view(SESSION).messages == rows
    again.close()


def test_many_threads_may_open_a_new_store_at_once(tmp_path: Path) -> None:
    stores: list[SessionDB] = []
    threads = [
        threading.Thread(target=lambda: stores.append(SessionDB(tmp_path / "state.db")))
        for _ in range(6)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(stores) == 6
    for store in stores:
        assert list(store.check().problems) == []
        store.close()


def test_no_connection_stays_open_after_closing(store: SessionDB) -> None:
    begin(store, 1)
    store.view(SESSION)
    store.close()
    assert sorted(path.name for path in store.path.parent.glob("state.db*")) == ["state.db"]


# -- disks --------------------------------------------------------------------------------------


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of two megabytes."""
    folder = tmp_path / "disk"
    folder.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", folder], check=True)
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", folder], check=True)


@needs_root
def test_a_full_disk_loses_nothing_that_was_accepted(small_disk: Path) -> None:
    store = SessionDB(small_disk / "state.db")
    begin(store)
    accepted: list[int] = []

    def fill() -> None:
        for number in range(1_000):
            store.append_message(SESSION, "user", f"{number} " + "x" * 20_000)
            accepted.append(number)

    with pytest.raises(StoreError, match=r"disk is full.*free some space"):
        fill()
    assert len(accepted) > 10
    assert len(store.view(SESSION).messages) == len(accepted)
    assert list(store.check().problems) == []
    store.close()
    reopened = SessionDB(store.path)
    assert len(reopened.view(SESSION).messages) == len(accepted)
    reopened.close()


@needs_root
def test_a_read_only_disk_is_named_as_the_cause(small_disk: Path) -> None:
    store = SessionDB(small_disk / "state.db")
    begin(store, 1)
    store.close()
    subprocess.run(["mount", "-o", "remount,ro", small_disk], check=True)
    with pytest.raises(StoreError, match=r"state\.db.*[Rr]ead-only"):
        SessionDB(store.path)


def test_a_damaged_file_is_an_error_that_says_so(tmp_path: Path) -> None:
    store = SessionDB(tmp_path / "state.db")
    begin(store, 200)
    store.close()
    data = bytearray(store.path.read_bytes())
    data[4096 * 5 : 4096 * 12] = b"\xff" * (4096 * 7)
    store.path.write_bytes(data)
    damaged = SessionDB(store.path)
    with pytest.raises(StoreError, match=r"damaged.*hermes doctor"):
        damaged.view(SESSION)
    damaged.close()


# -- insert-only --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "statement",
    ["UPDATE messages SET content = 'x'", "UPDATE messages SET tokens = 0", "DELETE FROM messages"],
)
def test_the_database_itself_refuses_to_change_a_row(store: SessionDB, statement: str) -> None:
    begin(store, 2)
    other = _raw(store.path)
    with pytest.raises(sqlite3.IntegrityError, match="insert-only"):
        other.execute(statement)
    other.close()


def test_the_database_itself_refuses_two_live_rows_at_one_place(store: SessionDB) -> None:
    rows = begin(store, 2)
    cover(store, rows)
    other = _raw(store.path)
    with pytest.raises(sqlite3.IntegrityError, match="UNIQUE"):
        other.execute("UPDATE places SET compacted_by = NULL")
    other.close()


def test_a_deletion_takes_its_rows_out_of_the_index(store: SessionDB) -> None:
    begin(store, 0)
    store.append_message(SESSION, "user", "zebra crossing 日本")
    store.index_pending()
    other = _raw(store.path)
    count = "SELECT count(*) FROM message_index WHERE message_index MATCH '\"zeb\"'"
    assert other.execute(count).fetchone() == (1,)
    store.delete_session(SESSION)
    assert other.execute(count).fetchone() == (0,)
    for (table,) in other.execute(
        "SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'message_index%'"
        " AND name NOT IN ('schema_version', 'search_mark', 'extract_mark')"
    ).fetchall():
        assert other.execute(f"SELECT count(*) FROM {table}").fetchone() == (0,), table
    other.close()


# -- query plans --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("statement", "values", "index"),
    [
        (sql.LIVE_ROWS, (1, 0, 9), "places_live"),
        (sql.LIVE_ROW_AT, (1, 9), "places_live"),
        (sql.LIVE_PLACES, (1,), "places_live"),
        (sql.HEAD, ("s",), "sqlite_autoindex_sessions_1"),
        (sql.OPEN_PASSES_OF, (1,), "passes_open"),
    ],
    ids=["view", "row", "places", "head", "prepared"],
)
def test_hot_reads_use_their_index_and_sort_nothing(
    store: SessionDB, statement: str, values: tuple[object, ...], index: str
) -> None:
    with store._database.read() as connection:
        plan = [row[3] for row in connection.execute(f"EXPLAIN QUERY PLAN {statement}", values)]
    assert index in plan[0]
    assert not [line for line in plan if line.startswith("SCAN") or "TEMP B-TREE" in line]


def test_a_clock_that_is_set_back_changes_no_order(store: SessionDB, clock: FakeClock) -> None:
    rows = begin(store, 2)
    clock.set_back(3_600)
    rows += store.append(SESSION, talk(1, first=3))
    assert store.view(SESSION).messages == rows
