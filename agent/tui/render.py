"""Events and records as lines of text. Nothing here prints: a screen decides where lines go.

Read next: `figures.py` (numbers and tables), `slash.py` (who asks for these lines).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, Protocol

from agent.base.events import (
    CompactionFinished,
    CompactionProgress,
    CompactionStarted,
    Event,
    Notice,
    ToolFinished,
    ToolStarted,
)
from agent.base.messages import Message, text_of
from agent.base.record import dataclass
from agent.sessions.records import HistoryRow, PassKind, PassRecord, RowState, SessionRecord
from agent.tui import figures

Tone = Literal["plain", "dim", "good", "warn", "bad"]

KIND_WORDS = {
    PassKind.SUMMARY: "summary",
    PassKind.MECHANICAL: "mechanical digest",
    PassKind.MASK: "old tool results masked",
    PassKind.MICRO: "micro summary",
    PassKind.REWIND: "rewind",
    PassKind.UNDO: "undo",
    PassKind.IMPORT: "import",
    PassKind.PROVIDER_NATIVE: "provider's own",
}

ENDINGS = {
    "prepared": "compaction prepared, not committed",
    "aborted": "compaction ended, nothing changed",
    "failed": "compaction failed, nothing changed",
    "superseded": "compaction dropped because the conversation changed under it",
    "skipped": "compaction skipped, nothing to gain",
    "blocked": "compaction held back",
}


@dataclass(frozen=True)
class Line:
    """A line for a person without its last line feed, or a whole text; screens make control
    characters visible."""

    text: str
    tone: Tone = "plain"


class Meter(Protocol):
    """Tokens of the next request by part (`run_agent.ContextMeter`)."""

    @property
    def system(self) -> int: ...
    @property
    def tools(self) -> int: ...
    @property
    def summary(self) -> int: ...
    @property
    def user(self) -> int: ...
    @property
    def assistant(self) -> int: ...
    @property
    def tool_results(self) -> int: ...
    @property
    def total(self) -> int: ...
    @property
    def usable(self) -> int: ...
    @property
    def trigger(self) -> int: ...
    @property
    def window(self) -> int: ...
    @property
    def reserve(self) -> int: ...


METER_PARTS = (
    ("system", "system prompt"),
    ("tools", "tool schemas"),
    ("summary", "summary of earlier rows"),
    ("user", "user messages"),
    ("assistant", "assistant messages"),
    ("tool_results", "tool results"),
)


class EventLines:
    """Turns events into lines; remembers the names of running calls and the passes that a
    person asked for, whose outcome the asking command shows itself."""

    def __init__(self, find_pass: Callable[[str], PassRecord | None]) -> None:
        self._find_pass = find_pass
        self._call_names: dict[str, str] = {}
        self._manual: set[str] = set()

    def of(self, event: Event) -> list[Line]:
        """Return the lines of one event; none for what screens show in their own way."""
        match event:
            case ToolStarted():
                self._call_names[event.call_id] = event.name
                return [Line(f"→ {call_text(event.name, event.arguments)}", "dim")]
            case ToolFinished():
                name = self._call_names.pop(event.call_id, event.call_id)
                return [tool_end_line(name, event)]
            case CompactionStarted():
                if event.trigger == "manual":
                    self._manual.add(event.pass_id)
                return [Line(f"compacting the conversation (trigger: {event.trigger})", "dim")]
            case CompactionFinished():
                if event.pass_id in self._manual:
                    self._manual.discard(event.pass_id)
                    return []
                return [finished_line(event, self._find_pass(event.pass_id))]
            case Notice():
                return [notice_line(event)]
        return []


def notice_line(notice: Notice) -> Line:
    """Return a notice as a line in the tone of its level."""
    tones: dict[str, Tone] = {"warning": "warn", "error": "bad"}
    return Line(figures.one_line(notice.text), tones.get(notice.level, "dim"))


def call_text(name: str, arguments: Mapping[str, Any]) -> str:
    """Return a tool call on one line, at most 120 cells: `shell: ls`, `patch: path=…, text=…`."""
    values = [
        value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
        for value in arguments.values()
    ]
    if not values:
        return name
    if len(values) > 1:
        values = [f"{key}={value}" for key, value in zip(arguments, values, strict=True)]
    return figures.clip(figures.one_line(f"{name}: {', '.join(values)}"), 120)


def tool_end_line(name: str, event: ToolFinished) -> Line:
    """Return the line that ends a tool call."""
    figure = f"{figures.size(event.bytes)}, {figures.duration(event.duration_ms / 1000)}"
    if event.ok:
        return Line(f"← {name} {figure}", "dim")
    return Line(f"← {name} failed, {figure}", "warn")


def progress_text(progress: CompactionProgress) -> str:
    """Return what is shown while a pass runs."""
    tokens = figures.counted(progress.tokens_out, "summary token")
    stage = tokens if progress.tokens_out else "the model is reading"
    return f"compacting: {figures.duration(progress.elapsed_s)}, {stage}"


def finished_line(event: CompactionFinished, record: PassRecord | None) -> Line:
    """Return the receipt of a pass that ended, from its event and its ledger row."""
    kind = KIND_WORDS[record.kind] if record else ""
    return _receipt(
        event.status,
        kind,
        event.failure_class,
        before_after(event.tokens_before, event.tokens_after, "tokens"),
        before_after(event.messages_before, event.messages_after, "messages"),
        event.coverage,
        event.duration_ms,
    )


def pass_line(record: PassRecord) -> Line:
    """Return the receipt of a ledger row."""
    coverage = record.receipt.get("coverage")
    return _receipt(
        record.status.value,
        KIND_WORDS[record.kind],
        record.failure_class,
        before_after(record.tokens_before, record.tokens_after, "tokens"),
        before_after(record.messages_before, record.messages_after, "messages"),
        coverage if isinstance(coverage, int | float) else None,
        record.durations.get("total"),
    )


def before_after(before: int | None, after: int | None, noun: str) -> str:
    """Return `2,702 → 1,430 tokens`, what is known of it, or nothing."""
    if before is None and after is None:
        return ""
    if after is None:
        return f"{figures.count(before)} {noun}"
    return f"{figures.count(before)} → {figures.count(after)} {noun}"


def _receipt(
    status: str,
    kind: str,
    failure_class: str,
    tokens: str,
    messages: str,
    coverage: float | None,
    duration_ms: int | None,
) -> Line:
    took = figures.duration(duration_ms / 1000) if duration_ms is not None else ""
    if status != "committed":
        why = f" ({failure_class})" if failure_class else ""
        head = f"{ENDINGS.get(status, f'compaction {status}')}{why}"
        parts = [head, took] if status != "prepared" else [head, kind, tokens, messages, took]
        tone: Tone = "good" if status == "prepared" else "warn"
        return Line(", ".join(part for part in parts if part), tone)
    why = f"no summary: {failure_class}" if failure_class else ""
    share = f"coverage {figures.percent(coverage, 1)}" if coverage is not None else ""
    parts = [f"compacted ({kind})" if kind else "compacted", tokens, messages, share, why, took]
    return Line(", ".join(part for part in parts if part), "good")


def meter_text(used: int, usable: int, width: int) -> str:
    """Return the context meter for one line: figures, percent, and a bar where there is room."""
    share = figures.percent(used, usable)
    figure = f"{figures.count(used)} / {figures.count(usable)} tokens, {share}"
    if width and width < figures.cells(figure):
        return share
    room = min(20, width - figures.cells(figure) - 1) if width else 20
    return f"{figure} {figures.bar(used, usable, room)}" if room >= 5 else figure


def meter_lines(meter: Meter, width: int) -> list[Line]:
    """Return the context meter by part, for `/context`."""
    rows = [
        (label, figures.count(value), figures.percent(value, meter.usable))
        for name, label in METER_PARTS
        for value in (int(getattr(meter, name)),)
    ]
    rows.append(("total", figures.count(meter.total), figures.percent(meter.total, meter.usable)))
    headers = ("part", "tokens", "of usable")
    lines = figures.table(headers, rows, width, right=headers[1:])
    lines.append(meter_text(meter.total, meter.usable, width))
    lines.append(
        f"a pass starts at {figures.count(meter.trigger)}; window {figures.count(meter.window)}, "
        f"of which {figures.count(meter.reserve)} are kept for the answer"
    )
    return [Line(figures.clip(text, width) if width else text) for text in lines]


def sessions_table(records: Sequence[SessionRecord], width: int) -> list[Line]:
    """Return sessions as a table, in the given order."""
    if not records:
        return [Line("no sessions yet", "dim")]
    rows = [
        (
            record.id,
            figures.moment(record.last_active_at),
            figures.count(record.message_count),
            figures.count(record.pass_count),
            figures.one_line(record.title or "-"),
        )
        for record in records
    ]
    headers = ("session", "last active", "messages", "passes", "title")
    lines = figures.table(headers, rows, width, right=("messages", "passes"))
    return [Line(text) for text in lines]


def passes_table(records: Sequence[PassRecord], width: int) -> list[Line]:
    """Return ledger rows as a table, in the given order."""
    if not records:
        return [Line("no compactions yet", "dim")]
    rows = [
        (
            record.id[:8],
            record.status.value + (f" x{record.count}" if record.count > 1 else ""),
            record.kind.value,
            before_after(record.tokens_before, record.tokens_after, "").strip() or "-",
            before_after(record.messages_before, record.messages_after, "").strip() or "-",
            record.failure_class or "-",
            record.trigger,
            figures.moment(record.created_at),
        )
        for record in records
    ]
    headers = ("pass", "status", "kind", "tokens", "messages", "reason", "trigger", "started")
    lines = figures.table(headers, rows, width, right=("tokens", "messages"))
    return [Line(text) for text in lines]


def row_lines(message: Message, state: str = "") -> list[Line]:
    """Return one accepted row: a heading with its number, then its content as it was accepted."""
    at = message.get("_at")
    heading = [f"#{message.get('_seq', '?')} {message.get('role', '?')}"]
    heading += [figures.moment(at)] if isinstance(at, int | float) else []
    heading += [state] if state else []
    lines = [Line(", ".join(heading), "dim")]
    text = text_of(message.get("content"))
    if text:
        lines.append(Line(text))  # whole: a tool result may have millions of lines
    for call in message.get("tool_calls") or ():
        function = call.get("function", {})
        lines.append(Line(f"→ {function.get('name', '?')} {function.get('arguments', '')}"))
    return lines


def history_lines(rows: Sequence[HistoryRow]) -> list[Line]:
    """Return every place of a conversation with where it stands, a blank line between."""
    lines: list[Line] = []
    for row in rows:
        if lines:
            lines.append(Line(""))
        lines += row_lines(row.message, place_text(row))
    return lines


def place_text(row: HistoryRow) -> str:
    """Return where a place stands: empty for a live accepted row."""
    made = f"made by pass {row.made_by[:8]}" if row.made_by else ""
    if row.state is RowState.LIVE:
        return made
    by = f" by pass {row.compacted_by[:8]}" if row.compacted_by else ""
    return ", ".join(part for part in (made, f"{row.state.value}{by}") if part)
