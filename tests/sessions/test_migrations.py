"""A store of each older version is opened, migrated, and used as if it had always been new."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from agent.sessions import schema
from agent.sessions.records import PassStatus
from hermes_state import SessionDB
from tests.sessions.steps import contents

OLD_ROWS = """
INSERT INTO conversations (id, generation, watermark, live_count, live_tokens, accepted_count,
    pass_count, last_active_at) VALUES (1, 1, 3, 2, 30, 3, 1, 5.0);
INSERT INTO sessions (id, conversation_id, source, title, started_at)
    VALUES ('old', 1, 'cli', 'walnuts', 5.0);
INSERT INTO messages (id, session_id, seq, kind, role, content, created_at, tokens) VALUES
    (1, 'old', 1, 'message', 'user', 'first walnut', 5.0, 15),
    (2, 'old', 2, 'message', 'user', 'second walnut', 5.0, 15),
    (3, 'old', 3, 'message', 'user', 'third walnut', 5.0, 15),
    (4, 'old', 2, 'summary', 'user', 'two walnuts', 5.0, 15);
INSERT INTO places (conversation_id, seq, row_id, tokens, made_by, compacted_by) VALUES
    (1, 1, 1, 15, NULL, 1), (1, 2, 2, 15, NULL, 1), (1, 3, 3, 15, NULL, NULL),
    (1, 2, 4, 15, 1, NULL);
INSERT INTO compaction_passes (ordinal, id, conversation_id, session_id, generation, status, kind,
    trigger, watermark, created_at)
    VALUES (1, 'abc', 1, 'old', 1, 'committed', 'summary', 'manual', 3, 5.0);
"""
"""Three rows, of which a summary covers two, as the first version wrote them."""

SINCE_FORKS = """
UPDATE conversations SET tip = 'old', family = id;
DROP TRIGGER messages_are_never_updated;
UPDATE messages SET family = 1;
CREATE TRIGGER messages_are_never_updated BEFORE UPDATE ON messages BEGIN
    SELECT RAISE(ABORT, 'messages is insert-only');
END;
"""
"""What the third version writes beside it."""


@pytest.fixture
def older(tmp_path: Path, request: pytest.FixtureRequest) -> Path:
    """A store as a program of that version left it."""
    version: int = request.param
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(schema, "MIGRATIONS", schema.MIGRATIONS[:version])
        patched.setattr(schema, "VERSION", version)
        SessionDB(tmp_path / "old.db").close()
    other = sqlite3.connect(tmp_path / "old.db")
    other.executescript(OLD_ROWS + (SINCE_FORKS if version >= 3 else ""))
    other.close()
    return tmp_path / "old.db"


@pytest.mark.parametrize("older", range(1, schema.VERSION), indirect=True)
def test_an_older_store_is_read_undone_forked_and_searched(older: Path) -> None:
    store = SessionDB(older)
    assert list(store.check().problems) == []
    assert contents(store.view("old").messages) == ["two walnuts", "third walnut"]
    assert store.find_session("walnuts").id == "old"
    assert [hit.message["_seq"] for hit in store.search("walnut", session_id="old")] == [3, 2, 1]
    store.fork_session("old", "fork")
    whole = ["first walnut", "second walnut", "third walnut"]
    assert contents(store.undo_pass("old").view.messages) == whole
    assert store.pass_record("abc", session_id="fork").status is PassStatus.COMMITTED
    store.append_message("old", "user", "a fourth walnut")
    assert len(store.search("walnut", session_id="old")) == 4
    assert list(store.check().problems) == []
    store.delete_session("old")
    assert contents(store.view("fork").messages) == ["two walnuts", "third walnut"]
    assert list(store.check().problems) == []
    store.close()


@pytest.mark.parametrize("older", range(1, schema.VERSION), indirect=True)
def test_a_migrated_store_has_the_schema_of_a_new_one(older: Path, tmp_path: Path) -> None:
    SessionDB(older).close()
    SessionDB(tmp_path / "new.db").close()
    tables = "SELECT type, name, tbl_name FROM sqlite_master ORDER BY type, name"
    columns = (
        "SELECT m.name, c.name FROM sqlite_master m, pragma_table_info(m.name) c ORDER BY 1, 2"
    )
    found = []
    for path in (older, tmp_path / "new.db"):
        other = sqlite3.connect(path)
        found.append([other.execute(query).fetchall() for query in (tables, columns)])
        other.close()
    assert found[0] == found[1]
