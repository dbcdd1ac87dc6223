"""What a pass changed in the view, and what an undo or a rewind brought back, as lines."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Sequence

from agent.base.messages import PASS_KINDS, Message, text_of
from agent.sessions.records import PassChanges, PassKind, PassRecord, PassStatus, UndoResult
from agent.tui import figures
from agent.tui.render import KIND_WORDS, Line, before_after

SHOWN_CHARS = 300
_RETURNED = (
    ("freed", "rows {} are in the view again"),
    ("unmasked", "rows {} are shown whole again"),
    ("shown", "rows {} are shown again"),
    ("stops", "no row had changed; {} is off in this conversation from the next request on"),
)


def changes_lines(changes: PassChanges) -> list[Line]:
    """Return what left the view, what is shown shorter, what stands in, what is in no row."""
    lines = [Line(_heading(changes))]
    if changes.left:
        lines.append(Line("left the view:", "dim"))
        lines += [Line(f"- {_row_text(message)}") for message in changes.left]
    if changes.masked:
        lines.append(Line("shown shorter:", "dim"))
        lines += [Line(f"~ {_mask_text(*pair)}") for pair in changes.masked]
    notes = [message for message in changes.left if message.get("_kind") in PASS_KINDS]
    for made in changes.made:
        lines += _made_lines(made, notes)
    return [*lines, *_dropped_lines(changes.record)]


def _heading(changes: PassChanges) -> str:
    record = changes.record
    what = f"pass {record.id[:8]} ({KIND_WORDS[record.kind]}), {record.status.value}"
    if record.status is PassStatus.UNDONE:
        is_back = "what it had taken out of the view is back"
        return f"{what}: {'nothing is left out any more' if _cleared(record) else is_back}"
    parts = []
    if changes.left:
        parts.append(f"{figures.counted(len(changes.left), 'row')} left the view")
    if changes.masked:
        parts.append(f"{figures.counted(len(changes.masked), 'row')} shown shorter")
    if changes.made:
        parts.append(f"{len(changes.made)} made in their place")
    parts += _returned(record)
    parts += _cleared(record)
    return f"{what}: {', '.join(parts) or 'the view is as it was'}"


def _cleared(record: PassRecord) -> list[str]:
    """Return what the provider left out of the request that it read, for people."""
    cleared = record.receipt.get("cleared")
    if not cleared:
        return []
    parts = [figures.counted(cleared["tokens"], "token")]
    parts += [
        figures.counted(cleared[name], noun)
        for name, noun in (("tool_uses", "tool result"), ("thinking_turns", "thinking turn"))
        if cleared[name]
    ]
    return [f"no row changed, the provider did not read {parts[0]} ({', '.join(parts[1:])})"]


def _returned(record: PassRecord) -> list[str]:
    if record.kind is not PassKind.UNDO:
        return []
    return [text.format(record.receipt[key]) for key, text in _RETURNED if record.receipt.get(key)]


def _row_text(message: Message) -> str:
    """Return a row on one line; a long one is cut and says where the rest is."""
    text = figures.one_line(text_of(message.get("content")))
    calls = [call.get("function") or {} for call in message.get("tool_calls") or ()]
    told = [f"→ {call.get('name', '?')} {call.get('arguments', '')}" for call in calls]
    text = " ".join([text, *map(figures.one_line, told)]).strip()
    kind = message.get("_kind", message.get("role", "?"))
    rest = len(text) - SHOWN_CHARS
    if rest > 0:
        text = f"{text[:SHOWN_CHARS]}… ({figures.counted(rest, 'more character')})"
    return f"#{message.get('_seq', '?')} {kind}: {text}"


def _mask_text(before: Message, after: Message) -> str:
    sizes = [len(text_of(message.get("content"))) for message in (before, after)]
    shrunk = f"{figures.count(sizes[0])} → {figures.counted(sizes[1], 'character')}"
    return f"{_row_text(after)} [{shrunk}]"


def _made_lines(made: Message, notes: Sequence[Message]) -> Iterator[Line]:
    """Yield a row that a pass made; beside notes that it replaces, what is different in it."""
    text = text_of(made.get("content")).splitlines()
    heading = f"in their place, #{made.get('_seq', '?')} {made.get('_kind', '?')}:"
    if len(notes) != 1:
        yield Line(heading, "dim")
        yield from (Line(f"+ {line}") for line in text)
        return
    before = text_of(notes[0].get("content")).splitlines()
    yield Line(f"{heading[:-1]}, as it differs from the notes before it:", "dim")
    # The first two lines name files, which there are none of.
    for line in list(difflib.unified_diff(before, text, n=len(text), lineterm=""))[2:]:
        if not line.startswith("@@"):
            yield Line(f"{line[0]} {line[1:]}".rstrip())


def dropped(record: PassRecord) -> tuple[list[str], int]:
    """Return the identifiers that the receipt names as in no row of the view, and how many there
    were in all."""
    named = record.receipt.get("dropped") or []
    return list(named), max(len(named), record.receipt.get("identifiers_dropped") or 0)


def _dropped_lines(record: PassRecord) -> list[Line]:
    named, total = dropped(record)
    if not total or record.status is PassStatus.UNDONE:
        return []
    lines = [Line(f"dropped for good, {figures.counted(total, 'identifier')} (recall reads them):")]
    lines += [Line(f"  {figures.one_line(text)}") for text in named]
    if total > len(named):
        lines.append(Line(f"  and {total - len(named)} more"))
    return lines


def undo_lines(result: UndoResult) -> list[Line]:
    """Return a line for each ledger row of an undo or a rewind, then the view after it."""
    lines = [Line(_undo_text(record)) for record in result.ledger]
    first, last = result.ledger[0], result.ledger[-1]
    figures_ = (
        before_after(first.tokens_before, last.tokens_after, "tokens"),
        before_after(first.messages_before, last.messages_after, "messages"),
    )
    return [*lines, Line(f"view: {', '.join(figures_)}", "good")]


def _undo_text(record: PassRecord) -> str:
    if record.kind is PassKind.REWIND:
        return f"took back rows {record.receipt['hidden']} (pass {record.id[:8]})"
    back = ", ".join(_returned(record))
    target = (record.target_pass or "")[:8]
    return f"undid pass {target}: {back}" if back else f"undid pass {target}"
