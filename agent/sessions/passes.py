"""The ledger: one row for each attempt to change a view. `commit.py` closes what succeeds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

import orjson

from agent.base.errors import PassSuperseded, StoreError, UnknownPass, UsageError
from agent.base.ids import new_pass_id
from agent.base.messages import Message, clean_text
from agent.sessions import cooldowns
from agent.sessions import statements as sql
from agent.sessions.blobs import whole
from agent.sessions.leases import require_token
from agent.sessions.places import conversation_of
from agent.sessions.records import (
    Lease,
    PassClosing,
    PassKind,
    PassOpening,
    PassRecord,
    PassStatus,
)
from agent.sessions.rows import decode_row, dump_record
from agent.sessions.sqlite import Connection

_UNSTARTED = (PassStatus.SKIPPED, PassStatus.BLOCKED)
_CLOSED = (PassStatus.ABORTED, PassStatus.FAILED, PassStatus.SUPERSEDED)
_NAMED_PASSES = 5
_BLANK: Mapping[str, Any] = {
    **dict.fromkeys(("strategy", "failure_class", "detail", "model", "route"), ""),
    **dict.fromkeys(("tokens_before", "tokens_after", "messages_before", "messages_after")),
    **dict.fromkeys(("watermark", "lease_token", "target_pass", "finished_at")),
    "receipt": "{}",
}
"""What a new ledger row holds unless told otherwise; no watermark means the conversation's."""


def decode_pass(row: tuple[Any, ...]) -> PassRecord:
    """Return the record of a row selected with `statements.PASS_COLUMNS`."""
    values = list(row)
    values[4] = PassStatus(row[4])
    values[5] = PassKind(row[5])
    for index in (12, 21, 22):
        values[index] = orjson.loads(row[index])
    return PassRecord(*values)


def open_pass(connection: Connection, opening: PassOpening, now: float) -> None:
    """Insert a `planned` row under the lease that the opening names."""
    conversation_id = conversation_of(connection, opening.session_id)
    require_token(connection, conversation_id, opening.lease_token)
    rival = connection.execute(sql.OPEN_PASS_OF, (conversation_id,)).fetchone()
    if rival is not None:
        raise StoreError(
            f"pass {rival[0]!r} of session {opening.session_id!r} is still {rival[1]}; "
            "adopt or close it first"
        )
    insert_pass(
        connection,
        **asdict(opening),
        conversation_id=conversation_id,
        status=PassStatus.PLANNED,
        created_at=now,
    )


def insert_pass(connection: Connection, **columns: Any) -> int:
    """Insert a ledger row at its conversation's generation; return the number places carry."""
    connection.execute(sql.NEW_PASS, {**_BLANK, **columns})
    return pass_state(connection, columns["pass_id"], columns["conversation_id"])[0]


def prepare_pass(connection: Connection, pass_id: str, plan: Mapping[str, Any]) -> None:
    """Keep the plan of a `planned` pass, what it has cost, and who wrote the summary."""
    text = dump_record(plan, f"the plan of pass {pass_id!r}")
    wrote = plan.get("cost"), plan.get("model") or None, plan.get("route") or None
    _require_change(connection, sql.PREPARE_PASS, (text, *wrote, pass_id), pass_id)


def adopt_pass(connection: Connection, pass_id: str, lease: Lease, trigger: str) -> None:
    """Move a `prepared` pass under a new lease."""
    require_token(connection, lease.conversation_id, lease.token, lease.holder)
    _require_change(connection, sql.ADOPT_PASS, (lease.token, trigger, pass_id), pass_id)


def _require_change(
    connection: Connection, statement: str, values: tuple[Any, ...], pass_id: str
) -> None:
    if connection.execute(statement, values).rowcount != 1:
        raise closed_pass(pass_id, pass_state(connection, pass_id)[2])


def closed_pass(pass_id: str, status: str) -> PassSuperseded:
    """Return the error for a step that the pass's status does not allow."""
    return PassSuperseded(f"pass {pass_id!r} is already {status}; plan again")


def pass_state(
    connection: Connection, pass_id: str, conversation_id: int | None = None
) -> tuple[int, int, str, int | None]:
    """Return (ordinal, conversation id, status, lease token), without a conversation those of the
    first that has the pass. Raises: UnknownPass."""
    row: tuple[int, int, str, int | None] | None = connection.execute(
        sql.PASS_STATE, (pass_id, conversation_id)
    ).fetchone()
    if row is None:
        raise _unknown_pass(pass_id)
    return row


def close_pass(connection: Connection, closing: PassClosing, now: float) -> None:
    """End an open attempt and write its guards; one that is closed already stays as it is."""
    if closing.status not in _CLOSED:
        raise UsageError(
            f"a pass cannot be closed as {closing.status!r}; use one of {[*map(str, _CLOSED)]}"
        )
    conversation_id = pass_state(connection, closing.pass_id)[1]
    durations = dump_record(closing.durations, "durations")
    cursor = connection.execute(
        sql.CLOSE_PASS,
        (
            closing.status,
            closing.failure_class,
            clean_text(closing.detail),
            closing.cost,
            durations,
            now,
            closing.pass_id,
        ),
    )
    if cursor.rowcount == 1:
        cooldowns.write_guards(connection, conversation_id, closing.guards)


def note_unstarted(
    connection: Connection,
    session_id: str,
    *,
    status: str,
    failure_class: str,
    trigger: str,
    detail: str,
    now: float,
) -> PassRecord:
    """Count an attempt that never began, in the newest row of its class while nothing changed."""
    if status not in _UNSTARTED:
        raise UsageError(
            f"{status!r} is no status of an attempt that never began; "
            f"use one of {[*map(str, _UNSTARTED)]}"
        )
    detail = clean_text(detail)
    conversation_id = conversation_of(connection, session_id)
    pass_id = _foldable(connection, conversation_id, status, failure_class)
    if pass_id is not None:
        connection.execute(sql.FOLD, (detail, now, pass_id))
    else:
        pass_id = new_pass_id()
        insert_pass(
            connection,
            pass_id=pass_id,
            conversation_id=conversation_id,
            session_id=session_id,
            status=status,
            kind=PassKind.SUMMARY,
            trigger=trigger,
            failure_class=failure_class,
            detail=detail,
            created_at=now,
            finished_at=now,
        )
    return decode_pass(connection.execute(sql.PASS_BY_ID, (pass_id,)).fetchone())


def _foldable(
    connection: Connection, conversation_id: int, status: str, failure_class: str
) -> str | None:
    """Return the row of that class which no attempt and no new generation came after."""
    generation = connection.execute(sql.GENERATION, (conversation_id,)).fetchone()[0]
    for row in connection.execute(sql.NEWEST_PASSES, (conversation_id,)):
        pass_id, *state = row
        if state == [status, failure_class, generation]:
            return str(pass_id)
        if state[0] not in _UNSTARTED:
            break
    return None


def read_prepared(connection: Connection, session_id: str) -> PassRecord | None:
    """Return the conversation's prepared pass."""
    conversation_id = conversation_of(connection, session_id)
    for row in connection.execute(sql.OPEN_PASSES_OF, (conversation_id,)).fetchall():
        record = decode_pass(row)
        if record.status is PassStatus.PREPARED:
            return record
    return None


def read_passes(connection: Connection, session_id: str) -> list[PassRecord]:
    """Return the ledger, oldest first."""
    conversation_id = conversation_of(connection, session_id)
    rows = connection.execute(sql.PASSES_OF, (conversation_id,))
    return [decode_pass(row) for row in rows]


def read_spent(connection: Connection, session_id: str, since: float) -> float:
    """Return what the conversation's passes cost since an instant; unknown prices count nothing."""
    conversation_id = conversation_of(connection, session_id)
    spent: float = connection.execute(sql.SPENT_SINCE, (conversation_id, since)).fetchone()[0]
    return spent


def read_pass(connection: Connection, name: str, conversation_id: int | None = None) -> PassRecord:
    """Return the pass with that id or unique prefix, in one conversation or in the first one."""
    wanted = {"name": name, "conversation_id": conversation_id, "limit": _NAMED_PASSES}
    rows = connection.execute(sql.PASSES_BY_PREFIX, wanted).fetchall()
    if not name or not rows:
        raise _unknown_pass(name)
    exact = [row for row in rows if row[0] == name] or rows
    if len(exact) > 1:
        named = ", ".join(row[0] for row in exact)
        raise UnknownPass(f"several passes begin with {name!r} ({named}); give more characters")
    return decode_pass(exact[0])


def _unknown_pass(name: str) -> UnknownPass:
    return UnknownPass(f"no compaction pass {name!r}; see `hermes compactions list`")


def read_pass_rows(
    connection: Connection, pass_id: str, conversation_id: int | None
) -> tuple[list[Message], list[Message]]:
    """Return the rows that a pass covers and those that it made, in one conversation or in the
    first that has it."""
    ordinal, conversation_id, _status, _token = pass_state(connection, pass_id, conversation_id)
    covered, made = (
        [
            whole(connection, decode_row(row))
            for row in connection.execute(statement, (conversation_id, ordinal)).fetchall()
        ]
        for statement in (sql.COVERED_BY, sql.MADE_BY)
    )
    return covered, made
