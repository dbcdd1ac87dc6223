"""An oracle for changes of a view: it keeps what happened and tells it again from the start.

It has no pointers. What is in force is a set of passes; the view is what is left when their story
is told in order. Rows are the stored messages; their identity is their row id.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from agent.base.messages import Message
from agent.sessions.records import RowState


@dataclass(frozen=True)
class Accepted:
    """Rows that were accepted in one transaction."""

    rows: tuple[Message, ...]


@dataclass(frozen=True)
class Compacted:
    """A pass: rows it covered, rows it masked with how each is shown since, the row it made."""

    pass_id: str
    covered: frozenset[int]
    masked: Mapping[int, Message]
    made: Message | None


@dataclass(frozen=True)
class Rewound:
    """A rewind from row `seq` on; `watermark` is the last seq of its time."""

    pass_id: str
    seq: int
    watermark: int


Event = Accepted | Compacted | Rewound


@dataclass
class Story:
    """What happened to one conversation. `undone` holds ids of passes that are not in force."""

    events: list[Event] = field(default_factory=list)
    undone: set[str] = field(default_factory=set)

    # -- what is ----------------------------------------------------------------------------

    def told(self) -> Iterator[Event]:
        """Yield what is in force, in order."""
        for event in self.events:
            if isinstance(event, Accepted) or event.pass_id not in self.undone:
                yield event

    def view(self) -> list[Message]:
        """Return the live view, oldest first."""
        shown: list[Message] = []
        for event in self.told():
            if isinstance(event, Accepted):
                shown += event.rows
            elif isinstance(event, Rewound):
                shown = [row for row in shown if row["_seq"] < event.seq]
            else:
                shown = _compact(shown, event)
        return shown

    def hidden(self) -> set[int]:
        """Return the rows that a rewind in force hides."""
        hidden: set[int] = set()
        before: list[Message] = []
        for event in self.told():
            if isinstance(event, Accepted):
                before += event.rows
            elif isinstance(event, Rewound):
                hidden |= {row["_row_id"] for row in before if row["_seq"] >= event.seq}
            elif event.made is not None:
                before.append(event.made)
        return hidden

    def accepted(self) -> list[Message]:
        """Return every accepted row, oldest first."""
        return [row for e in self.events if isinstance(e, Accepted) for row in e.rows]

    def readable(self) -> list[Message]:
        """Return the accepted rows that no rewind in force hides."""
        hidden = self.hidden()
        return [row for row in self.accepted() if row["_row_id"] not in hidden]

    def states(self) -> dict[int, RowState]:
        """Return where each accepted row stands."""
        hidden = self.hidden()
        shown = {row["_row_id"]: row for row in self.view()}
        states = {}
        for row in self.accepted():
            row_id = row["_row_id"]
            if row_id in hidden:
                states[row_id] = RowState.HIDDEN
            elif row_id not in shown:
                states[row_id] = RowState.COMPACTED
            else:
                masked = "_stub" in shown[row_id]
                states[row_id] = RowState.MASKED if masked else RowState.LIVE
        return states

    @property
    def watermark(self) -> int:
        """The highest seq."""
        rows = self.accepted()
        return rows[-1]["_seq"] if rows else 0

    def compactions(self) -> list[Compacted]:
        """Return the compactions in force, oldest first."""
        return [event for event in self.told() if isinstance(event, Compacted)]

    def newest(self) -> Compacted | None:
        """Return the newest compaction that did something to a row which is not hidden."""
        hidden = self.hidden()
        touching = [p for p in self.compactions() if not {*p.covered, *p.masked} <= hidden]
        return touching[-1] if touching else None

    # -- what is done -----------------------------------------------------------------------

    def with_followers(self, pass_ids: Sequence[str]) -> list[str]:
        """Return passes and those in force that stand on rows they made, newest first."""
        wanted = set(pass_ids)
        while True:
            made = {p.made["_row_id"] for p in self.compactions() if p.pass_id in wanted and p.made}
            more = {p.pass_id for p in self.compactions() if made & {*p.covered, *p.masked}}
            if more <= wanted:
                return [p.pass_id for p in reversed(self.compactions()) if p.pass_id in wanted]
            wanted |= more

    def reaching_across(self, seq: int) -> list[str]:
        """Return what a rewind to `seq` undoes first, newest first."""
        hidden = self.hidden()
        seqs = {row["_row_id"]: row["_seq"] for row in self._every_row()}
        across = []
        for event in self.compactions():
            covered = [seqs[row_id] for row_id in event.covered - hidden]
            if covered and min(covered) < seq <= max(covered):
                across.append(event.pass_id)
        return self.with_followers(across)

    def is_empty_from(self, seq: int) -> bool:
        """Return whether a rewind to `seq` would hide nothing."""
        hidden = self.hidden()
        gone = {
            event.made["_row_id"]
            for event in self.events
            if isinstance(event, Compacted) and event.made and event.pass_id in self.undone
        }
        rows = {row["_row_id"] for row in self._every_row() if row["_seq"] >= seq}
        return rows <= hidden | gone

    def _every_row(self) -> list[Message]:
        made = [e.made for e in self.events if isinstance(e, Compacted) and e.made]
        return [*self.accepted(), *made]

    def fork(self, last: int) -> Story:
        """Return the story of a fork up to row `last`."""
        seqs = {row["_row_id"]: row["_seq"] for row in self._every_row()}
        events: list[Event] = []
        for event in self.told():
            if isinstance(event, Accepted):
                rows = tuple(row for row in event.rows if row["_seq"] <= last)
                events += [Accepted(rows)] if rows else []
            elif isinstance(event, Rewound):
                if event.watermark <= last:
                    events.append(event)
            elif all(seqs[row_id] <= last for row_id in event.covered):
                masked = {row_id: m for row_id, m in event.masked.items() if seqs[row_id] <= last}
                if masked or event.covered:
                    events.append(replace(event, masked=masked))
        return Story(events)

    def moved(self, rows: Mapping[int, int], passes: Mapping[str, str]) -> Story:
        """Return the story with other ids of rows and passes."""

        def row(message: Message) -> Message:
            moved = {**message, "_row_id": rows[message["_row_id"]]}
            if "_masked_by" in message:
                moved["_masked_by"] = passes[message["_masked_by"]]
            return moved

        events: list[Event] = []
        for event in self.events:
            if isinstance(event, Accepted):
                events.append(Accepted(tuple(map(row, event.rows))))
            elif isinstance(event, Rewound):
                events.append(replace(event, pass_id=passes[event.pass_id]))
            else:
                covered = frozenset(rows[row_id] for row_id in event.covered)
                masked = {rows[row_id]: row(shown) for row_id, shown in event.masked.items()}
                made = row(event.made) if event.made else None
                events.append(Compacted(passes[event.pass_id], covered, masked, made))
        return Story(events, {passes[pass_id] for pass_id in self.undone})


def _compact(shown: list[Message], event: Compacted) -> list[Message]:
    here = {row["_row_id"] for row in shown}
    assert event.covered <= here, "a pass in force covers a row that is not shown"
    view = [event.masked.get(row["_row_id"], row) for row in shown]
    if event.made is not None:
        last = max(i for i, row in enumerate(view) if row["_row_id"] in event.covered)
        view.insert(last + 1, event.made)
    return [row for row in view if row["_row_id"] not in event.covered]
