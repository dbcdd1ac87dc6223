"""The SQL text of the store, once. Placeholders are `?` or `:name`; nothing is special to SQLite.

Statements that make a row with a numeric id go through the driver's `insert_id`.

Search and the schema are not here: they differ by database.
"""

from __future__ import annotations

from typing import Final

# -- sessions -------------------------------------------------------------------------------
NEW_CONVERSATION: Final = "INSERT INTO conversations (last_active_at, tip) VALUES (?, ?)"
BEGIN_FAMILY: Final = "UPDATE conversations SET family = id WHERE id = ?"
FAMILY_OF: Final = "SELECT family FROM conversations WHERE id = ?"
NEW_SESSION: Final = """
INSERT INTO sessions (id, conversation_id, source, model, model_config, parent_session_id, title,
    started_at, origin, cwd)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"""
DESCENDANT_SESSION: Final = """
INSERT INTO sessions (id, conversation_id, source, model, model_config, system_prompt,
    parent_session_id, title, started_at, origin, cwd)
SELECT ?, ?, source, model, model_config, system_prompt, id, ?, ?, ?, cwd
FROM sessions WHERE id = ?"""
HAND_OVER: Final = """
UPDATE sessions SET title = NULL, ended_at = ?, end_reason = 'compression' WHERE id = ?"""
SET_TIP: Final = "UPDATE conversations SET tip = ? WHERE id = ?"
CONVERSATION_OF: Final = "SELECT conversation_id FROM sessions WHERE id = ?"
_SESSION_COLUMNS: Final = """
SELECT s.id, s.conversation_id, s.source, s.model, s.system_prompt, s.parent_session_id, s.title,
    s.started_at, s.ended_at, s.end_reason, s.cwd, c.last_active_at, c.accepted_count,
    c.pass_count, s.model_config, s.origin
"""
_ANY_SESSION: Final = (
    _SESSION_COLUMNS + "FROM sessions s JOIN conversations c ON c.id = s.conversation_id "
)
_TIP_SESSION: Final = _SESSION_COLUMNS + "FROM conversations c JOIN sessions s ON s.id = c.tip "
SESSION_BY_ID: Final = _ANY_SESSION + "WHERE s.id = ?"
SESSION_BY_TITLE: Final = _ANY_SESSION + "WHERE s.title = ?"
TIP_OF_CONVERSATION: Final = _TIP_SESSION + "WHERE c.id = ?"
CONVERSATIONS_BY_PREFIX: Final = """
SELECT conversation_id, min(id) FROM sessions WHERE substr(id, 1, length(?)) = ?
GROUP BY conversation_id ORDER BY 2 LIMIT ?"""
SESSIONS_BY_ACTIVITY: Final = (
    _TIP_SESSION + "ORDER BY c.last_active_at DESC, s.started_at DESC, s.id LIMIT ?"
)
SET_TITLE: Final = "UPDATE sessions SET title = ? WHERE id = ?"
SET_SYSTEM_PROMPT: Final = "UPDATE sessions SET system_prompt = ? WHERE id = ?"
END_SESSION: Final = (
    "UPDATE sessions SET ended_at = ?, end_reason = ? WHERE id = ? AND ended_at IS NULL"
)

# -- rows and places ------------------------------------------------------------------------
END_OF: Final = """
SELECT c.id, c.family, c.watermark FROM sessions s
JOIN conversations c ON c.id = s.conversation_id WHERE s.id = ?"""
COUNT_ACCEPTED: Final = """
UPDATE conversations SET watermark = ?, accepted_count = accepted_count + ?,
    live_count = live_count + ?, live_tokens = live_tokens + ?, last_active_at = ?
WHERE id = ?"""
COUNT_LIVE: Final = """
UPDATE conversations SET live_count = live_count + ?, live_tokens = live_tokens + ?
WHERE id = ?"""
NEW_ROW: Final = """
INSERT INTO messages (session_id, family, seq, kind, role, content, extra, tool_calls, tool_call_id,
    tool_name, reasoning, model, finish_reason, usage, created_at, tokens, blob)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"""
NEW_PLACE: Final = (
    "INSERT INTO places (conversation_id, seq, row_id, tokens, made_by) VALUES (?, ?, ?, ?, ?)"
)
NEW_BLOB: Final = (
    "INSERT INTO blobs (sha256, bytes, size) VALUES (?, ?, ?) ON CONFLICT (sha256) DO NOTHING"
)
BLOB: Final = "SELECT bytes, size FROM blobs WHERE sha256 = ?"
ROW_COLUMNS: Final = """m.id, m.kind, m.role, m.content, m.extra, m.tool_calls, m.tool_call_id,
    m.tool_name, m.reasoning, m.model, m.finish_reason, m.usage, m.created_at, m.blob,
    p.seq, m.tokens"""
_SHOWN_COLUMNS: Final = ROW_COLUMNS.replace("m.tokens", "p.tokens")
HEAD: Final = """
SELECT c.generation, c.watermark FROM sessions s
JOIN conversations c ON c.id = s.conversation_id WHERE s.id = ?"""
VIEW_HEAD: Final = """
SELECT c.id, c.generation, c.watermark, c.live_tokens, c.live_count FROM sessions s
JOIN conversations c ON c.id = s.conversation_id WHERE s.id = ?"""
LIVE_ROWS: Final = f"""
SELECT {_SHOWN_COLUMNS}, p.masked_by, p.stub
FROM live_places p JOIN messages m ON m.id = p.row_id
WHERE p.conversation_id = ? AND p.seq > ? AND p.seq <= ? ORDER BY p.seq"""
LIVE_ROW_AT: Final = """
SELECT p.row_id, m.created_at FROM live_places p JOIN messages m ON m.id = p.row_id
WHERE p.conversation_id = ? AND p.seq = ?"""
LIVE_PLACES: Final = """
SELECT seq, row_id, tokens, masked_by FROM live_places WHERE conversation_id = ? ORDER BY seq"""
HISTORY: Final = f"""
SELECT {ROW_COLUMNS}, p.made_by, p.compacted_by, p.hidden_by, p.masked_by
FROM places p JOIN messages m ON m.id = p.row_id
WHERE p.conversation_id = ? AND p.seq BETWEEN ? AND ?
ORDER BY p.seq, p.row_id"""
ACCEPTED: Final = f"""
SELECT {ROW_COLUMNS} FROM places p JOIN messages m ON m.id = p.row_id
WHERE p.conversation_id = ? AND p.seq BETWEEN ? AND ?
    AND p.made_by IS NULL AND p.hidden_by IS NULL
ORDER BY p.seq"""
COVERED_BY: Final = f"""
SELECT {ROW_COLUMNS} FROM places p JOIN messages m ON m.id = p.row_id
WHERE p.conversation_id = ? AND p.compacted_by = ? ORDER BY p.seq, p.row_id"""
MADE_BY: Final = f"""
SELECT {ROW_COLUMNS} FROM places p JOIN messages m ON m.id = p.row_id
WHERE p.conversation_id = ? AND p.made_by = ? ORDER BY p.seq, p.row_id"""
COVER_RUN: Final = """
UPDATE places SET compacted_by = ?
WHERE conversation_id = ? AND seq BETWEEN ? AND ? AND compacted_by IS NULL AND hidden_by IS NULL"""
MASK_PLACE: Final = """
UPDATE places SET masked_by = ?, stub = ?, tokens = ?
WHERE conversation_id = ? AND seq = ? AND row_id = ? AND masked_by IS NULL
    AND compacted_by IS NULL AND hidden_by IS NULL"""

# -- undo and rewind ------------------------------------------------------------------------
POINTED_PLACES: Final = """
SELECT seq, row_id, tokens, made_by, compacted_by, masked_by, hidden_by IS NOT NULL
FROM places WHERE conversation_id = ?
    AND (made_by IS NOT NULL OR compacted_by IS NOT NULL OR masked_by IS NOT NULL)"""
TOKENS_OF_MASKED: Final = """
SELECT m.id, m.tokens FROM places p JOIN messages m ON m.id = p.row_id
WHERE p.conversation_id = ? AND p.masked_by IS NOT NULL"""
HIDE_PLACE: Final = """
UPDATE places SET hidden_by = ? WHERE conversation_id = ? AND seq = ? AND row_id = ?"""
UNMASK_PLACE: Final = """
UPDATE places SET masked_by = NULL, stub = NULL, tokens = ?
WHERE conversation_id = ? AND seq = ? AND row_id = ?"""
FREE_UNDONE: Final = """
UPDATE places SET compacted_by = NULL
WHERE conversation_id = ? AND compacted_by IN (
    SELECT ordinal FROM compaction_passes WHERE conversation_id = ? AND status = 'undone')"""
NEWEST_POINTERS: Final = """
SELECT max(compacted_by), max(masked_by) FROM places
WHERE conversation_id = ? AND hidden_by IS NULL"""
SHOWN_SEQS_FROM: Final = """
SELECT DISTINCT seq FROM places
WHERE conversation_id = ? AND seq >= ? AND hidden_by IS NULL ORDER BY seq"""
PASSES_ACROSS: Final = """
SELECT compacted_by FROM places
WHERE conversation_id = ? AND compacted_by IS NOT NULL AND hidden_by IS NULL
GROUP BY compacted_by HAVING min(seq) < ? AND max(seq) >= ?"""
LATER_REWINDS: Final = """
SELECT ordinal, receipt FROM compaction_passes
WHERE conversation_id = ? AND kind = 'rewind' AND status = 'committed' AND ordinal > ?
ORDER BY ordinal"""
HIDE_FROM: Final = """
UPDATE places SET hidden_by = ? WHERE conversation_id = ? AND seq >= ? AND hidden_by IS NULL"""
HIDE_INSTEAD: Final = """
UPDATE places SET hidden_by = ? WHERE conversation_id = ? AND hidden_by = ? AND seq >= ?"""
SHOW_AGAIN: Final = """
UPDATE places SET hidden_by = NULL WHERE conversation_id = ? AND hidden_by = ?"""
LIVE_TOTALS: Final = "SELECT live_count, live_tokens FROM conversations WHERE id = ?"
TOTALS_FROM: Final = """
SELECT count(*), coalesce(sum(tokens), 0) FROM live_places
WHERE conversation_id = ? AND seq >= ?"""
TOTALS_HIDDEN: Final = """
SELECT count(*), coalesce(sum(tokens), 0) FROM places
WHERE conversation_id = ? AND hidden_by = ? AND compacted_by IS NULL"""

# -- forks ----------------------------------------------------------------------------------
FORKED_CONVERSATION: Final = """
INSERT INTO conversations (last_active_at, tip, family, generation)
SELECT ?, ?, family, generation FROM conversations WHERE id = ?"""
INHERIT_PASSES: Final = """
INSERT INTO compaction_passes (id, conversation_id, session_id, generation, status, kind, trigger,
    strategy, failure_class, detail, count, watermark, plan, lease_token, tokens_before,
    tokens_after, messages_before, messages_after, model, route, cost, gain_predicted, gain_actual,
    durations, receipt, target_pass, child_session_id, created_at, finished_at)
SELECT id, :child, session_id, generation, status, kind, trigger,
    strategy, failure_class, detail, count, watermark, plan, lease_token, tokens_before,
    tokens_after, messages_before, messages_after, model, route, cost, gain_predicted, gain_actual,
    durations, receipt, target_pass, child_session_id, created_at, finished_at
FROM compaction_passes WHERE conversation_id = :parent AND status = 'committed' AND (
    kind IN ('rewind', 'provider_native') AND watermark <= :last
    OR ordinal IN (
        SELECT compacted_by FROM places WHERE conversation_id = :parent AND seq <= :last
        UNION SELECT masked_by FROM places WHERE conversation_id = :parent AND seq <= :last
        EXCEPT SELECT compacted_by FROM places WHERE conversation_id = :parent AND seq > :last))
ORDER BY ordinal"""
_THERE: Final = """(SELECT n.ordinal FROM compaction_passes o
        JOIN compaction_passes n ON n.id = o.id AND n.conversation_id = :child
        WHERE o.ordinal = p.{})"""
"""The number that the fork's places carry for a pass; NULL when the fork did not inherit it."""
INHERIT_PLACES: Final = f"""
INSERT INTO places (conversation_id, seq, row_id, tokens, made_by, compacted_by, hidden_by,
    masked_by, stub)
SELECT :child, i.seq, i.row_id,
    CASE WHEN i.stub IS NULL OR i.mask IS NOT NULL THEN i.tokens
        ELSE (SELECT m.tokens FROM messages m WHERE m.id = i.row_id) END,
    i.maker, i.cover, i.rewind, i.mask, CASE WHEN i.mask IS NOT NULL THEN i.stub END
FROM (SELECT p.seq, p.row_id, p.tokens, p.made_by, p.stub,
        {_THERE.format("made_by")} AS maker, {_THERE.format("compacted_by")} AS cover,
        {_THERE.format("hidden_by")} AS rewind, {_THERE.format("masked_by")} AS mask
    FROM places p WHERE p.conversation_id = :parent AND p.seq <= :last) i
WHERE i.made_by IS NULL OR i.maker IS NOT NULL"""
IMPORT_PLACE: Final = """
INSERT INTO places (conversation_id, seq, row_id, tokens, made_by, compacted_by, hidden_by,
    masked_by, stub)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)"""
INHERIT_PINS: Final = """
INSERT INTO pins (conversation_id, text, source_seq, created_at, retired_at, retired_by,
    retired_seq)
SELECT :child, text, source_seq, created_at, retired_at, retired_by, retired_seq FROM pins
WHERE conversation_id = :parent AND coalesce(source_seq, 0) <= :last
ORDER BY id"""
REVIVE_PINS: Final = """
UPDATE pins SET retired_at = NULL, retired_by = NULL, retired_seq = NULL
WHERE conversation_id = :child AND retired_seq > :last"""
RECOUNT: Final = """
UPDATE conversations SET
    watermark = (SELECT coalesce(max(seq), 0) FROM places
        WHERE conversation_id = conversations.id),
    accepted_count = (SELECT count(*) FROM places
        WHERE conversation_id = conversations.id AND made_by IS NULL),
    live_count = (SELECT count(*) FROM live_places WHERE conversation_id = conversations.id),
    live_tokens = (SELECT coalesce(sum(tokens), 0) FROM live_places
        WHERE conversation_id = conversations.id),
    pass_count = (SELECT count(*) FROM compaction_passes
        WHERE conversation_id = conversations.id AND status = 'committed'
            AND kind NOT IN ('undo', 'rewind', 'import'))
WHERE id = ?"""

# -- guards ---------------------------------------------------------------------------------
COOLDOWN: Final = """
SELECT compression_failure_cooldown_until, compression_failure_error, failure_class
FROM conversations WHERE id = ?"""
ARM_COOLDOWN: Final = """
UPDATE conversations SET
    compression_failure_cooldown_until = CASE
        WHEN compression_failure_cooldown_until > ? THEN compression_failure_cooldown_until
        ELSE ? END,
    compression_failure_error = ?, failure_class = ?
WHERE id = ?"""
CLEAR_COOLDOWN: Final = """
UPDATE conversations SET compression_failure_cooldown_until = NULL,
    compression_failure_error = NULL, failure_class = '' WHERE id = ?"""
HEALTH: Final = "SELECT health FROM conversations WHERE id = ?"
SET_HEALTH: Final = "UPDATE conversations SET health = ? WHERE id = ?"
ANCHOR: Final = "SELECT usage_anchor FROM conversations WHERE id = ?"
SET_ANCHOR: Final = "UPDATE conversations SET usage_anchor = ? WHERE id = ?"

# -- leases ---------------------------------------------------------------------------------
LEASE: Final = """
SELECT holder, token, expires_at FROM compression_locks WHERE conversation_id = ?"""
TAKE_LEASE: Final = """
INSERT INTO compression_locks
    (conversation_id, holder, token, acquired_at, expires_at, ttl_s, ceiling_at)
VALUES (?, ?, 1, ?, ?, ?, ?)
ON CONFLICT (conversation_id) DO UPDATE SET
    holder = excluded.holder, token = compression_locks.token + 1,
    acquired_at = excluded.acquired_at, expires_at = excluded.expires_at,
    ttl_s = excluded.ttl_s, ceiling_at = excluded.ceiling_at
RETURNING token"""
REFRESH_LEASE: Final = """
UPDATE compression_locks SET
    expires_at = CASE WHEN ? + ttl_s < ceiling_at THEN ? + ttl_s ELSE ceiling_at END
WHERE conversation_id = ? AND token = ? AND holder = ? AND ceiling_at > ?"""
RELEASE_LEASE: Final = """
UPDATE compression_locks SET holder = '', expires_at = 0
WHERE conversation_id = ? AND token = ? AND holder = ?"""

SEIZE_LEASE: Final = """
UPDATE compression_locks SET holder = '', token = token + 1, expires_at = 0
WHERE conversation_id = ?"""

# -- passes ---------------------------------------------------------------------------------
CLOSE_CRASHED: Final = """
UPDATE compaction_passes SET status = 'aborted', failure_class = 'crashed', finished_at = ?
WHERE conversation_id = ? AND status IN ('planned', 'prepared') AND status = 'planned'"""
NEW_PASS: Final = """
INSERT INTO compaction_passes (id, conversation_id, session_id, generation, status, kind, trigger,
    strategy, failure_class, detail, watermark, lease_token, tokens_before, tokens_after,
    messages_before, messages_after, model, route, receipt, target_pass, created_at, finished_at)
SELECT :pass_id, id, :session_id, generation, :status, :kind, :trigger, :strategy, :failure_class,
    :detail, coalesce(:watermark, watermark), :lease_token, :tokens_before, :tokens_after,
    :messages_before, :messages_after, :model, :route, :receipt, :target_pass, :created_at,
    :finished_at
FROM conversations WHERE id = :conversation_id"""
OPEN_PASS_OF: Final = """
SELECT id, status FROM compaction_passes
WHERE conversation_id = ? AND status IN ('planned', 'prepared')"""
SUPERSEDE_OPEN: Final = """
UPDATE compaction_passes SET status = 'superseded', failure_class = 'attempt_superseded',
    finished_at = ?
WHERE conversation_id = ? AND status IN ('planned', 'prepared')"""
SPENT_SINCE: Final = """
SELECT coalesce(sum(cost), 0.0) FROM compaction_passes
WHERE conversation_id = ? AND coalesce(finished_at, created_at) >= ?"""
NOTE_ON_RECEIPT: Final = """
UPDATE compaction_passes SET receipt = json_patch(receipt, :noted),
    gain_actual = json_extract(:noted, '$.gain.actual_tokens')
WHERE ordinal = (
    SELECT max(ordinal) FROM compaction_passes
    WHERE conversation_id = :conversation_id AND status = 'committed')"""
MARK_UNDONE: Final = "UPDATE compaction_passes SET status = 'undone' WHERE ordinal = ?"
PASS_STATE: Final = """
SELECT ordinal, conversation_id, status, lease_token FROM compaction_passes
WHERE id = ? AND coalesce(?, conversation_id) = conversation_id ORDER BY ordinal"""
PREPARE_PASS: Final = """
UPDATE compaction_passes SET status = 'prepared', plan = ?, cost = ?,
    model = coalesce(?, model), route = coalesce(?, route)
WHERE id = ? AND status = 'planned'"""
ADOPT_PASS: Final = """
UPDATE compaction_passes SET lease_token = ?, trigger = ? WHERE id = ? AND status = 'prepared'"""
CLOSE_PASS: Final = """
UPDATE compaction_passes SET status = ?, failure_class = ?, detail = ?, cost = coalesce(?, cost),
    durations = ?, finished_at = ?
WHERE id = ? AND status IN ('planned', 'prepared')"""
COMMIT_PASS: Final = """
UPDATE compaction_passes SET status = 'committed', kind = ?, strategy = ?, failure_class = ?,
    generation = ?, tokens_after = ?, messages_after = ?, cost = ?, durations = ?, receipt = ?,
    gain_predicted = json_extract(?, '$.gain.predicted_tokens'), finished_at = ?,
    child_session_id = ?
WHERE ordinal = ? AND status IN ('planned', 'prepared')"""
BUMP_GENERATION: Final = """
UPDATE conversations SET generation = generation + 1, pass_count = pass_count + ?
WHERE id = ? RETURNING generation"""
NEWEST_PASSES: Final = """
SELECT id, status, failure_class, generation FROM compaction_passes
WHERE conversation_id = ? ORDER BY ordinal DESC"""
COUNT_PASS: Final = "UPDATE conversations SET pass_count = pass_count + 1 WHERE id = ?"
NATIVE_STANDING: Final = """
SELECT p.ordinal FROM compaction_passes p
JOIN conversations c ON c.id = p.conversation_id AND c.generation = p.generation
WHERE p.conversation_id = ? AND p.kind = 'provider_native' AND p.status = 'committed'
ORDER BY p.ordinal DESC"""
GENERATION: Final = "SELECT generation FROM conversations WHERE id = ?"
FOLD: Final = """
UPDATE compaction_passes SET count = count + 1, detail = ?, finished_at = ? WHERE id = ?"""
PASS_COLUMNS: Final = """
SELECT id, conversation_id, session_id, generation, status, kind, trigger, strategy,
    failure_class, detail, count, watermark, plan, lease_token, tokens_before, tokens_after,
    messages_before, messages_after, model, route, cost, durations, receipt, target_pass,
    child_session_id, created_at, finished_at
FROM compaction_passes
"""
PASSES_OF: Final = PASS_COLUMNS + "WHERE conversation_id = ? ORDER BY ordinal"
OPEN_PASSES_OF: Final = (
    PASS_COLUMNS + "WHERE conversation_id = ? AND status IN ('planned', 'prepared')"
)
PASSES_BY_PREFIX: Final = (
    PASS_COLUMNS
    + """WHERE substr(id, 1, length(:name)) = :name AND ordinal = (
    SELECT min(e.ordinal) FROM compaction_passes e
    WHERE e.id = compaction_passes.id
        AND coalesce(:conversation_id, e.conversation_id) = e.conversation_id)
ORDER BY ordinal LIMIT :limit"""
)
PASS_BY_ID: Final = PASS_COLUMNS + "WHERE id = ?"
PASS_BY_ORDINAL: Final = PASS_COLUMNS + "WHERE ordinal = ?"
UNDO_OF: Final = PASS_COLUMNS + "WHERE conversation_id = ? AND target_pass = ?"
PASS_IDS: Final = "SELECT ordinal, id FROM compaction_passes WHERE conversation_id = ?"

# -- prefixes -------------------------------------------------------------------------------
PREFIX: Final = """
SELECT c.id, c.tip, c.generation, c.watermark, c.live_tokens, s.system_prompt FROM prefixes x
JOIN conversations c ON c.id = x.conversation_id JOIN sessions s ON s.id = c.tip
WHERE x.owner_digest = ? AND x.prefix_hash = ?"""
SET_PREFIX: Final = """
INSERT INTO prefixes (prefix_hash, owner_digest, conversation_id, seq, seen_at)
VALUES (?, ?, ?, ?, ?)
ON CONFLICT (owner_digest, prefix_hash) DO UPDATE SET
    conversation_id = excluded.conversation_id, seq = excluded.seq, seen_at = excluded.seen_at"""
FIRST_REWOUND: Final = """
SELECT min(p.seq) FROM compaction_passes a
JOIN places p ON p.conversation_id = a.conversation_id AND p.hidden_by = a.ordinal
WHERE a.conversation_id = ? AND a.kind = 'rewind' AND a.status = 'committed'
    AND p.made_by IS NULL"""
STANDING: Final = """
SELECT c.id, c.generation, c.live_tokens FROM sessions s
JOIN conversations c ON c.id = s.conversation_id WHERE s.id = ?"""
