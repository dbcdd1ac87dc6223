"""Checking a whole store: every law that can be seen on disk, one line a broken one."""

from __future__ import annotations

from typing import Final

from agent.sessions.records import CheckReport
from agent.sessions.sqlite import Connection

_COUNTED: Final = """
SELECT c.id, c.live_count, c.live_tokens, c.accepted_count, c.pass_count, c.generation,
    c.watermark,
    coalesce(sum(p.live), 0), coalesce(sum(p.live * p.tokens), 0), coalesce(sum(p.accepted), 0),
    (SELECT count(*) FROM compaction_passes a
        WHERE a.conversation_id = c.id AND a.status = 'committed'
            AND a.kind NOT IN ('undo', 'rewind', 'import')),
    (SELECT count(*) FROM compaction_passes a
        WHERE a.conversation_id = c.id AND a.status IN ('committed', 'undone')
            AND a.kind <> 'provider_native'),
    coalesce(max(p.seq), 0)
FROM conversations c LEFT JOIN (
    SELECT conversation_id, seq, tokens,
        CASE WHEN compacted_by IS NULL AND hidden_by IS NULL THEN 1 ELSE 0 END AS live,
        CASE WHEN made_by IS NULL THEN 1 ELSE 0 END AS accepted
    FROM places) p ON p.conversation_id = c.id
GROUP BY c.id"""
_COUNTERS: Final = ("live_count", "live_tokens", "accepted_count", "pass_count")

_LAWS: Final = (
    (
        "row {0} stands in no conversation",
        """SELECT m.id FROM messages m WHERE NOT EXISTS (
            SELECT 1 FROM conversations c JOIN places p
                ON p.conversation_id = c.id AND p.seq = m.seq AND p.row_id = m.id
            WHERE c.family = m.family)""",
    ),
    (
        "conversation {0} is carried on by {1!r}, which is no session of it",
        """SELECT c.id, c.tip FROM conversations c
        LEFT JOIN sessions s ON s.id = c.tip AND s.conversation_id = c.id
        WHERE s.id IS NULL""",
    ),
    (
        "session {0!r} carries its conversation on, but was followed by {1!r}",
        """SELECT c.tip, s.id FROM conversations c
        JOIN sessions s ON s.parent_session_id = c.tip AND s.conversation_id = c.id""",
    ),
    (
        "place {1} of conversation {0} points at row {2}, which does not exist",
        """SELECT p.conversation_id, p.seq, p.row_id FROM places p
        LEFT JOIN messages m ON m.id = p.row_id WHERE m.id IS NULL""",
    ),
    (
        "place {1} of conversation {0} points at row {2}, which is of another family",
        """SELECT p.conversation_id, p.seq, p.row_id FROM places p
        JOIN messages m ON m.id = p.row_id JOIN conversations c ON c.id = p.conversation_id
        WHERE m.family <> c.family""",
    ),
    (
        "place {1} of conversation {0} is covered by a pass that is not in force",
        """SELECT p.conversation_id, p.seq FROM places p
        LEFT JOIN compaction_passes a
            ON a.ordinal = p.compacted_by AND a.conversation_id = p.conversation_id
        WHERE p.compacted_by IS NOT NULL AND (a.status IS NULL OR a.status <> 'committed')""",
    ),
    (
        "place {1} of conversation {0} is masked by a pass that is not in force",
        """SELECT p.conversation_id, p.seq FROM places p
        LEFT JOIN compaction_passes a
            ON a.ordinal = p.masked_by AND a.conversation_id = p.conversation_id
        WHERE p.masked_by IS NOT NULL AND (a.status IS NULL OR a.status <> 'committed')""",
    ),
    (
        "place {1} of conversation {0} was made by a pass that never was in force",
        """SELECT p.conversation_id, p.seq FROM places p
        LEFT JOIN compaction_passes a
            ON a.ordinal = p.made_by AND a.conversation_id = p.conversation_id
        WHERE p.made_by IS NOT NULL
            AND (a.status IS NULL OR a.status NOT IN ('committed', 'undone'))""",
    ),
    (
        "place {1} of conversation {0} is shown, but the pass that made it was undone",
        """SELECT p.conversation_id, p.seq FROM places p
        JOIN compaction_passes a ON a.ordinal = p.made_by
        WHERE p.hidden_by IS NULL AND a.status = 'undone'""",
    ),
    (
        "place {1} of conversation {0} is hidden by no rewind in force",
        """SELECT p.conversation_id, p.seq FROM places p
        LEFT JOIN compaction_passes a
            ON a.ordinal = p.hidden_by AND a.conversation_id = p.conversation_id
        LEFT JOIN compaction_passes b ON b.ordinal = p.made_by
        WHERE p.hidden_by IS NOT NULL AND (
            a.status IS NULL OR a.status <> 'committed' OR a.kind NOT IN ('rewind', 'undo')
            OR (a.kind = 'undo' AND (b.id IS NULL OR b.id <> a.target_pass)))""",
    ),
    (
        "place {1} of conversation {0} was made by a pass in force that covers nothing",
        """SELECT p.conversation_id, p.seq FROM places p
        JOIN compaction_passes a ON a.ordinal = p.made_by AND a.status = 'committed'
        WHERE p.made_by NOT IN (
            SELECT compacted_by FROM places WHERE compacted_by IS NOT NULL)""",
    ),
    (
        "pass {1} of conversation {0} is undone, but no undo names it",
        """SELECT a.conversation_id, a.id FROM compaction_passes a
        LEFT JOIN compaction_passes b
            ON b.conversation_id = a.conversation_id AND b.target_pass = a.id
            AND b.kind = 'undo' AND b.status = 'committed'
        WHERE a.status = 'undone' AND b.id IS NULL""",
    ),
    (
        "conversation {0} has two live places with seq {1}",
        """SELECT conversation_id, seq FROM places
        WHERE compacted_by IS NULL AND hidden_by IS NULL
        GROUP BY conversation_id, seq HAVING count(*) > 1""",
    ),
    (
        "conversation {0} has two accepted rows with seq {1}",
        """SELECT conversation_id, seq FROM places WHERE made_by IS NULL
        GROUP BY conversation_id, seq HAVING count(*) > 1""",
    ),
    (
        "row {0} refers to blob {1}, which is missing",
        """SELECT m.id, m.blob FROM messages m LEFT JOIN blobs b ON b.sha256 = m.blob
        WHERE m.blob IS NOT NULL AND b.sha256 IS NULL""",
    ),
    (
        "pass {0} is planned, but no lease stands behind it",
        """SELECT a.id FROM compaction_passes a
        LEFT JOIN compression_locks l ON l.conversation_id = a.conversation_id
            AND l.token = a.lease_token AND l.holder <> ''
        WHERE a.status = 'planned' AND l.token IS NULL""",
    ),
)
_TOTALS: Final = """
SELECT (SELECT count(*) FROM conversations), (SELECT count(*) FROM messages),
    (SELECT count(*) FROM compaction_passes)"""


def check_store(connection: Connection) -> CheckReport:
    """Return every broken law; reads the whole store."""
    problems = [row[0] for row in connection.execute("PRAGMA integrity_check") if row[0] != "ok"]
    for line, statement in _LAWS:
        problems += [line.format(*row) for row in connection.execute(statement)]
    problems += _check_counters(connection)
    return CheckReport(problems, *connection.execute(_TOTALS).fetchone())


def _check_counters(connection: Connection) -> list[str]:
    problems = []
    for row in connection.execute(_COUNTED):
        conversation_id, kept, counted = row[0], row[1:5], row[7:11]
        for name, value, real in zip(_COUNTERS, kept, counted, strict=True):
            if value != real:
                problems.append(
                    f"conversation {conversation_id} keeps {name} {value}, it is {real}"
                )
        generation, watermark, closed, last_seq = row[5], row[6], row[11], row[12]
        if generation < closed:
            problems.append(
                f"conversation {conversation_id} has generation {generation} after {closed} passes"
            )
        if watermark != last_seq:
            problems.append(
                f"conversation {conversation_id} keeps watermark {watermark}, it is {last_seq}"
            )
    return problems
