"""Messages as blocks of the Anthropic Messages wire, and what joins them into one request. Pure.

A row is written once, as its blocks without brackets; which neighbours share a message, and where
the prompt cache is cut, is decided for each request.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import orjson

from agent.base.images import IMAGE_WORD, is_image
from agent.base.messages import Message, call_ids, clean_text
from agent.providers.encode import encode_json, valid_call, valid_name
from agent.providers.parts import plain_parts
from agent.providers.reasoning import bound_to, kept_fields

LAYOUT = "layout"
"""Field of `_reasoning`: the blocks of an answer in their order. A block that is opaque stands
there whole, a text as its number of characters, a call as null."""

WIRE = "messages"
THINKING = frozenset({"thinking", "redacted_thinking"})
COMPACTION = "compaction"

_NOTHING = "(empty)"
_DATA_URL = re.compile(r"data:(image/(?:jpeg|png|gif|webp))(?:;[\w.=+-]+)*;base64,([\w+/=]+)")
_UNNAMEABLE = re.compile(r"[^a-zA-Z0-9_-]")
_MARK = b" "
_THINKING_ROWS = (b' {"type":"thinking"', b' {"type":"redacted_thinking"')
_COMPACTION_ROW = b' {"type":"compaction"'
_CUT = b',"cache_control":{"type":"ephemeral"}}'
_SEPARATORS = (
    (b",", b']},{"role":"assistant","content":['),
    (b']},{"role":"user","content":[', b","),
)
"""What stands between two rows, by whether the first and the second are the assistant's."""
_OPENINGS = (b'{"role":"user","content":[', b'{"role":"assistant","content":[')
_CHUNK = 512

Block = dict[str, Any]


# -- one row --------------------------------------------------------------------------------------
def write_row(message: Message, replays: bool, *, route: str) -> bytes:
    """Return the blocks of a message, each JSON, with commas between them; see `WriteRow`.

    A row of the assistant begins with a space, so that bytes alone tell the sides apart.
    """
    role = message.get("role")
    if role == "assistant":
        return _MARK + encode_json(_answer(message, replays, route) or [_text(_NOTHING)])[1:-1]
    if role == "tool":
        blocks = [_result(message)]
    else:
        blocks = list(_parts(message.get("content")))
    return encode_json(blocks or [_text(_NOTHING)])[1:-1]


def _answer(message: Message, replays: bool, route: str) -> list[Block]:
    """Return an assistant's blocks; opaque ones go back whole and in place, or not at all."""
    said = _said(message)
    calls = [_call(call) for call in message.get("tool_calls") or ()]
    layout = _layout(message, route) if replays else []
    if not layout:
        return [*_texts(said), *calls]
    blocks: list[Block] = []
    start = 0
    for piece in layout:
        if piece is None:
            blocks.append(calls.pop(0))
        elif isinstance(piece, int):
            blocks += _texts(said[start : start + piece])
            start += piece
        else:
            blocks.append(piece)
    return blocks


def _said(message: Message) -> str:
    content = message.get("content")
    if isinstance(content, str):
        return content
    return "\n".join(block["text"] for block in _parts(content) if block["type"] == "text")


def _layout(message: Message, route: str) -> list[Any]:
    """Return how the answer of that route was laid out; empty when the message does not say any
    more what the answer said."""
    kept = kept_fields(message.get("_reasoning"), bound_to(route, WIRE))
    layout: list[Any] = kept.get(LAYOUT, [])
    sizes = [piece for piece in layout if isinstance(piece, int)]
    is_whole = not message.get("_masked_by") and sum(sizes) == len(_said(message))
    return layout if is_whole and layout.count(None) == len(call_ids(message)) else []


def holds_compaction(message: Message, route: str) -> bool:
    """Return whether a message of that route brought a compaction that may go back."""
    if f'"{COMPACTION}"' not in (message.get("_reasoning") or ""):
        return False
    layout = _layout(message, route)
    return any(isinstance(piece, dict) and piece["type"] == COMPACTION for piece in layout)


def _call(call: Mapping[str, Any]) -> Block:
    function = valid_call(call)["function"]
    written = orjson.Fragment(function["arguments"])
    call_id = wire_id(str(call.get("id", "")))
    return {"type": "tool_use", "id": call_id, "name": function["name"], "input": written}


def _result(message: Message) -> Block:
    block = {"type": "tool_result", "tool_use_id": wire_id(str(message.get("tool_call_id", "")))}
    content = message.get("content")
    if isinstance(content, list):
        return {**block, "content": list(_parts(content))}
    return {**block, "content": content} if isinstance(content, str) and content.strip() else block


def wire_id(call_id: str) -> str:
    """Return the id of a call as the wire takes it: other characters give way, ids stay apart."""
    plain = _UNNAMEABLE.sub("_", call_id)
    if plain == call_id and call_id:
        return call_id
    return f"{plain}_{zlib.crc32(call_id.encode('utf-8', 'replace')):08x}"


def _parts(content: Any) -> Iterator[Block]:
    """Yield the text and image blocks of a content value."""
    if not isinstance(content, list):
        yield from _texts(content if isinstance(content, str) else "")
        return
    for part in plain_parts(content):
        if is_image(part):
            yield _image(part)
        else:
            said = part.get("text")
            yield from _texts(said if isinstance(said, str) else f"[{part['type']}]")


def _texts(said: str) -> list[Block]:
    return [_text(said)] if said.strip() else []


def _text(said: str) -> Block:
    return {"type": "text", "text": said}


def _image(part: Mapping[str, Any]) -> Block:
    """Return an image as the wire takes it, or a word where it takes none of that kind."""
    given = part.get("image_url")
    url = str(given.get("url", "") if isinstance(given, Mapping) else given or "")
    match = _DATA_URL.fullmatch(url)
    if match is not None:
        source = {"type": "base64", "media_type": match[1], "data": match[2]}
        return {"type": "image", "source": source}
    if url.startswith(("https://", "http://")):
        return {"type": "image", "source": {"type": "url", "url": url}}
    return _text(IMAGE_WORD)


# -- one request ----------------------------------------------------------------------------------
def system_blocks(messages: Sequence[Message]) -> tuple[list[Block], int]:
    """Return the system prompt's blocks and how many messages they come from."""
    count = 0
    while count < len(messages) and messages[count].get("role") in ("system", "developer"):
        count += 1
    parts = (block for message in messages[:count] for block in _parts(message.get("content")))
    return [block for block in parts if block["type"] == "text"], count


def tool_blocks(tools: Sequence[Mapping[str, Any]]) -> list[Block]:
    """Return OpenAI function schemas as the wire's tools."""
    blocks: list[Block] = []
    for tool in tools:
        function = tool.get("function") or tool
        block: Block = {"name": valid_name(str(function.get("name", "")))}
        if function.get("description"):
            block["description"] = clean_text(str(function["description"]))
        block["input_schema"] = {"type": "object", **(function.get("parameters") or {})}
        blocks.append(block)
    return blocks


def cut(blocks: list[Block]) -> list[Block]:
    """Return blocks with a breakpoint of the prompt cache behind the last one."""
    return [*blocks[:-1], {**blocks[-1], "cache_control": {"type": "ephemeral"}}]


class RowJoiner:
    """Joins rows into messages, and knows how far a request is as the one before it was.

    What is as it was is neither compared row by row nor joined anew.
    Concurrency: safe; a race costs a comparison with another request.
    """

    def __init__(self) -> None:
        self._last: tuple[list[bytes], list[bytes]] = ([], [])

    def join(self, rows: list[bytes], *, keep: bool) -> tuple[list[bytes], int]:
        """Return what the list of messages is made of, row `n` at `2 * n + 1`, and how many of
        the first rows are as in the last request that was kept. `rows` must not be changed."""
        last_rows, last_parts = self._last
        stable = _equal_rows(rows, last_rows)
        parts = last_parts[: 2 * stable]
        side = bool(stable) and rows[stable - 1].startswith(_MARK)
        for row in rows[stable:]:
            before, side = side, row.startswith(_MARK)
            parts += (_SEPARATORS[before][side] if parts else _OPENINGS[side], row)
        if keep:
            self._last = (rows, list(parts))
        return parts, stable


def _equal_rows(rows: list[bytes], last: list[bytes]) -> int:
    """Return how many of the first rows are the same in both lists."""
    count, most = 0, min(len(rows), len(last))
    while count < most and rows[count : count + _CHUNK] == last[count : count + _CHUNK]:
        count += _CHUNK
    count = min(count, most)
    while count < most and rows[count] == last[count]:
        count += 1
    return count


def joined(parts: list[bytes], cuts: Sequence[int]) -> list[bytes]:
    """Return the pieces of the JSON list of messages; breakpoints stand behind rows in `cuts`."""
    for index in cuts:
        parts[2 * index + 1] = parts[2 * index + 1][:-1] + _CUT
    return [b"[", *parts, b"]}]"] if parts else [b"[]"]


def choose_cuts(messages: Sequence[Message], stable: int) -> list[int]:
    """Return behind which rows the prompt cache is cut: at most three, all the user's.

    The newest row, so that the next request reads all of this one; the newest row of the request
    before it, however many blocks came since; and the last of the first `stable` rows, which a
    pass left as they were.
    """
    newest = len(messages) - 1
    before = _user_row(messages, _side_start(messages, newest))
    kept = _user_row(messages, min(stable, len(messages)))
    return sorted({index for index in (kept, before, newest) if index >= 0})


def _side_start(messages: Sequence[Message], index: int) -> int:
    """Return where the user's message that holds row `index` begins."""
    while index > 0 and messages[index - 1].get("role") != "assistant":
        index -= 1
    return index


def _user_row(messages: Sequence[Message], end: int) -> int:
    """Return the last row before `end` that is not the assistant's, -1 for none."""
    index = end - 1
    while index >= 0 and messages[index].get("role") == "assistant":
        index -= 1
    return index


def may_think(messages: Sequence[Message], rows: Sequence[bytes]) -> bool:
    """Return whether thinking may be asked for: in an open tool round only when the assistant's
    turn still begins with its thinking."""
    index = len(messages)
    first = b""
    while index:
        start = _side_start(messages, index - 1)
        if not any(message.get("role") == "tool" for message in messages[start:index]):
            break
        index = start
        while index and messages[index - 1].get("role") == "assistant":
            index -= 1
        first = rows[index] if index < start else first
    return not first or first.startswith(_THINKING_ROWS)


def is_compacted(rows: Sequence[bytes]) -> bool:
    """Return whether a row begins with a compaction of the service's."""
    return any(row.startswith(_COMPACTION_ROW) for row in rows)


def behind_compaction(messages: Sequence[Message], rows: Sequence[bytes]) -> list[Message]:
    """Return messages so that what stands before the newest compaction is still read.

    The service ignores everything before it; what a request restates there follows behind it,
    after the results that must come first.
    """
    newest = max(place for place, row in enumerate(rows) if row.startswith(_COMPACTION_ROW))
    before = messages[:newest]
    if any(message.get("role") == "assistant" for message in before):
        return list(messages)
    end = newest + 1
    while end < len(messages) and messages[end].get("role") == "tool":
        end += 1
    restated = [message for message in before if "_kind" in message or "_seq" in message]
    opening: Message = {"role": "user", "content": _NOTHING}
    return [opening, *messages[newest:end], *restated, *messages[end:]]


def plain_answers(
    messages: Sequence[Message], rows: Sequence[bytes], *, but_newest: bool
) -> list[Message]:
    """Return messages without what answers brought along compactions, all or all but the newest."""
    places = [place for place, row in enumerate(rows) if row.startswith(_COMPACTION_ROW)]
    plain = set(places[:-1] if but_newest else places)
    return [
        _changed(message, _reasoning="") if place in plain else message
        for place, message in enumerate(messages)
    ]


def ids_apart(
    messages: Sequence[Message], repeated: set[str], seqs_of_ids: Mapping[str, int]
) -> list[Message]:
    """Return messages in which the calls with an id of `repeated` are told apart by their row.

    Servers that number the calls of each answer anew repeat ids; this wire refuses them. The row
    that had an id first, by `seqs_of_ids` or in the request, keeps it: what was sent stays.
    """
    apart: list[Message] = []
    names: dict[str, str] = {}
    places: dict[str, int] = {}
    for place, message in enumerate(messages):
        calls = message.get("tool_calls")
        if calls:
            seq = message.get("_seq")
            mark = f"at{place}" if seq is None else seq
            names = {
                call_id: f"{call_id}_{mark}"
                for call_id in repeated.intersection(call_ids(message))
                if seqs_of_ids.get(call_id, seq) != seq
                or places.setdefault(call_id, place) != place
            }
            if names:
                renamed = [{**call, "id": names.get(call["id"], call["id"])} for call in calls]
                message = _changed(message, tool_calls=renamed)
        elif message.get("role") == "tool" and message.get("tool_call_id") in names:
            message = _changed(message, tool_call_id=names[message["tool_call_id"]])
        apart.append(message)
    return apart


def _changed(message: Message, **fields: Any) -> Message:
    return {key: value for key, value in message.items() if key != "_row_id"} | fields
