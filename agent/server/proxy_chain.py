"""What a client sent, read once: its history as a chain of hashes, and who it belongs to.

Two renderings of one message have one hash where they differ in ways that mean nothing; a message
that somebody edited has another, and so have all that follow it. Pure.
"""

from __future__ import annotations

import hashlib
import re
import threading
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

import orjson

from agent.base.messages import Message, clean_text, clean_value, text_of
from agent.base.record import dataclass
from agent.base.tokens import estimate_message, estimate_text, estimate_tools
from agent.sessions.blobs import INLINE_BYTES

SYSTEM_ROLES = frozenset({"system", "developer"})
_VERSION = re.compile(r"[-@](?:\d{4}-?\d{2}-?\d{2}|\d{4}|latest|preview)$")
_KEPT_CHAINS = 128
_MARKS = frozenset({"cache_control"})
"""Fields of parts that clients move from message to message."""
_SCHEMAS = ("tools", "functions", "response_format")
"""Fields beside the messages that fill the window."""


@dataclass(frozen=True)
class Beside:
    """What a request holds beside its rows: its system messages, each with the number of rows
    before it, and the fields that fill the window."""

    system_at: Sequence[tuple[int, Message]]
    schemas: Sequence[Any]

    @cached_property
    def prompt(self) -> str:
        """The system messages as one text."""
        texts = (text_of(message.get("content")) for _at, message in self.system_at)
        return clean_text("\n\n".join(texts))

    @cached_property
    def tokens(self) -> int:
        """Estimated tokens of all of it."""
        schemas = sum(
            estimate_tools(field) if isinstance(field, list) else estimate_text(str(field))
            for field in self.schemas
        )
        return schemas + sum(estimate_message(message) for _at, message in self.system_at)


@dataclass(frozen=True)
class Sent:
    """One request as the client sent it.

    `rows` are its messages without system messages, the very dicts of `body`; `hashes` belong to
    them. `beyond_tokens` are a bound of what large tool results hold beyond the excerpts that are
    stored.
    """

    body: Mapping[str, Any]
    rows: Sequence[Message]
    hashes: Sequence[str]
    beside: Beside
    model: str
    owner: str
    beyond_tokens: int

    @property
    def system_at(self) -> Sequence[tuple[int, Message]]:
        """Each system message with the number of rows before it."""
        return self.beside.system_at

    @property
    def overhead_tokens(self) -> int:
        """Estimated tokens of what it holds beside its rows."""
        return self.beside.tokens


_Opening = tuple[str, bytes]
"""Whose conversation, and how it begins."""


class Unreadable(Exception):
    """A request that is none: its text says why, for the client."""


class Chains:
    """Makes chains, and keeps the last ones: a client that goes on sends the same messages again,
    and to compare them takes a tenth of the time of hashing them. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._kept: OrderedDict[_Opening, tuple[Sequence[Message], list[str]]] = OrderedDict()

    def of(self, rows: Sequence[Message], *, start: str, owner: str = "") -> list[str]:
        """Return what `chain` does."""
        if not rows:
            return []
        first = link(start.encode("utf-8", "replace"), rows[0])
        opening = owner, first
        with self._lock:
            known_rows, known = self._kept.pop(opening, ((), []))
        same = 0
        for row, before in zip(rows, known_rows, strict=False):
            if row is not before and row != before:
                break
            same += 1
        hashes = known[:same] or [first.hex()]
        hashes = longer(hashes, rows[len(hashes) :])
        with self._lock:
            self._kept[opening] = (rows, hashes)
            if len(self._kept) > _KEPT_CHAINS:
                self._kept.popitem(last=False)
        return hashes


def read_request(
    body: Any, key: str, chains: Chains | None = None, *, before: Sent | None = None
) -> Sent:
    """Return what a parsed body says; one that goes on from `before` begins with its messages.

    Raises: Unreadable.
    """
    if not isinstance(body, dict):
        raise Unreadable(f"the body must be a JSON object, not {type(body).__name__}")
    messages = body.get("messages")
    if not isinstance(messages, list):
        raise Unreadable(f"messages must be a list, not {type(messages).__name__}")
    known = len(before.body["messages"]) if before else 0
    rows = list(before.rows) if before else []
    system_at = list(before.system_at) if before else []
    first, first_system = len(rows), len(system_at)
    for index, message in enumerate(messages[known:], start=known):
        _require_message(message, index)
        if message["role"] in SYSTEM_ROLES:
            system_at.append((len(rows), message))
        else:
            rows.append(message)
    beyond_tokens = sum(map(_beyond_tokens, rows[first:]))
    if before and before.hashes:
        hashes = longer(before.hashes, rows[first:])
        beside = before.beside
        if len(system_at) > first_system:
            beside = Beside(system_at, beside.schemas)
        beyond_tokens += before.beyond_tokens
        return Sent(body, rows, hashes, beside, before.model, before.owner, beyond_tokens)
    model = str(body.get("model") or "")
    owner = owner_digest(key)
    hashes = (chains or Chains()).of(rows, start=model_family(model), owner=owner)
    beside = Beside(system_at, [field for name in _SCHEMAS if (field := body.get(name))])
    return Sent(body, rows, hashes, beside, model, owner, beyond_tokens)


def _beyond_tokens(row: Message) -> int:
    text = row.get("content") if row["role"] == "tool" else None
    return len(text) if isinstance(text, str) and _may_be_blob(text) else 0


def _may_be_blob(text: str) -> bool:
    """Return whether the store may keep a result apart: ASCII takes one byte, the rest four."""
    return len(text) > (INLINE_BYTES if text.isascii() else INLINE_BYTES // 4)


def _require_message(message: Any, index: int) -> None:
    if not isinstance(message, dict) or not isinstance(message.get("role"), str):
        raise Unreadable(f"messages[{index}] must be an object with a role")
    if not message["role"]:
        raise Unreadable(f"messages[{index}] has an empty role")
    calls = message.get("tool_calls")
    if calls is None:
        return
    is_list = isinstance(calls, list) and all(isinstance(call, dict) for call in calls)
    if not is_list or not all(isinstance(call.get("function", {}), dict) for call in calls):
        raise Unreadable(f"messages[{index}].tool_calls must be a list of calls with a function")


def owner_digest(key: str) -> str:
    """Return what stands for a caller's key; the key itself is kept nowhere."""
    return hashlib.sha256(key.encode("utf-8", "surrogateescape")).hexdigest()


def model_family(model: str) -> str:
    """Return a model's name without vendor, variant and date, so that a new version goes on."""
    name = model.rpartition("/")[2].partition(":")[0].lower()
    while (bare := _VERSION.sub("", name)) != name:
        name = bare
    return name


def chain(rows: Sequence[Message], *, start: str) -> list[str]:
    """Return the hash of each prefix, from the first message to all."""
    if not rows:
        return []
    return longer([link(start.encode("utf-8", "replace"), rows[0]).hex()], rows[1:])


def longer(hashes: Sequence[str], rows: Sequence[Message]) -> list[str]:
    """Return the hashes of a history and, behind them, of each prefix that `rows` make longer."""
    chained, before = list(hashes), bytes.fromhex(hashes[-1])
    for row in rows:
        before = link(before, row)
        chained.append(before.hex())
    return chained


def link(before: bytes, row: Message) -> bytes:
    """Return the hash of a prefix whose own hash was `before` and that `row` makes longer."""
    meaning = _of_answer(row) if row["role"] == "assistant" else _of_other(row)
    return hashlib.sha256(before + _dump(meaning)).digest()


def after(hashes: Sequence[str], model: str, row: Message) -> str:
    """Return the hash of a history when `row` is added to it."""
    before = bytes.fromhex(hashes[-1]) if hashes else model_family(model).encode()
    return link(before, row).hex()


def _of_answer(row: Message) -> Any:
    """Return what an answer means: clients give back its text and calls, each in its own way."""
    text = _text(row.get("content")) or row.get("refusal")
    if isinstance(text, list) and all(map(_is_text, text)):
        text = "".join(part["text"] for part in text)
    calls = [_meaning(call) for call in row.get("tool_calls") or ()]
    said = text.strip() if isinstance(text, str) else text
    meaning: dict[str, Any] = {"role": "assistant", "content": said or ""}
    if calls:
        meaning["tool_calls"] = calls
    if row.get("function_call"):
        meaning["function_call"] = _function(row["function_call"])
    return meaning


def _meaning(call: Mapping[str, Any]) -> Any:
    return [call.get("id"), *_function(call.get("function") or call.get("custom"))]


def _function(function: Any) -> list[Any]:
    if not isinstance(function, Mapping):
        return [function]
    arguments = function.get("arguments")
    if isinstance(arguments, str):
        try:
            arguments = orjson.loads(arguments or "{}")
        except ValueError:
            arguments = arguments.strip()
    return [function.get("name"), arguments or {}, function.get("input")]


def _of_other(row: Message) -> Any:
    meaning = {key: value for key, value in row.items() if value is not None and key not in _MARKS}
    if "content" in meaning:
        meaning["content"] = _text(meaning["content"])
    return meaning


def _text(content: Any) -> Any:
    """Return content in one form: one text part as its text, other parts without marks."""
    if not isinstance(content, list):
        return content
    parts = [
        {key: value for key, value in part.items() if key not in _MARKS}
        if isinstance(part, Mapping)
        else part
        for part in content
    ]
    return parts[0]["text"] if len(parts) == 1 and _is_text(parts[0]) else parts


def _is_text(part: Any) -> bool:
    """Return whether a part is nothing but a text."""
    is_part = isinstance(part, dict) and part.keys() == {"type", "text"}
    return is_part and isinstance(part["text"], str)


def _dump(value: Any) -> bytes:
    try:
        return orjson.dumps(value, option=orjson.OPT_SORT_KEYS)
    except TypeError:
        clean = clean_value(value)
    try:
        return orjson.dumps(clean, option=orjson.OPT_SORT_KEYS)
    except TypeError as error:
        raise RecursionError(str(error)) from None
