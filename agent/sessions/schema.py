"""The data model as numbered migrations; each is applied once, in its own transaction.

A released migration is never edited: a change of the model is a new entry at the end. The search
index is set up here too, because it lies in the same file; `search.py` says how it is filled.
"""

from __future__ import annotations

_SESSIONS = """
CREATE TABLE conversations (
    id INTEGER PRIMARY KEY,
    generation INTEGER NOT NULL DEFAULT 0,
    watermark INTEGER NOT NULL DEFAULT 0,
    live_count INTEGER NOT NULL DEFAULT 0,
    live_tokens INTEGER NOT NULL DEFAULT 0,
    accepted_count INTEGER NOT NULL DEFAULT 0,
    pass_count INTEGER NOT NULL DEFAULT 0,
    last_active_at REAL NOT NULL,
    compression_failure_cooldown_until REAL,
    compression_failure_error TEXT,
    failure_class TEXT NOT NULL DEFAULT '',
    health TEXT NOT NULL DEFAULT '{}',
    usage_anchor TEXT NOT NULL DEFAULT '{}'
);

CREATE TABLE sessions (
    id TEXT PRIMARY KEY,
    conversation_id INTEGER NOT NULL REFERENCES conversations(id),
    source TEXT NOT NULL,
    model TEXT,
    model_config TEXT NOT NULL DEFAULT '{}',
    system_prompt TEXT,
    parent_session_id TEXT,
    title TEXT UNIQUE,
    started_at REAL NOT NULL,
    ended_at REAL,
    end_reason TEXT,
    origin TEXT NOT NULL DEFAULT '{}',
    cwd TEXT
);

CREATE INDEX sessions_conversation ON sessions(conversation_id);
"""

_ROWS = """
CREATE TABLE messages (
    id INTEGER PRIMARY KEY,
    session_id TEXT NOT NULL,
    seq INTEGER NOT NULL,
    kind TEXT NOT NULL,
    role TEXT NOT NULL,
    content TEXT,
    extra TEXT,
    tool_calls TEXT,
    tool_call_id TEXT,
    tool_name TEXT,
    reasoning TEXT,
    model TEXT,
    finish_reason TEXT,
    usage TEXT,
    created_at REAL NOT NULL,
    tokens INTEGER NOT NULL,
    blob TEXT
);

CREATE INDEX messages_blob ON messages(blob) WHERE blob IS NOT NULL;

CREATE TABLE places (
    conversation_id INTEGER NOT NULL REFERENCES conversations(id),
    seq INTEGER NOT NULL,
    row_id INTEGER NOT NULL REFERENCES messages(id),
    tokens INTEGER NOT NULL,
    made_by INTEGER,
    compacted_by INTEGER,
    hidden_by INTEGER,
    masked_by INTEGER,
    stub TEXT,
    PRIMARY KEY (conversation_id, seq, row_id)
) WITHOUT ROWID;

CREATE UNIQUE INDEX places_live ON places(conversation_id, seq)
    WHERE compacted_by IS NULL AND hidden_by IS NULL;

CREATE VIEW live_places AS SELECT * FROM places INDEXED BY places_live
    WHERE compacted_by IS NULL AND hidden_by IS NULL;

CREATE TABLE blobs (
    sha256 TEXT PRIMARY KEY,
    bytes BLOB NOT NULL,
    size INTEGER NOT NULL
);

CREATE TABLE deletions (conversation_id INTEGER PRIMARY KEY);

CREATE TRIGGER messages_are_never_updated BEFORE UPDATE ON messages BEGIN
    SELECT RAISE(ABORT, 'messages is insert-only');
END;

CREATE TRIGGER messages_leave_with_their_conversation BEFORE DELETE ON messages
WHEN NOT EXISTS (SELECT 1 FROM deletions) BEGIN
    SELECT RAISE(ABORT, 'messages is insert-only');
END;
"""

_LEDGER = """
    conversation_id INTEGER NOT NULL REFERENCES conversations(id),
    session_id TEXT NOT NULL,
    generation INTEGER NOT NULL,
    status TEXT NOT NULL,
    kind TEXT NOT NULL,
    trigger TEXT NOT NULL,
    strategy TEXT NOT NULL DEFAULT '',
    failure_class TEXT NOT NULL DEFAULT '',
    detail TEXT NOT NULL DEFAULT '',
    count INTEGER NOT NULL DEFAULT 1,
    watermark INTEGER NOT NULL,
    plan TEXT NOT NULL DEFAULT '{}',
    lease_token INTEGER,
    tokens_before INTEGER,
    tokens_after INTEGER,
    messages_before INTEGER,
    messages_after INTEGER,
    model TEXT NOT NULL DEFAULT '',
    route TEXT NOT NULL DEFAULT '',
    cost REAL,
    gain_predicted INTEGER,
    gain_actual INTEGER,
    durations TEXT NOT NULL DEFAULT '{}',
    receipt TEXT NOT NULL DEFAULT '{}',
    target_pass TEXT,
    child_session_id TEXT,
    created_at REAL NOT NULL,
    finished_at REAL"""

_LEDGER_INDEXES = """
CREATE INDEX passes_conversation ON compaction_passes(conversation_id, ordinal);

CREATE UNIQUE INDEX passes_open ON compaction_passes(conversation_id)
    WHERE status IN ('planned', 'prepared');
"""

_PASSES = f"""
CREATE TABLE compaction_passes (
    ordinal INTEGER PRIMARY KEY,
    id TEXT NOT NULL UNIQUE,{_LEDGER}
);
"""

_LEASES = """
CREATE TABLE compression_locks (
    conversation_id INTEGER PRIMARY KEY REFERENCES conversations(id),
    holder TEXT NOT NULL,
    token INTEGER NOT NULL,
    acquired_at REAL NOT NULL,
    expires_at REAL NOT NULL,
    ttl_s REAL NOT NULL,
    ceiling_at REAL NOT NULL
);
"""

_MEMORY = """
CREATE TABLE pins (
    id INTEGER PRIMARY KEY,
    conversation_id INTEGER NOT NULL REFERENCES conversations(id),
    text TEXT NOT NULL,
    source_seq INTEGER,
    created_at REAL NOT NULL,
    retired_at REAL,
    retired_by TEXT
);

CREATE INDEX pins_conversation ON pins(conversation_id);

CREATE TABLE extracts (
    row_id INTEGER NOT NULL REFERENCES messages(id),
    kind TEXT NOT NULL,
    subject TEXT NOT NULL,
    value TEXT NOT NULL,
    span TEXT NOT NULL
);

CREATE INDEX extracts_row ON extracts(row_id);

CREATE TABLE routes (
    provider TEXT NOT NULL,
    base_url TEXT NOT NULL,
    model TEXT NOT NULL,
    window INTEGER,
    output_limit INTEGER,
    learned_from TEXT NOT NULL DEFAULT '',
    rested_until REAL,
    failure_class TEXT NOT NULL DEFAULT '',
    PRIMARY KEY (provider, base_url, model)
);

CREATE TABLE prefixes (
    prefix_hash TEXT NOT NULL,
    owner_digest TEXT NOT NULL,
    conversation_id INTEGER NOT NULL REFERENCES conversations(id),
    seq INTEGER NOT NULL,
    seen_at REAL NOT NULL,
    PRIMARY KEY (owner_digest, prefix_hash)
);

CREATE INDEX prefixes_conversation ON prefixes(conversation_id);

CREATE TABLE responses (
    response_id TEXT PRIMARY KEY,
    conversation_id INTEGER NOT NULL REFERENCES conversations(id),
    seq INTEGER NOT NULL
);

CREATE INDEX responses_conversation ON responses(conversation_id);
"""

_SEARCH = """
CREATE TABLE search_mark (last_indexed_row INTEGER NOT NULL);

INSERT INTO search_mark VALUES (0);

CREATE VIRTUAL TABLE message_index USING fts5(
    body, content='', columnsize=0, tokenize='trigram', detail='none'
);
"""

_EXTRACTS = """
DROP TABLE extracts;

CREATE TABLE extracts (
    row_id INTEGER NOT NULL REFERENCES messages(id),
    start INTEGER NOT NULL,
    kind TEXT NOT NULL,
    subject TEXT NOT NULL,
    value TEXT NOT NULL,
    PRIMARY KEY (row_id, start, kind)
) WITHOUT ROWID;

CREATE TABLE extract_mark (last_extracted_row INTEGER NOT NULL);

INSERT INTO extract_mark VALUES (0);

ALTER TABLE pins ADD COLUMN retired_seq INTEGER;
"""
"""An extract ends `length(value)` characters after its start: the value stands there word for word.
`retired_seq` is the row that withdrew a pin; one that a rewind hides withdraws nothing."""

_ROTATIONS = """
ALTER TABLE conversations ADD COLUMN tip TEXT NOT NULL DEFAULT '';

UPDATE conversations SET tip =
    (SELECT s.id FROM sessions s WHERE s.conversation_id = conversations.id);
"""
"""A rotation gives a conversation another session; its tip is the newest."""

_FORKS = """
ALTER TABLE conversations ADD COLUMN family INTEGER NOT NULL DEFAULT 0;

UPDATE conversations SET family = id;

CREATE INDEX conversations_family ON conversations(family);

ALTER TABLE messages ADD COLUMN family INTEGER NOT NULL DEFAULT 0;

DROP TRIGGER messages_are_never_updated;

UPDATE messages SET family =
    (SELECT s.conversation_id FROM sessions s WHERE s.id = messages.session_id);

CREATE TRIGGER messages_are_never_updated BEFORE UPDATE ON messages BEGIN
    SELECT RAISE(ABORT, 'messages is insert-only');
END;
"""
"""A row's family is the first of the conversations that forks connect with the one it was accepted
in: all that share a row are of its family."""

_FORKED_PASSES = f"""
ALTER TABLE compaction_passes RENAME TO earlier_passes;

CREATE TABLE compaction_passes (
    ordinal INTEGER PRIMARY KEY,
    id TEXT NOT NULL,{_LEDGER},
    UNIQUE (id, conversation_id)
);

INSERT INTO compaction_passes SELECT * FROM earlier_passes;

DROP TABLE earlier_passes;
"""
"""A fork has passes with the ids of those that it inherits, and a status of its own for each."""

_ROUTES = """
ALTER TABLE routes ADD COLUMN images INTEGER;

ALTER TABLE routes ADD COLUMN learned_at REAL NOT NULL DEFAULT 0;

ALTER TABLE routes ADD COLUMN rested_at REAL NOT NULL DEFAULT 0;

ALTER TABLE routes ADD COLUMN strikes INTEGER NOT NULL DEFAULT 0;
"""

VERSION_TABLE = """
CREATE TABLE IF NOT EXISTS schema_version (
    version INTEGER PRIMARY KEY,
    applied_at REAL NOT NULL
);
"""


def _statements(*scripts: str) -> tuple[str, ...]:
    """Return the statements of scripts in which a blank line stands between any two."""
    return tuple(statement for script in scripts for statement in script.strip().split("\n\n"))


MIGRATIONS = (
    _statements(_SESSIONS, _ROWS, _PASSES, _LEDGER_INDEXES, _LEASES, _MEMORY, _SEARCH),
    _statements(_EXTRACTS),
    _statements(_ROTATIONS, _FORKS, _FORKED_PASSES, _LEDGER_INDEXES),
    _statements(_ROUTES),
)
"""Entry n (from 0) holds the statements that lead to version n + 1."""

VERSION = len(MIGRATIONS)
