"""Messages to columns and back, losslessly.

`content` always holds the searchable text. A key whose value no column holds exactly (parts,
null, an unknown key) stands in `extra`, which wins when a row is read.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import orjson

from agent.base.errors import UsageError
from agent.base.messages import Message, clean_value, text_of

STORE_KEYS = frozenset(
    (
        "_row_id",
        "_seq",
        "_tokens",
        "_at",
        "_kind",
        "_blob",
        "_stub",
        "_masked_by",
        "_ref",
    )
)
"""Keys that the store gives; on the way in they are dropped."""

_TEXT_COLUMNS = (
    "content",
    "tool_call_id",
    "name",
    "_reasoning",
    "_model",
    "_finish_reason",
)
_JSON_COLUMNS = ("tool_calls", "_usage")
_OPTIONS = orjson.OPT_PASSTHROUGH_DATETIME | orjson.OPT_PASSTHROUGH_DATACLASS

Values = tuple[str | None, ...]
"""role, content, extra, tool_calls, tool_call_id, tool_name, reasoning, model, finish_reason,
usage: in the order of the columns of `messages`."""


class EncodedRow(NamedTuple):
    """A message on its way in: cleaned, and as column values."""

    message: Message
    values: Values


def dump_json(value: Any, what: str) -> str:
    """Return JSON text that reads back as `value`.

    Raises: UsageError: JSON cannot hold it exactly (NaN, an integer over 64 bits, an object).
    """
    try:
        text = orjson.dumps(value, option=_OPTIONS)
    except (TypeError, RecursionError) as error:
        raise UsageError(f"cannot store {what}: {error}; pass plain JSON values") from error
    if b"null" in text and orjson.loads(text) != value:
        raise UsageError(f"cannot store {what}: it holds NaN or infinity; pass plain JSON values")
    return text.decode()


def dump_record(record: Mapping[str, Any], what: str) -> str:
    """Return JSON text of a record of ours; its strings become storable as a message's do."""
    plain = dict(record)
    # Nearly every record is storable as it is, and to copy a large one costs more than to write it.
    try:
        text = orjson.dumps(plain, option=_OPTIONS)
    except TypeError:
        return dump_json(clean_value(plain), what)
    if b"\\u0000" in text or (b"null" in text and orjson.loads(text) != plain):
        return dump_json(clean_value(plain), what)
    return text.decode()


def encode_row(message: Message) -> EncodedRow:
    """Return the cleaned message and its columns; the message itself is not touched."""
    clean: Message = clean_value({k: v for k, v in message.items() if k not in STORE_KEYS})
    role = clean.get("role")
    if not isinstance(role, str) or not role:
        raise UsageError(f"cannot store a message with role {role!r}; give it a role")
    _require_calls(clean.get("tool_calls"))
    columns: dict[str, str | None] = {}
    extra: dict[str, Any] = {}
    for key, value in clean.items():
        if isinstance(value, str) and key in _TEXT_COLUMNS:
            columns[key] = value
        elif key in _JSON_COLUMNS and value and isinstance(value, list | dict):
            columns[key] = dump_json(value, f"message field {key!r}")
        elif key != "role":
            extra[key] = value
    if "content" in extra:
        columns["content"] = text_of(extra["content"]) or None
    take = columns.get
    values = (
        role,
        take("content"),
        dump_json(extra, f"message fields {sorted(extra)}") if extra else None,
        take("tool_calls"),
        take("tool_call_id"),
        take("name"),
        take("_reasoning"),
        take("_model"),
        take("_finish_reason"),
        take("_usage"),
    )
    return EncodedRow(clean, values)


def _require_calls(calls: Any) -> None:
    is_list = isinstance(calls, list) and all(isinstance(call, dict) for call in calls)
    if calls and not (is_list and all(isinstance(c.get("function", {}), dict) for c in calls)):
        raise UsageError(
            f"cannot store tool_calls {calls!r:.200}; pass a list of objects with `function`"
        )


def decode_row(row: tuple[Any, ...]) -> Message:
    """Return the message of a row selected with `statements.ROW_COLUMNS`; more columns may follow.

    Shape: the accepted keys, then `_row_id`, `_seq`, `_tokens`, `_at`, and `_kind` and `_blob`
    where they say something.
    """
    message: Message = {"role": row[2]}
    if row[3] is not None:
        message["content"] = row[3]
    if row[5] is not None:
        message["tool_calls"] = orjson.loads(row[5])
    if row[6] is not None:
        message["tool_call_id"] = row[6]
    if row[7] is not None:
        message["name"] = row[7]
    if row[8] is not None:
        message["_reasoning"] = row[8]
    if row[9] is not None:
        message["_model"] = row[9]
    if row[10] is not None:
        message["_finish_reason"] = row[10]
    if row[11] is not None:
        message["_usage"] = orjson.loads(row[11])
    if row[4] is not None:
        message.update(orjson.loads(row[4]))
    if row[1] != "message":
        message["_kind"] = row[1]
    if row[13] is not None:
        message["_blob"] = row[13]
    message["_row_id"] = row[0]
    message["_seq"] = row[14]
    message["_tokens"] = row[15]
    message["_at"] = row[12]
    return message
